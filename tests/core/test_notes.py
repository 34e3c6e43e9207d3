"""The driver says whose work each plan is before the engine sees it."""

from __future__ import annotations

import pytest

from headstart.core.plan import Step
from headstart.engine.fake import FakeEngine
from headstart.engine.protocol import StepResult
from headstart.types import RequestId
from tests.core.run import Run, words


def test_the_library_never_works_on_a_request_that_is_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(parallel=2)
    noted: list[tuple[RequestId, ...]] = []
    monkeypatch.setattr(run.driver, "_note", noted.append)
    computed = FakeEngine.run
    steps = 0

    def checked(engine: FakeEngine, step: Step) -> StepResult:
        nonlocal steps
        steps += 1
        assert {entry.request for entry in step.entries} <= set(noted[-1])
        return computed(engine, step)

    monkeypatch.setattr(FakeEngine, "run", checked)
    for i in range(4):
        run.submit(f"r{i}", [*words(100), *words(30, i)], head=100)
    run.finish(interrupted=lambda: False)
    assert steps and {id for note in noted for id in note} == {"r0", "r1", "r2", "r3"}
    assert noted[-1] == ()  # nobody is left to blame for the death of a worker that has nothing to do
