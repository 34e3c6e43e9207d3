"""Bounds that hold before anything is parsed, rendered or tokenized."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import RequestError, context_length_exceeded

MAX_CHOICES = 128  # choices of one request, all prompts together
MAX_STOPS = 128
MAX_STOP_CHARS = 4096
MAX_GRAMMAR_CHARS = 192 * 1024
MAX_BIAS = 4096
MAX_BREAKERS = 8
MAX_MODEL_CHARS = 1024  # it comes back in every chunk
MAX_VALUES = 1_000_000  # of one body: texts, numbers, members
MAX_ITEMS = 65_536  # tools, parts or calls of one request

FREE_BYTES = 256 * 1024  # of each body, beside what all may hold
RETRY_SECONDS = 5

# No vocabulary reaches this on average, so a longer text cannot fit whatever its tokens are.
CHARS_PER_TOKEN = 128


class Inbox:
    """Counts the bytes of bodies that are being received, all clients together."""

    def __init__(self) -> None:
        self._held = 0

    @contextmanager
    def room(self, most: int) -> Iterator[Callable[[int], None]]:
        """Room for one body, to be told its size as it grows. Raises `RequestError` 503 once all have ``most``.

        Small bodies do not count, so that whoever sends large ones slowly keeps nobody else out.
        """
        mine = 0

        def grow(size: int) -> None:
            nonlocal mine
            more = max(0, size - FREE_BYTES) - mine
            if self._held + more > most:
                raise RequestError(
                    "Too many large requests are being received at once.",
                    status=503,
                    kind="unavailable_error",
                    code="overloaded",
                    retry_after=RETRY_SECONDS,
                )
            self._held += more
            mine += more

        try:
            yield grow
        finally:
            self._held -= mine


def check_text_fits(characters: int, n_ctx: int, param: str) -> None:
    """Refuse, without tokenizing, a text too long whatever its tokens are. The count named is a lower bound."""
    if characters > n_ctx * CHARS_PER_TOKEN:
        raise too_long(characters // CHARS_PER_TOKEN, n_ctx, param, at_least=True)


def check_tokens_fit(count: int, n_ctx: int, param: str) -> None:
    """A prompt needs one free position to generate into."""
    if count >= n_ctx:
        raise too_long(count, n_ctx, param)


def too_long(count: int, n_ctx: int, param: str, *, at_least: bool = False) -> RequestError:
    """The refusal of a prompt of ``count`` tokens that came in the field ``param``."""
    error = context_length_exceeded(count, n_ctx, at_least=at_least)
    error.param = param
    return error


def check_chat_counts(body: dict[str, Any], n_ctx: int) -> None:
    """Refuse, before each of them is looked at, more messages, parts, calls or tools than make sense."""
    messages = body.get("messages")
    if isinstance(messages, list):
        if len(messages) > n_ctx:
            raise too_long(len(messages), n_ctx, "messages")  # each is a token at least
        for field in ("content", "tool_calls"):
            lists = (message.get(field) for message in messages if isinstance(message, dict))
            _check_count(sum(len(value) for value in lists if isinstance(value, list)), f"messages[].{field}")
    tools = body.get("tools")
    if isinstance(tools, list):
        _check_count(len(tools), "tools")


def _check_count(count: int, param: str) -> None:
    if count > MAX_ITEMS:
        raise RequestError(
            f"Invalid value for '{param}': {count} entries, at most {MAX_ITEMS} are taken",
            param=param,
            code="invalid_value",
        )


def check_prompt_counts(body: dict[str, Any], n_ctx: int) -> None:
    """Refuse prompts of more tokens than the context has before each token is looked at."""
    prompt = body.get("prompt")
    if not isinstance(prompt, list) or not prompt:
        return
    for one in [prompt] if isinstance(prompt[0], int | float) else prompt[:MAX_CHOICES]:
        if isinstance(one, list):
            check_tokens_fit(len(one), n_ctx, "prompt")
