"""What the worker makes of its commands."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from headstart.messages import Submit
from headstart.worker import Worker


@pytest.mark.parametrize(("arrived", "counts"), [(-5.0, -5.0), (None, 0.0), (5.0, 0.0)])
def test_waiting_begins_when_a_request_arrives_not_when_it_is_read(arrived: float | None, counts: float) -> None:
    """A step may take seconds, and commands are read between steps. A clock that is ahead makes no waiting negative."""
    told: list[float] = []
    driver = SimpleNamespace(submit=lambda _submit, now: told.append(now))
    worker = Worker(None, driver, 0)
    now = time.monotonic()
    worker._obey(Submit(id="a", tokens=[1], arrived=None if arrived is None else now + arrived))
    assert told[0] - now == pytest.approx(counts, abs=1.0)
    assert told[0] <= time.monotonic()
