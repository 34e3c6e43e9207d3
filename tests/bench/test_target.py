"""Reading a stream: what counts as text, when, and what ends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from headstart.bench import drive
from headstart.bench.target import Answer, Target
from headstart.errors import HeadstartError


def event(**chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def piece(text: str | None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}}])


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def streaming(*parts: bytes, got: dict[str, Any] | None = None) -> Handler:
    """A server that streams ``parts``; what it was asked is put into ``got``."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if got is not None:
            got.update(await request.json(), path=request.path)
        reply = web.StreamResponse()
        await reply.prepare(request)
        for part in parts:
            await reply.write(part)
        return reply

    return handler


def ask(handler: Handler, **body: Any) -> Answer:
    async def run() -> Answer:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", handler)
        async with TestServer(app) as server, aiohttp.ClientSession() as http:
            url = str(server.make_url("/v1/"))
            return await Target(url, {"model": "m", "seed": 1}, http).chat({"messages": [], **body})

    return asyncio.run(run())


def test_only_text_counts_as_text() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 7}}
    parts = [
        event(choices=[{"delta": {"role": "assistant", "content": ""}}]),
        b": keepalive\n\n",
        event(choices=[{"delta": {}}], prompt_progress={"processed": 3}),
        piece("a"),
        piece(" b"),
        event(choices=[], usage=usage, headstart={"source": "attach"}),
        b"data: [DONE]\n\n",
    ]
    got: dict[str, Any] = {}

    answer = ask(streaming(*parts, got=got), seed=2)
    assert (answer.text, len(answer.times), answer.source) == ("a b", 2, "attach")
    assert (answer.prompt_tokens, answer.cached, answer.uncached, answer.generated) == (10, 7, 3, 2)
    assert 0 < answer.first <= answer.total
    assert got["path"] == "/v1/chat/completions"
    assert (got["model"], got["seed"], got["stream"]) == ("m", 2, True)


def test_reasoning_and_tool_calls_are_first_tokens_too() -> None:
    for delta in ({"reasoning_content": "x"}, {"tool_calls": [{"index": 0}]}):
        answer = ask(streaming(event(choices=[{"delta": delta}])))
        assert len(answer.times) == 1


def test_a_server_that_does_not_say_has_cached_nothing() -> None:
    reply = event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": None})
    answer = ask(streaming(reply))
    assert answer.cached == 0
    with pytest.raises(HeadstartError, match="without any text"):
        _ = answer.first


def test_errors_are_raised() -> None:
    async def full(_: web.Request) -> web.Response:
        return web.Response(status=503, text="no room")

    with pytest.raises(HeadstartError, match=r"answered 503: no room"):
        ask(full)
    with pytest.raises(HeadstartError, match="gave up"):
        ask(streaming(piece("a"), event(error={"message": "worker died"})))


def answer(*times: float, generated: int | None = None) -> Answer:
    return Answer(0.0, list(times), usage={"completion_tokens": len(times) if generated is None else generated})


def test_speed_counts_only_the_time_in_which_all_decode() -> None:
    assert drive.rate([answer(0.0, 1.0, 2.0, 3.0)]) == pytest.approx(1.0)
    # From 1.0 to 3.0: two tokens of the first, four of the second.
    assert drive.rate([answer(0.0, 1.0, 2.0, 3.0), answer(1.0, 1.5, 2.0, 2.5, 3.0, 3.5)]) == pytest.approx(3.0)
    # However fast it is, a session alone loses no token.
    assert drive.rate([answer(0.0, 0.004, 0.008, 0.012)]) == pytest.approx(250.0)
    # What came with the second's first token was written before it, what comes with the first's last one was in time.
    first, second = answer(0.0, 1.0, 2.001, 3.0, 4.0), answer(2.0, 3.0, 4.001, 5.0)
    assert drive.rate([first, second]) == pytest.approx(2.0)
    # One token at once, then two in each piece.
    assert drive.rate([answer(0.0, 1.0, 2.0, generated=5)]) == pytest.approx(2.0)
    # A server that stood still for three of these four seconds.
    assert drive.rate([answer(0.0, 1.0, 2.0, 4.0)], lambda moment: moment / 4) == pytest.approx(3.0)
    with pytest.raises(HeadstartError, match="same time"):
        drive.rate([answer(0.0, 1.0), answer(2.0, 3.0)])
