"""The body of a plain completion request."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from .limits import MAX_CHOICES
from .wire import Int, integral
from .wire_sampling import CommonFields

Prompt = str | list[int]


class CompletionRequest(CommonFields):
    """``prompt`` is always a list here: one text or token list each."""

    prompt: list[Any]
    echo: bool | None = None
    logprobs: Annotated[Int, Field(ge=0, le=20)] | None = None
    best_of: Annotated[Int, Field(ge=1)] | None = None
    suffix: Any = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _prompts(cls, value: Any) -> list[Prompt]:
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list):
            raise ValueError("expected a string, a list of strings, a list of token ids or a list of such lists")
        if not value:
            raise ValueError("an empty list has nothing to complete")
        if isinstance(value[0], int | float):
            value = [value]
        if len(value) > MAX_CHOICES:
            raise ValueError(f"at most {MAX_CHOICES} prompts")
        return [prompt if isinstance(prompt, str) else _tokens(prompt) for prompt in value]

    @field_validator("logprobs", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        # Clients that know only the chat endpoint send a flag here.
        return (1 if value else None) if isinstance(value, bool) else value

    @field_validator("suffix")
    @classmethod
    def _no_suffix(cls, value: Any) -> Any:
        if value not in (None, ""):
            raise ValueError("infilling is not supported")
        return None

    @property
    def token_limit(self) -> int | None:
        """None where there's no limit."""
        value = self.n_predict if self.max_tokens is None else self.max_tokens
        return None if value is None or value < 0 else value


def _tokens(values: Any) -> list[int]:
    tokens = [integral(value) for value in values] if isinstance(values, list) else []
    if not tokens or any(type(token) is not int for token in tokens):
        raise ValueError("each prompt is a string or a list of token ids")
    return tokens
