"""A library call that never returns stops one request, not the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from headstart import process
from headstart.client import Client
from headstart.config import Config
from headstart.errors import EngineError, RequestError
from headstart.messages import Finished, Sampling, Started, Submit

SECONDS = 60


async def tokens_of(client: Client, work: Submit) -> int:
    """How many tokens it brings; raises what the client raises."""
    replies = [reply async for reply in client.generate(work)]
    assert isinstance(replies[-1], Finished)
    return replies[-1].timings.predicted_n


async def started(client: Client, work: Submit) -> asyncio.Task[int]:
    """A request that is being computed."""
    began = asyncio.Event()

    async def follow() -> int:
        async for reply in client.generate(work):
            if isinstance(reply, Started):
                began.set()
        return 0

    task = asyncio.create_task(follow())
    await began.wait()
    return task


async def scenario(client: Client) -> None:
    await client.start()
    hangs = [
        Submit(id=f"hangs/{i}", tokens=[5, 6, 7], sampling=Sampling(grammar='root ::= "a"*', seed=i)) for i in range(2)
    ]
    bystander = await started(client, Submit(id="bystander", tokens=[1, 2, 3], sampling=Sampling(ignore_eos=True)))
    ends = await asyncio.gather(*(tokens_of(client, work) for work in hangs), bystander, return_exceptions=True)
    for error in ends[:2]:
        assert isinstance(error, RequestError) and error.status == 400
        assert "grammar is too ambiguous" in error.message
    assert isinstance(ends[2], EngineError) and ends[2].status == 503
    while client.state != "ready":
        await asyncio.sleep(0.05)
    with pytest.raises(RequestError) as caught:
        await tokens_of(client, Submit(id="again", tokens=[9], sampling=hangs[0].sampling))
    assert caught.value.code == "grammar_too_ambiguous"
    short = Sampling(ignore_eos=True)
    assert await tokens_of(client, Submit(id="after", tokens=[1, 2, 3], sampling=short, max_tokens=4)) == 4


def test_a_grammar_that_never_comes_back(tiny_model: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WORKER", (str(Path(__file__).with_name("hanging_worker.py")),))

    async def run() -> None:
        client = Client(Config(model=tiny_model("llama"), ctx_size=8192, threads=1))
        try:
            await asyncio.wait_for(scenario(client), SECONDS)
        finally:
            await client.stop()
        assert client.state == "down"

    asyncio.run(run())
