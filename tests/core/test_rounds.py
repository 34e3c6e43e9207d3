"""Steps that follow one another without a plan in between."""

from __future__ import annotations

import pytest

from headstart.core.plan import Step
from headstart.engine.fake import FakeEngine
from headstart.engine.protocol import OutOfCells, StepResult
from headstart.messages import Finished
from headstart.types import FinishReason, MemoryKind
from tests.core.run import Run, words


def never() -> bool:
    return False


def served(kind: MemoryKind, *, plan_each: bool) -> Run:
    """Three sessions of one head that arrive while others decode, and end by length or by an end of turn."""
    run = Run(kind, end_every=29, parallel=3)
    for i in range(5):
        run.submit(f"r{i}", [*words(100), *words(10, seed=i)], head=100, max_tokens=20)
        run.turn(3)
    run.finish(interrupted=(lambda: True) if plan_each else never)
    return run


@pytest.mark.parametrize("kind", MemoryKind)
def test_a_run_of_steps_leads_to_what_single_steps_lead_to(kind: MemoryKind) -> None:
    single, many = served(kind, plan_each=True), served(kind, plan_each=False)
    assert many.said == single.said
    assert many.ended == pytest.approx(single.ended)
    assert many.events == single.events
    assert many.holders() == single.holders()
    reasons = {end.reason for end in many.ended.values() if isinstance(end, Finished)}
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}


def test_a_session_alone_decodes_to_its_end_in_one_turn() -> None:
    run = Run()
    run.submit("a", words(50), max_tokens=30)
    run.turn()
    run.turn(interrupted=never)
    assert len(run.said["a"]) == 30 and "a" in run.ended


def test_an_interruption_ends_the_run_after_the_step() -> None:
    run = Run()
    run.submit("a", words(50), max_tokens=30)
    run.turn()
    asked = iter([False, False, True])
    run.turn(interrupted=lambda: next(asked))
    assert len(run.said["a"]) == 1 + 3


@pytest.mark.parametrize("late", ["waiting", "reading"])
def test_nothing_goes_on_past_a_step_while_somebody_may_start_or_reads(late: str) -> None:
    run = Run(parallel=3, n_batch=64)
    run.submit("a", words(50), max_tokens=30)
    run.turn()
    run.submit("late", words(500, seed=1))
    if late == "waiting":
        run.submit("sibling", words(500, seed=1))
    for said in range(2, 6):
        run.turn(interrupted=never)
        assert len(run.said["a"]) == said


def test_a_full_house_goes_on_for_all_who_are_queued() -> None:
    """Nobody of them could start before an answer ends."""
    run = Run(parallel=1)
    run.submit("a", words(50), max_tokens=30)
    run.turn()
    run.submit("queued", words(50, seed=1))
    run.turn(interrupted=never)
    assert len(run.said["a"]) == 30 and "queued" not in run.started
    run.finish(interrupted=never)
    assert len(run.said["queued"]) == 3


def test_a_run_takes_no_more_cells_than_are_free() -> None:
    """The holder stays until its cells are needed, and then gives way as between single steps."""
    run = Run(n_ctx=300, parallel=2, n_batch=128)
    run.submit("idle", words(80, seed=1), max_tokens=1)
    run.finish()
    run.submit("a", words(100), max_tokens=180)
    run.turn()
    run.turn(interrupted=never)
    assert run.engine.used_cells == 300 and run.holders() == [80]
    run.finish(interrupted=never)
    assert len(run.said["a"]) == 180


def test_a_step_without_cells_inside_a_run_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    computed, calls = FakeEngine.run, 0

    def short(engine: FakeEngine, step: Step) -> StepResult:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise OutOfCells
        return computed(engine, step)

    monkeypatch.setattr(FakeEngine, "run", short)
    run.submit("a", words(50), max_tokens=20)
    run.turn()
    run.turn(interrupted=never)
    assert len(run.said["a"]) == 4 and "a" not in run.ended
    run.finish(interrupted=never)
    assert len(run.said["a"]) == 20
