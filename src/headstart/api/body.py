"""A request's body: bounded in bytes, in time and in the number of values before anything looks at them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from ..errors import RequestError
from .jobs import gone, on_pool
from .limits import MAX_VALUES
from .services import Services

Result = TypeVar("Result")

SMALL = 64 * 1024  # bytes; what a body of so many can hold is understood in a few hundredths of a second
INBOX_BODIES = 4  # largest bodies that may be on their way at once, all clients together


async def read(request: Request, services: Services, understand: Callable[[dict[str, Any]], Result]) -> Result:
    """What ``understand`` makes of the body's object.

    Raises `RequestError`: 413 as soon as there are too many bytes, 408 when they do not come, 503 when too much is
    being received at once, 400 when it is no JSON object. Large bodies are understood on a thread, so that the event
    loop has its turns in between.
    """
    with services.inbox.room(INBOX_BODIES * services.body_limit) as grow:
        body = await _receive(request, services, grow)
        most = max(MAX_VALUES, 2 * services.n_ctx)  # prompts may come as token ids
        if len(body) <= SMALL:
            return understand(_object(body, most))
        return await on_pool(request, services.parser, lambda: understand(_object(body, most)))


async def _receive(request: Request, services: Services, grow: Callable[[int], None]) -> bytes:
    limit = services.body_limit
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    clock = asyncio.get_running_loop().time
    deadline = clock() + services.body_seconds
    stream = request.stream()
    try:
        while True:
            async with asyncio.timeout_at(min(deadline, clock() + services.body_silence)):
                chunk = await anext(stream, None)
            if chunk is None:
                return b"".join(chunks)
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            grow(size)
            chunks.append(chunk)
    except ClientDisconnect:
        raise gone() from None
    except TimeoutError:
        raise RequestError("The request body did not arrive in time.", status=408, code="request_timeout") from None


def _object(body: bytes, most: int) -> dict[str, Any]:
    if _values(body, most) > most:
        raise RequestError(f"The request body holds more than {most} values.", status=413, code="request_too_large")
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(f"The request body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestError("The request body must be a JSON object.", code="invalid_json")
    return value


def _values(body: bytes, most: int) -> int:
    """About how many JSON values ``body`` holds, counted no further than needed to tell whether it's over ``most``: a
    parser stops the whole process while it makes them, on whatever thread."""
    found = _separators(body)
    if found <= most:
        return found
    # Most may stand in texts, which cost nothing.
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    quotes = bare.count(b'"')
    if quotes > 2 * most:
        return quotes // 2
    return _separators(b"".join(bare.split(b'"')[::2]))


def _separators(text: bytes) -> int:
    return sum(map(text.count, (b",", b":", b"[", b"{")))


def _too_large(limit: int) -> RequestError:
    return RequestError(f"The request body is larger than {limit} bytes.", status=413, code="request_too_large")
