"""Answers on the wire: streamed or whole, given up at once when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..chat.deltas import Delta, merged
from ..types import FinishReason
from .choice import Choice
from .dialect import Dialect
from .errors import error_response, openai_body, problem_of
from .fanout import Fanout
from .jobs import Job, hung_up
from .respond import account, encode, envelope, json_response, progress_of, timings_of, usage_of
from .services import Services

KEEPALIVE = b": keepalive\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Answer(Response):
    """The response to ``job``. It owns the generations: they run while it's being sent, and no longer."""

    def __init__(self, job: Job, dialect: Dialect, services: Services) -> None:
        super().__init__()
        self._job, self._dialect, self._services = job, dialect, services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_gone(self._answer(scope, receive, send), receive)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        services = self._services
        try:
            tick = services.keepalive / 2 if self._job.stream else None
            async with Fanout(services.client, self._job.works, tick) as replies:
                if self._job.stream:
                    await replies.peek(services.peek)
                    await self._stream(send, replies)
                    return
                whole = json_response(await collect(self._job, self._dialect, services, replies))
        except OSError:  # the connection broke while sending
            return
        except Exception as error:
            whole = error_response(error)
        await whole(scope, receive, send)

    async def _stream(self, send: Send, replies: Fanout) -> None:
        head = Response(headers=HEADERS, media_type="text/event-stream")
        del head.headers["content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": head.raw_headers})
        async with aclosing(frames(self._job, self._dialect, self._services, replies)) as parts:
            async for frame in parts:
                await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def until_gone(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run ``work``; cancel it, and wait until it has cleaned up, when the client leaves first."""
    watcher = asyncio.create_task(hung_up(receive))
    await asyncio.sleep(0)
    if watcher.done():  # it left while its prompt was being read
        work.close()
        return
    main = asyncio.create_task(work)
    try:
        await asyncio.wait({main, watcher}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watcher.cancel()
        if not main.done():
            main.cancel()
        await asyncio.gather(main, watcher, return_exceptions=True)
    if not main.cancelled():
        main.result()


def begin(job: Job, services: Services) -> list[Choice]:
    """The job's choices before any reply."""
    return [Choice(work, job.output(i), services.tokenizer, job.top) for i, work in enumerate(job.works)]


async def follow(
    job: Job, services: Services, choices: list[Choice], replies: Fanout
) -> tuple[dict[int, list[Delta]], bool]:
    """The replies that are there folded into their choices: what each one gained, and whether there was a tick."""
    gained: dict[int, list[Delta]] = {}
    items = await replies.next()
    for index, reply in filter(None, items):
        choice = choices[index]
        stopped = choice.output.stopped
        gained.setdefault(index, []).extend(choice.feed(reply))
        if choice.output.stopped and not stopped and choice.finished is None:
            # Not by closing the iterator: the worker's last message has the timings.
            await services.client.abort(job.works[index].id, FinishReason.STOP)
        if choice.finished is not None and job.keep is not None:
            services.pool.submit(job.keep, choice.tokens)
    return gained, None in items


async def collect(job: Job, dialect: Dialect, services: Services, replies: Fanout) -> dict[str, Any]:
    """The whole body. Raises what any of the choices failed with."""
    choices = begin(job, services)
    deltas: list[list[Delta]] = [[] for _ in choices]
    while not replies.ended():
        gained, _ = await follow(job, services, choices, replies)
        for index, found in gained.items():
            deltas[index] += found
    entries = [dialect.whole(i, choice, deltas[i], choice.take_probs()) for i, choice in enumerate(choices)]
    body = envelope(job, services, dialect.whole_kind, entries)
    return {**body, "usage": usage_of(job, choices), **account(job, choices)}


async def frames(job: Job, dialect: Dialect, services: Services, replies: Fanout) -> AsyncGenerator[bytes]:
    """Server-sent events up to [DONE]; a failure is the last event instead. What is there at once goes out at once."""
    held = b""
    try:
        async with aclosing(_events(job, dialect, services, replies)) as steps:
            async for events in steps:
                held += (
                    b"".join(b"data: " + encode(event) + b"\n\n" for event in events)
                    if events is not None
                    else KEEPALIVE
                )
                if held and not replies.ended():  # the last chunk goes with [DONE]
                    yield held
                    held = b""
        yield held + DONE
    except Exception as error:
        yield held + b"data: " + encode(openai_body(problem_of(error))) + b"\n\n"


async def _events(
    job: Job, dialect: Dialect, services: Services, replies: Fanout
) -> AsyncGenerator[list[dict[str, Any]] | None]:
    """The chunks of what came together; None where the client should hear that we're still there."""

    def chunk(*entries: dict[str, Any], **extra: Any) -> dict[str, Any]:
        return {**envelope(job, services, dialect.chunk_kind, list(entries)), **extra}

    def chunks_of(index: int, deltas: list[Delta]) -> Iterator[dict[str, Any]]:
        choice = choices[index]
        if job.progress and (progress := choice.take_progress()) is not None:  # of the prompt: before any text
            yield chunk(dialect.silence(index), prompt_progress=progress_of(progress))
        extra = {"timings": timings_of(choice.timings)} if job.timings_per_token else {}
        if deltas:
            for entry in dialect.pieces(index, merged(deltas), choice.take_probs()):
                yield chunk(entry, **extra)
        if choice.finished is not None:
            yield chunk(dialect.ending(index, choice, choice.take_probs()))

    choices = begin(job, services)
    openings = [dialect.opening(index) for index in range(len(choices))]
    yield [chunk(entry) for entry in openings if entry is not None]
    silent = False  # since the last tick
    while not replies.ended():
        gained, ticked = await follow(job, services, choices, replies)
        chunks = [chunk for index, deltas in gained.items() for chunk in chunks_of(index, deltas)]
        if replies.ended() and not job.include_usage:
            chunks[-1] |= account(job, choices)
        if chunks:
            yield chunks
        elif ticked and silent:
            yield None
        silent = not chunks and (silent or ticked)
    if job.include_usage:
        yield [chunk(usage=usage_of(job, choices), **account(job, choices))]
