"""Answer text -> reasoning, content and tool calls, as it arrives."""

from __future__ import annotations

import secrets
from typing import Any

from .deltas import ContentDelta, Delta, ReasoningDelta, ToolCallDelta, merged
from .harmony import HarmonyReader
from .jsoncalls import CallBegin, CallEvent
from .readers import Reader, reader_for
from .stops import partial_suffix
from .tags import CHANNEL, MISTRAL, OPENERS, START, THINK, XML
from .xmlcalls import schemas_of


class AnswerParser:
    """Feed text, then end once. Everything fed comes out again, as one kind or another; of tags and the blanks around
    them only what would be written again when the answer is rendered is left out."""

    def __init__(
        self, *, reasoning: bool, reasoning_open: bool, calls: bool, tools: list[dict[str, Any]], bare_json: bool
    ) -> None:
        self._calls, self._bare = calls, calls and bare_json
        functions = [tool["function"] for tool in tools if isinstance(tool.get("function"), dict)]
        self._known = frozenset(str(function.get("name")) for function in functions)
        self._schemas = schemas_of(functions)
        self._mode = "reasoning" if reasoning and reasoning_open else "start" if reasoning else "content"
        self._close = "</think>"
        self._fresh = True  # nothing but blanks so far in this mode
        self._after_reasoning = False
        self._text = ""
        self._opener = ""
        self._raw = ""  # what is shown should the block turn out to be no call
        self._began = False  # the block has given a call
        self._reader: Reader | None = None
        self._harmony: HarmonyReader | None = None
        self._out: list[Delta] = []
        self.begun = 0
        self._modes = {
            "start": self._start,
            "harmony": self._channels,
            "reasoning": self._reason,
            "content": self._content,
            "call": self._call,
        }

    def feed(self, text: str) -> list[Delta]:
        self._text += text
        return self._run(final=False)

    def end(self) -> list[Delta]:
        return self._run(final=True)

    def _run(self, *, final: bool) -> list[Delta]:
        while self._modes[self._mode](final):
            pass
        out, self._out = self._out, []
        return merged(out)

    # Each mode deals with the text as far as it can; True asks for another round, in the mode it has set.

    def _start(self, final: bool) -> bool:
        body = self._text.lstrip()
        tag = next((tag for tag in THINK if body.startswith(tag)), None)
        if tag is not None:
            self._text, self._close, self._mode = body[len(tag) :], THINK[tag], "reasoning"
            return True
        if body.startswith((CHANNEL, START + "assistant")):
            self._harmony, self._text, self._mode = HarmonyReader(calls=self._calls), body, "harmony"
            return True
        if not final and any(tag.startswith(body) for tag in (*THINK, CHANNEL, START + "assistant")):
            return False
        self._mode = "content"
        return True

    def _channels(self, final: bool) -> bool:
        assert self._harmony is not None
        for piece in self._harmony.feed(self._text, final=final):
            if isinstance(piece, tuple):
                self._emit(ReasoningDelta if piece[0] == "reasoning" else ContentDelta, piece[1])
            else:
                self._calls_out([piece])
        self._text = ""
        return False

    def _reason(self, final: bool) -> bool:
        if self._fresh:
            body = self._text.lstrip()
            if body.startswith("<think>"):  # the prompt had opened it already
                body = body.removeprefix("<think>").lstrip()
            elif not final and "<think>".startswith(body):
                return False
            self._text = body
            self._fresh = not body
        at = self._text.find(self._close)
        if at >= 0:
            self._emit(ReasoningDelta, self._text[:at].rstrip())
            self._text = self._text[at + len(self._close) :].lstrip()
            self._mode, self._fresh, self._after_reasoning = "content", True, True
            return True
        keep = 0 if final else partial_suffix(self._text, (self._close,))
        shown = self._text[: len(self._text) - keep]
        shown = shown if final else shown.rstrip()
        self._emit(ReasoningDelta, shown)
        self._text = self._text[len(shown) :]
        return False

    def _content(self, final: bool) -> bool:
        if self._fresh and self._after_reasoning:
            self._text = self._text.lstrip()
        body = self._text.lstrip()
        if self._bare and self._fresh and body[:1] in ("{", "[") and not body.startswith(MISTRAL):
            if not final and MISTRAL.startswith(body):
                return False
            return self._open("", self._text[: len(self._text) - len(body)], len(self._text) - len(body))
        found = [(at, opener) for opener in OPENERS if (at := self._text.find(opener)) >= 0] if self._calls else []
        if found:
            at, opener = min(found)
            before = self._text[:at]
            blank = self._fresh and not before.strip()
            shown = "" if blank else before.removesuffix("\n")
            self._emit(ContentDelta, shown)
            if opener == XML:  # its reader wants all of it
                return self._open("", before[len(shown) :], at)
            return self._open(opener, before[len(shown) :] + opener, at + len(opener))
        if final:
            if not (self.begun and self._fresh and not body):
                self._emit(ContentDelta, self._text)
            self._text = ""
            return False
        keep = self._kept()
        shown = self._text[: len(self._text) - keep]
        self._emit(ContentDelta, shown)
        self._text = self._text[len(shown) :]
        self._fresh = self._fresh and not shown
        return False

    def _kept(self) -> int:
        """Characters at the end that may belong to a call: a tag under way, and the line end before it."""
        if self._fresh and not self._text.strip():
            return len(self._text)
        if not self._calls:
            return 0
        keep = partial_suffix(self._text, OPENERS)
        before = self._text[: len(self._text) - keep]
        if self._fresh and not before.strip():
            return len(self._text)
        return keep + before.endswith("\n")

    def _open(self, opener: str, raw: str, used: int) -> bool:
        self._opener, self._raw, self._text = opener, raw, self._text[used:]
        self._mode, self._reader, self._began = "call", None, False
        return True

    def _call(self, final: bool) -> bool:
        if self._reader is None:
            self._reader = reader_for(self._opener, self._text, self._schemas, self._known, final=final)
            if self._reader is None:
                return False
        step = self._reader.read(self._text, final=final)
        self._raw = "" if step.events or self._began else self._raw + self._text[: step.used]
        self._began = self._began or bool(step.events)
        self._text = self._text[step.used :]
        self._calls_out(step.events)
        if step.status == "more" and not final:
            return False
        if step.status == "broken":
            taken = 0 if self._opener else 1  # so that the same text isn't tried again
            self._emit(ContentDelta, self._raw + self._text[:taken])
            self._text = self._text[taken:]
        self._mode, self._fresh = "content", step.status != "broken"
        return True

    def _calls_out(self, events: list[CallEvent]) -> None:
        for event in events:
            if isinstance(event, CallBegin):
                self._out.append(ToolCallDelta(self.begun, "call_" + secrets.token_hex(12), event.name, ""))
                self.begun += 1
            elif event.text:
                self._out.append(ToolCallDelta(self.begun - 1, None, None, event.text))

    def _emit(self, kind: type[ContentDelta] | type[ReasoningDelta], text: str) -> None:
        if text:
            self._out.append(kind(text))
