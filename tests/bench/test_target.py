"""Reading a stream: what counts as text, when, and what ends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from headstart.bench import drive
from headstart.bench.target import Answer, Target
from headstart.errors import HeadstartError


def event(**chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def piece(text: str | None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}}])


def stream(*parts: bytes) -> httpx.Response:
    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return httpx.Response(200, content=body())


def ask(handler: Callable[[httpx.Request], httpx.Response], **body: Any) -> Answer:
    async def run() -> Answer:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as http:
            return await Target("http://here/v1/", {"model": "m", "seed": 1}, http).chat({"messages": [], **body})

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

    def handler(request: httpx.Request) -> httpx.Response:
        got.update(json.loads(request.content), url=str(request.url))
        return stream(*parts)

    answer = ask(handler, seed=2)
    assert (answer.text, len(answer.times), answer.source) == ("a b", 2, "attach")
    assert (answer.prompt_tokens, answer.cached, answer.uncached, answer.generated) == (10, 7, 3, 2)
    assert 0 < answer.first <= answer.total
    assert got["url"] == "http://here/v1/chat/completions"
    assert (got["model"], got["seed"], got["stream"]) == ("m", 2, True)


def test_reasoning_and_tool_calls_are_first_tokens_too() -> None:
    for delta in ({"reasoning_content": "x"}, {"tool_calls": [{"index": 0}]}):
        answer = ask(lambda _, delta=delta: stream(event(choices=[{"delta": delta}])))
        assert len(answer.times) == 1


def test_a_server_that_does_not_say_has_cached_nothing() -> None:
    reply = event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": None})
    answer = ask(lambda _: stream(reply))
    assert answer.cached == 0
    with pytest.raises(HeadstartError, match="without any text"):
        _ = answer.first


def test_errors_are_raised() -> None:
    with pytest.raises(HeadstartError, match=r"answered 503: no room"):
        ask(lambda _: httpx.Response(503, text="no room"))
    with pytest.raises(HeadstartError, match="gave up"):
        ask(lambda _: stream(piece("a"), event(error={"message": "worker died"})))


def answer(*times: float, generated: int | None = None) -> Answer:
    return Answer(0.0, list(times), usage={"completion_tokens": len(times) if generated is None else generated})


def test_speed_counts_only_the_time_in_which_all_decode() -> None:
    assert drive.rate([answer(0.0, 1.0, 2.0, 3.0)]) == pytest.approx(1.0)
    # From 1.0 to 3.0: two tokens of the first, four of the second.
    assert drive.rate([answer(0.0, 1.0, 2.0, 3.0), answer(1.0, 1.5, 2.0, 2.5, 3.0, 3.5)]) == pytest.approx(3.0)
    # Two tokens in each piece.
    assert drive.rate([answer(0.0, 1.0, 2.0, generated=6)]) == pytest.approx(2.0)
    with pytest.raises(HeadstartError, match="same time"):
        drive.rate([answer(0.0, 1.0), answer(2.0, 3.0)])
