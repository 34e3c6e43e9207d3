"""What the worker makes of its commands."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from headstart.channel import replies
from headstart.messages import Finished, Sampled, Submit, Timings
from headstart.types import FinishReason
from headstart.worker import CROWDED_TOKENS_S, TOKENS_S, Worker, tokens_s


@pytest.mark.parametrize(("arrived", "counts"), [(-5.0, -5.0), (None, 0.0), (5.0, 0.0)])
def test_waiting_begins_when_a_request_arrives_not_when_it_is_read(arrived: float | None, counts: float) -> None:
    """A step may take seconds, and commands are read between steps. A clock that is ahead makes no waiting negative."""
    told: list[float] = []
    driver = SimpleNamespace(submit=lambda _submit, now: told.append(now))
    worker = Worker(None, driver, 0, 0.0)
    now = time.monotonic()
    worker._obey(Submit(id="a", tokens=[1], arrived=None if arrived is None else now + arrived))
    assert told[0] - now == pytest.approx(counts, abs=1.0)
    assert told[0] <= time.monotonic()


@pytest.mark.parametrize(
    ("threads", "cores", "on_gpu", "expected"),
    [(2, 2, False, CROWDED_TOKENS_S), (3, 4, False, TOKENS_S), (8, 4, False, CROWDED_TOKENS_S), (4, 4, True, TOKENS_S)],
)
def test_tokens_are_handed_over_less_often_where_every_core_computes(
    threads: int, cores: int, on_gpu: bool, expected: float
) -> None:
    assert tokens_s(threads, cores, on_gpu=on_gpu) == expected


def test_tokens_wait_for_one_another_and_for_nothing_else() -> None:
    """What ends an answer takes along the tokens before it, at once."""
    sent: list[list[object]] = []
    socket = SimpleNamespace(send=lambda data: sent.append(replies.decode(data)))
    news: list[list[object]] = []
    driver = SimpleNamespace(take=lambda: (news.pop(0), []), usage=lambda: None)
    worker = Worker(socket, driver, 0, 0.1)
    first, second, third = (Sampled("a", token) for token in range(3))
    end = Finished("a", FinishReason.STOP, Timings())
    for now, told in ((10.0, [first]), (10.05, [second]), (10.11, []), (10.15, [third]), (10.16, [end])):
        news.append(told)
        worker._send(now, idle=False)
    assert sent == [[first], [second], [third, end]]
