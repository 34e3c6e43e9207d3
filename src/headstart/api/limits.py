"""Bounds that hold before anything is parsed, rendered or tokenized."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from ..errors import RequestError, context_length_exceeded

MAX_CHOICES = 128  # choices of one request, all prompts together
MAX_STOPS = 128
MAX_STOP_CHARS = 4096
MAX_GRAMMAR_CHARS = 512 * 1024
MAX_BIAS = 4096
MAX_BREAKERS = 128

# No vocabulary reaches this on average, so a longer text cannot fit whatever its tokens are.
CHARS_PER_TOKEN = 128


async def read_json(request: Request, limit: int) -> dict[str, Any]:
    """The body as an object. Raises `RequestError` 413 as soon as it's over ``limit`` bytes, 400 when it isn't JSON."""
    body = await _read(request, limit)
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(f"The request body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestError("The request body must be a JSON object.", code="invalid_json")
    return value


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            chunks.append(chunk)
    except ClientDisconnect:
        raise RequestError("The client left before its request was complete.", status=499) from None
    return b"".join(chunks)


def _too_large(limit: int) -> RequestError:
    return RequestError(f"The request body is larger than {limit} bytes.", status=413, code="request_too_large")


def check_text_fits(characters: int, n_ctx: int, param: str) -> None:
    """Refuse, without tokenizing, a text too long whatever its tokens are. The count named is a lower bound."""
    if characters > n_ctx * CHARS_PER_TOKEN:
        raise too_long(characters // CHARS_PER_TOKEN, n_ctx, param)


def check_tokens_fit(count: int, n_ctx: int, param: str) -> None:
    """A prompt needs one free position to generate into."""
    if count >= n_ctx:
        raise too_long(count, n_ctx, param)


def too_long(count: int, n_ctx: int, param: str) -> RequestError:
    """The refusal of a prompt of ``count`` tokens that came in the field ``param``."""
    error = context_length_exceeded(count, n_ctx)
    error.param = param
    return error
