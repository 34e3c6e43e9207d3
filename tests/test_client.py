"""The front's handle on a worker that says nothing."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from headstart.client import Client
from headstart.config import Config
from headstart.errors import EngineError
from headstart.messages import Submit
from headstart.recorder import Account


async def _silent() -> Client:
    client = Client(Config())
    client._worker = SimpleNamespace(send=lambda command: None, account=Account)
    client.state = "ready"
    return client


async def _look(*, dies: bool) -> None:
    """Look at it, then either it dies or the one who asked gives up."""
    client = await _silent()
    looking = asyncio.create_task(client.inspect())
    await asyncio.sleep(0)
    if dies:
        client._worker_died(-9)
    else:
        looking.cancel()
    try:
        await looking
    finally:
        client._worker = None
        await client.stop()


def test_a_look_that_is_given_up_is_no_death() -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(_look(dies=False))


def test_a_look_at_a_worker_that_dies_says_so() -> None:
    with pytest.raises(EngineError, match="died"):
        asyncio.run(_look(dies=True))


def test_a_request_carries_the_time_of_its_arrival() -> None:
    async def ask() -> tuple[float, Submit, float]:
        client = await _silent()
        sent: list[Submit] = []
        client._worker.send = sent.append
        before = time.monotonic()
        asking = asyncio.ensure_future(anext(client.generate(Submit(id="a", tokens=[1]))))
        await asyncio.sleep(0)
        after = time.monotonic()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        client._worker = None
        await client.stop()
        return before, sent[0], after

    before, submit, after = asyncio.run(ask())
    assert before <= submit.arrived <= after
