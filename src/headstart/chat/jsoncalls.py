"""Tool calls written as JSON: Hermes and Qwen, Llama 3, Mistral, or bare."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .callobject import JsonScanner, call_of, unescaped

Status = Literal["more", "done", "broken"]


@dataclass(frozen=True, slots=True)
class CallBegin:
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    text: str


CallEvent = CallBegin | CallArguments


@dataclass(frozen=True, slots=True)
class Step:
    """``used`` characters are dealt with. "broken": what is left, the opener before it included, is no call."""

    events: list[CallEvent]
    used: int
    status: Status


# Names are bounded, as they are looked for again with every token.
_HEAD = re.compile(r'\{\s*"name"\s*:\s*"((?:[^"\\]|\\.){1,256})"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
_NAMED = re.compile(r"\s*([\w.-]{1,256})(?:\[CALL_ID\][\w-]*)?(?:\[ARGS\])?\s*(?=\{)")
_NAME_UNDER_WAY = re.compile(r"\s*[\w.-]{1,256}(?:\[[\w\]-]{0,64})?\s*$")


class JsonCalls:
    """Reads the calls after an opening tag, up to ``closer`` ("" where there is none).

    A call whose name comes first streams its arguments as they arrive, verbatim; others come whole. ``known`` limits
    the names (None takes any). ``named`` also takes Mistral's ``name[ARGS]{...}``.
    """

    def __init__(self, closer: str, *, named: bool = False, known: frozenset[str] | None = None) -> None:
        self._closer, self._named, self._known = closer, named, known
        self._calls = 0
        self._whole: JsonScanner | None = None  # over an object that is held back
        self._scanned = 0
        self._arguments: JsonScanner | None = None  # over arguments that stream
        self._rest: JsonScanner | None = None  # over what follows them in their object
        self._wrapped = False  # the arguments are a member of an object

    def read(self, text: str, *, final: bool) -> Step:
        """``text`` is everything not used yet."""
        events: list[CallEvent] = []
        used = 0
        while True:
            step = self._one(text[used:], final)
            events += step.events
            used += step.used
            if step.status == "done" or step.status == "broken" or not (step.used or step.events):
                return Step(events, used, step.status)

    def _one(self, text: str, final: bool) -> Step:
        if self._arguments is not None:
            return self._stream(text)
        if self._rest is not None:
            end = self._rest.feed(text)
            self._rest = self._rest if end < 0 else None
            return Step([], len(text) if end < 0 else end, "more")
        blank = len(text) - len(text.lstrip(" \t\r\n,;["))
        body = text[blank:]
        if self._closer and body.startswith(self._closer):
            return Step([], blank + len(self._closer), "done" if self._calls else "broken")
        if body.startswith("]"):
            return Step([], blank + 1, "more" if self._closer or not self._calls else "done")
        if body.startswith("{"):
            return self._object(body, blank, final)
        if self._named and (match := _NAMED.match(body)):
            return self._begin(match[1], blank + match.end(), wrapped=False)
        waiting = not body or self._closer.startswith(body) or (self._named and _NAME_UNDER_WAY.fullmatch(body))
        if waiting and not final:
            return Step([], 0, "more")
        return Step([], 0, "done" if self._calls else "broken")

    def _begin(self, name: str, used: int, *, wrapped: bool) -> Step:
        self._calls += 1
        self._arguments, self._wrapped, self._whole = JsonScanner(), wrapped, None
        return Step([CallBegin(name)], used, "more")

    def _stream(self, text: str) -> Step:
        assert self._arguments is not None
        end = self._arguments.feed(text)
        if end < 0:
            return Step([CallArguments(text)] if text else [], len(text), "more")
        self._arguments = None
        self._rest = JsonScanner(depth=1) if self._wrapped else None
        return Step([CallArguments(text[:end])], end, "more")

    def _object(self, body: str, blank: int, final: bool) -> Step:
        if self._whole is None:
            self._whole, self._scanned = JsonScanner(), 0
        end = self._whole.feed(body, self._scanned)
        self._scanned = len(body)
        match = _HEAD.match(body)
        name = unescaped(match[1]) if match else None
        if match and name and (self._known is None or name in self._known):
            return self._begin(name, blank + match.end(), wrapped=True)
        if end < 0:
            return Step([], 0, "broken" if final else "more")
        self._whole = None
        call = call_of(body[:end])
        if call is None or (self._known is not None and call[0] not in self._known):
            return Step([], 0, "broken")
        self._calls += 1
        return Step([CallBegin(call[0]), CallArguments(call[1])], blank + end, "more")
