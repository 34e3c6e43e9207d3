"""Answer text -> reasoning, content and tool calls, as it arrives."""

from __future__ import annotations

import secrets
from typing import Any

from .deltas import ContentDelta, Delta, ReasoningDelta, ToolCallDelta, merged
from .jsoncalls import CallBegin, JsonCalls, Step
from .stops import partial_suffix
from .xmlcalls import OPENER as XML
from .xmlcalls import XmlCalls

THINK = {"<think>": "</think>", "[THINK]": "[/THINK]"}
_HERMES, _MISTRAL, _LLAMA = "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>"
_OPENERS = (_HERMES, _MISTRAL, _LLAMA, XML)
# Tags that some models have as control tokens, whose text is otherwise not shown.
MARKERS = frozenset((*THINK, *THINK.values(), _HERMES, "</tool_call>", _MISTRAL, _LLAMA, "[ARGS]", "[CALL_ID]"))


class AnswerParser:
    """Feed text, then end once. Everything fed comes out again, as one kind or another; of tags and the blanks around
    them only what would be written again when the answer is rendered is left out."""

    def __init__(
        self, *, reasoning: bool, reasoning_open: bool, calls: bool, tools: list[dict[str, Any]], bare_json: bool
    ) -> None:
        self._calls, self._bare = calls, calls and bare_json
        functions = [tool["function"] for tool in tools if isinstance(tool.get("function"), dict)]
        self._known = frozenset(str(function.get("name")) for function in functions)
        self._schemas = {str(function.get("name")): _properties(function) for function in functions}
        self._mode = "reasoning" if reasoning and reasoning_open else "start" if reasoning else "content"
        self._close = "</think>"
        self._fresh = True  # nothing but blanks so far in this mode
        self._after_reasoning = False
        self._text = ""
        self._opener = ""
        self._raw = ""  # what is shown should the block turn out to be no call
        self._began = False  # the block has given a call
        self._reader: JsonCalls | XmlCalls | None = None
        self._out: list[Delta] = []
        self.begun = 0

    def feed(self, text: str) -> list[Delta]:
        self._text += text
        return self._run(final=False)

    def end(self) -> list[Delta]:
        return self._run(final=True)

    def _run(self, *, final: bool) -> list[Delta]:
        steps = {"start": self._start, "reasoning": self._reason, "content": self._content, "call": self._call}
        while steps[self._mode](final):
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
        if not final and any(tag.startswith(body) for tag in THINK):
            return False
        self._mode = "content"
        return True

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
        if self._bare and self._fresh and body[:1] in ("{", "[") and not body.startswith(_MISTRAL):
            if not final and _MISTRAL.startswith(body):
                return False
            return self._open("", self._text[: len(self._text) - len(body)], len(self._text) - len(body))
        found = [(at, opener) for opener in _OPENERS if (at := self._text.find(opener)) >= 0] if self._calls else []
        if found:
            at, opener = min(found)
            before = self._text[:at]
            blank = self._fresh and not before.strip()
            shown = "" if blank else before.removesuffix("\n")
            self._emit(ContentDelta, shown)
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
        keep = partial_suffix(self._text, _OPENERS)
        before = self._text[: len(self._text) - keep]
        if self._fresh and not before.strip():
            return len(self._text)
        return keep + before.endswith("\n")

    def _open(self, opener: str, raw: str, used: int) -> bool:
        self._opener, self._raw, self._text = opener, raw, self._text[used:]
        self._mode, self._reader, self._began = "call", None, False
        return True

    def _call(self, final: bool) -> bool:
        if self._reader is None and not self._choose(final):
            return False
        assert self._reader is not None
        step = self._reader.read(self._text, final=final)
        self._raw = "" if step.events or self._began else self._raw + self._text[: step.used]
        self._began = self._began or bool(step.events)
        self._text = self._text[step.used :]
        self._calls_out(step)
        if step.status == "more" and not final:
            return False
        if step.status == "broken":
            taken = 0 if self._opener else 1  # so that the same text isn't tried again
            self._emit(ContentDelta, self._raw + self._text[:taken])
            self._text = self._text[taken:]
        self._mode, self._fresh = "content", step.status != "broken"
        return True

    def _choose(self, final: bool) -> bool:
        """The reader for what follows the opener; False while that cannot be told."""
        body = self._text.lstrip()
        if self._opener == XML:
            self._text, self._opener = XML + self._text, ""
            self._raw = self._raw.removesuffix(XML)
            self._reader = XmlCalls(self._schemas)
        elif self._opener == _HERMES and body.startswith(XML):
            self._reader = XmlCalls(self._schemas)
        elif self._opener == _HERMES and XML.startswith(body) and not final:
            return False
        elif self._opener == _HERMES:
            self._reader = JsonCalls("</tool_call>")
        elif self._opener == _MISTRAL:
            self._reader = JsonCalls("", named=True)
        else:
            self._reader = JsonCalls("", known=self._known)
        return True

    def _calls_out(self, step: Step) -> None:
        for event in step.events:
            if isinstance(event, CallBegin):
                self._out.append(ToolCallDelta(self.begun, "call_" + secrets.token_hex(12), event.name, ""))
                self.begun += 1
            elif event.text:
                self._out.append(ToolCallDelta(self.begun - 1, None, None, event.text))

    def _emit(self, kind: type[ContentDelta] | type[ReasoningDelta], text: str) -> None:
        if text:
            self._out.append(kind(text))


def _properties(function: dict[str, Any]) -> dict[str, Any]:
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return properties if isinstance(properties, dict) else {}
