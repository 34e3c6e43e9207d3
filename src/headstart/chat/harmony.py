"""gpt-oss answers: messages with a header that names a channel (reasoning or content) or a function."""

from __future__ import annotations

import re

from .jsoncalls import CallArguments, CallBegin
from .stops import partial_suffix
from .tags import CHANNEL, MESSAGE, START

_ENDS = ("<|end|>", START, CHANNEL)
_RECIPIENT = re.compile(r"to=(?:functions\.)?([\w.-]+)")
_REASONING = re.compile(r"<\|channel\|>\s*analysis")

# ("reasoning" | "content", text) or a part of a call.
Piece = tuple[str, str] | CallBegin | CallArguments


class HarmonyReader:
    """Feed everything from the first channel tag on. ``calls`` False shows calls as content."""

    def __init__(self, *, calls: bool) -> None:
        self._calls = calls
        self._kind = "header"
        self._text = ""

    def feed(self, text: str, *, final: bool) -> list[Piece]:
        self._text += text
        out: list[Piece] = []
        while self._header(out, final) if self._kind == "header" else self._body(out, final):
            pass
        return out

    def _header(self, out: list[Piece], final: bool) -> bool:
        at = self._text.find(MESSAGE)
        if at < 0:
            if final and self._text.strip():
                out.append(("content", self._text))
            self._text = "" if final else self._text
            return False
        header, self._text = self._text[:at], self._text[at + len(MESSAGE) :]
        recipient = _RECIPIENT.search(header)
        if recipient and self._calls:
            self._kind = "call"
            out.append(CallBegin(recipient[1]))
        else:
            self._kind = "reasoning" if _REASONING.search(header) and not recipient else "content"
        return True

    def _body(self, out: list[Piece], final: bool) -> bool:
        found = [at for tag in _ENDS if (at := self._text.find(tag)) >= 0]
        at = min(found, default=len(self._text))
        keep = 0 if final or found else partial_suffix(self._text, _ENDS)
        shown = self._text[: at - keep]
        if shown:
            out.append(CallArguments(shown) if self._kind == "call" else (self._kind, shown))
        self._text = self._text[at - keep :]
        if not found:
            return False
        self._text = self._text.removeprefix("<|end|>")
        self._kind = "header"
        return True
