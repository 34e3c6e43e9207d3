"""Bytes of tokens -> text, cut before the first stop string."""

from __future__ import annotations

import codecs


def partial_suffix(text: str, words: tuple[str, ...]) -> int:
    """Length of the longest end of ``text`` that begins, but does not complete, one of ``words``."""
    return max((_begun(text, word) for word in words), default=0)


def _begun(text: str, word: str) -> int:
    at = max(0, len(text) - len(word) + 1)
    while (at := text.find(word[0], at)) >= 0:  # rarely there, and quickly looked for: this runs for every token
        if word.startswith(text[at:]):
            return len(text) - at
        at += 1
    return 0


class StopFilter:
    """Decodes UTF-8 across pieces and holds back what may become a stop string."""

    def __init__(self, stops: list[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.hit: str | None = None

    def push(self, piece: bytes, *, final: bool = False) -> str:
        """Text that is certain now. After a hit, always empty."""
        if self.hit is not None:
            return ""
        # The decoder is never told of the end: the first bytes of a character that never came are no text.
        text = self._held + self._decoder.decode(piece)
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            _, at, self.hit = min(found)  # the one complete first, as if the text came letter by letter
            self._held = ""
            return text[:at]
        keep = 0 if final else partial_suffix(text, self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]
