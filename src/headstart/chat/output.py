"""From generated tokens to reasoning, content and tool calls, as they arrive."""

from __future__ import annotations

from typing import Any

from .deltas import ContentDelta, Delta, ReasoningDelta, ToolCallDelta
from .parse import AnswerParser
from .stops import StopFilter
from .tags import CHANNEL, HARMONY, MARKERS, START
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
        self._tokenizer = tokenizer
        self._keep_special, self._markers = keep_special, parse_tools or parse_reasoning
        self._stops = StopFilter(stops or [])
        self._parser = AnswerParser(
            reasoning=parse_reasoning,
            reasoning_open=reasoning_open,
            calls=parse_tools,
            tools=tools or [],
            bare_json=bare_json,
        )
        self._raw: list[str] = []
        self._first = True  # nothing shown yet
        self._channels = False  # the answer is one of channels

    @property
    def stopped(self) -> bool:
        """A stop string was hit; everything from it on is left out."""
        return self._stops.hit is not None

    @property
    def stop_string(self) -> str | None:
        """The stop string that was hit."""
        return self._stops.hit

    @property
    def text(self) -> str:
        """Raw text so far, tags included, cut before a stop string; what may become one is not in it yet."""
        return "".join(self._raw)

    @property
    def tool_calls(self) -> int:
        """Number of tool calls begun; finish_reason is "tool_calls" when it is above 0."""
        return self._parser.begun

    def push(self, token: int) -> list[Delta]:
        """What became certain with this token; often nothing, because a tag or a stop string may be under way."""
        text = self._stops.push(self._shown(token))
        self._raw.append(text)
        return self._parser.feed(text) if text else []

    def finish(self) -> list[Delta]:
        """Everything held back; a broken UTF-8 tail comes out as U+FFFD. Call once."""
        text = self._stops.push(b"", final=True)
        self._raw.append(text)
        deltas = self._parser.feed(text) if text else []
        return deltas + self._parser.end()

    def _shown(self, token: int) -> bytes:
        piece = self._tokenizer.piece(token)
        if self._keep_special or not self._tokenizer.is_control(token):
            self._first = False
            return piece
        tag = piece.decode("utf-8", "replace")
        self._channels = self._channels or (self._first and tag in (CHANNEL, START))
        shown = self._markers and (tag in MARKERS or (self._channels and tag in HARMONY))
        self._first = self._first and not shown
        return piece if shown else b""
