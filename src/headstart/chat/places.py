"""Where messages and their parts lie in a rendered prompt, found by rendering them with marks in them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .inputs import Message


@dataclass(frozen=True, slots=True)
class Place:
    """The start or the end of one part of a message's content. ``part`` None is the whole content."""

    message: int
    edge: Literal["start", "end"]
    part: int | None = None


class PlaceFinder:
    """Puts words that no text holds into the messages, renders, and looks where they went."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(8)  # clients cannot write what they cannot guess
        self._pattern = re.compile(f"q{self._nonce}x([0-9]{{3}})q")

    def find(
        self, render: Callable[[list[Message]], str], messages: list[Message], text: str, places: list[Place]
    ) -> tuple[list[int | None], int]:
        """Offsets in ``text`` of ``places`` (None where one isn't shown), and where ``render`` without marks ends.

        ``render`` leaves the generation prompt out; ``text`` is the whole prompt. Each offset is such that the text
        before it does not depend on what stands at the place.
        """
        plain, offsets = self._split(render(self._marked(messages, list(enumerate(places)))))
        if text.startswith(plain):
            return [offsets.get(number) for number in range(len(places))], len(plain)
        # The marks changed what the template does (it trims, or looks into contents): one at a time.
        found: list[int | None] = []
        for number, place in enumerate(places):
            alone, where = self._split(render(self._marked(messages, [(number, place)])))
            at = where.get(number)
            found.append(None if at is None else common_prefix(text, alone[:at]))
        return found, common_prefix(text, render(messages))

    def _marked(self, messages: list[Message], places: list[tuple[int, Place]]) -> list[Message]:
        out = list(messages)
        for number, place in places:
            word = f"q{self._nonce}x{number:03d}q"
            message = out[place.message]
            parts = list(message["content"]) or [""]
            if place.edge == "start":
                parts[place.part or 0] = word + parts[place.part or 0]
            else:
                index = len(parts) - 1 if place.part is None else place.part
                parts[index] += word
            out[place.message] = {**message, "content": parts}
        return out

    def _split(self, marked: str) -> tuple[str, dict[int, int]]:
        """The text without the marks, and the offset of each mark's first showing in it."""
        pieces = self._pattern.split(marked)
        offsets: dict[int, int] = {}
        at = len(pieces[0])
        for index in range(1, len(pieces), 2):
            offsets.setdefault(int(pieces[index]), at)
            at += len(pieces[index + 1])
        return "".join(pieces[::2]), offsets


def common_prefix(left: str, right: str) -> int:
    """Number of equal characters at the start, by halving: comparing slices is much faster than a loop."""
    if left.startswith(right) or right.startswith(left):
        return min(len(left), len(right))
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
