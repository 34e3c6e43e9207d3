"""From generated tokens to reasoning, content and tool calls, as they arrive."""

from __future__ import annotations

from typing import Any

from .deltas import ContentDelta, Delta, ReasoningDelta, ToolCallDelta
from .tokenizer import Tokenizer

__all__ = ["ContentDelta", "Delta", "OutputStream", "ReasoningDelta", "ToolCallDelta"]


class OutputStream:
    """One answer. Push every sampled token, then finish once; the deltas of all calls together are the answer.

    A non-streaming answer is the concatenation of the same deltas. After ``stopped`` turns True the caller aborts
    the generation; further tokens are ignored.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stops: list[str] | None = None,
        reasoning_open: bool = False,
        parse_tools: bool = False,
        parse_reasoning: bool = True,
        tools: list[dict[str, Any]] | None = None,
        bare_json: bool = False,
        keep_special: bool = False,
    ) -> None:
        """``parse_tools`` and ``parse_reasoning`` False (plain completions) leave everything content.

        ``bare_json``: an answer that starts with ``{`` or ``[`` may be a call (tool_choice forced it, or
        `Prompt.bare_json`). ``keep_special`` shows control tokens as text.
        """
        raise NotImplementedError

    @property
    def stopped(self) -> bool:
        """A stop string was hit; everything from it on is left out."""
        raise NotImplementedError

    @property
    def stop_string(self) -> str | None:
        """The stop string that was hit."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """Raw text so far, tags included, cut before a stop string."""
        raise NotImplementedError

    @property
    def tool_calls(self) -> int:
        """Number of tool calls begun; finish_reason is "tool_calls" when it is above 0."""
        raise NotImplementedError

    def push(self, token: int) -> list[Delta]:
        """What became certain with this token; often nothing, because a tag or a stop string may be under way."""
        raise NotImplementedError

    def finish(self) -> list[Delta]:
        """Everything held back; a broken UTF-8 tail comes out as U+FFFD. Call once."""
        raise NotImplementedError
