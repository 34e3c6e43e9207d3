"""Tokens of texts seen before, so that a prompt that begins like an earlier one is only tokenized from there on.

It makes a long conversation cheap to tokenize, and it keeps history token-exact: an answer that comes back as the
text it was generated as gets the tokens it was generated as, so that no boundary moves.
"""

from __future__ import annotations

import re
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass

from .edges import PieceLengths, token_ends
from .places import common_prefix
from .tokenizer import Tokenizer

_LINE_START = re.compile(r"\n(?=\S)")
_LINE_DISTANCE = 512  # characters between the line starts that are remembered
_LINE_SAMPLES = ("x", "a b", "}", "; ", "é", '"', "12", "\n", "日本", ":", ".")


@dataclass(frozen=True, slots=True)
class _Seam:
    """A place where a text may be tokenized in two parts: ``tokens`` tokens are the text up to ``start``.

    Another text has the same tokens there if it is the same up to ``needs``.
    """

    start: int
    needs: int
    tokens: int


@dataclass(frozen=True, slots=True)
class _Entry:
    text: str
    tokens: array[int]
    seams: tuple[_Seam, ...]
    generated: bool  # the end is one more seam, when a special token follows it


class TokenMemory:
    """A bounded, least-recently-used memory of tokenized texts. Thread-safe.

    Texts are cut only at seams: before a special token, which tokenizers split off before anything is merged, and
    at line starts where the tokenizer was found to split there. So `encode` returns what the tokenizer returns,
    but for generated text, which keeps its own tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, lengths: PieceLengths, *, max_chars: int = 16_000_000, max_texts: int = 256
    ) -> None:
        """``max_chars`` bounds the sum of the texts' lengths; their tokens take about as many bytes."""
        self._tokenizer, self._lengths = tokenizer, lengths
        self._max_chars, self._max_texts = max_chars, max_texts
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._chars = 0
        self._lock = threading.Lock()
        self._control: dict[int, bool] = {}
        self._lines = _splits_lines(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Tokens of ``text``, with the BOS that the model wants before it. Remembers them."""
        entry, seam = self._find(text)
        start = seam.start if seam else 0
        rest = self._tokenizer.encode(text[start:], bos=not start)
        if (
            entry is not None
            and seam is not None
            and seam.needs > len(entry.text)
            and not self._is_special(rest, text, start)
        ):
            entry, seam = self._find(text, ends=False)
            start = seam.start if seam else 0
            rest = self._tokenizer.encode(text[start:], bos=not start)
        known = entry.tokens[: seam.tokens] if entry and seam else array("i")
        tokens = known + array("i", rest)
        seams = [s for s in entry.seams if s.start <= start] if entry and seam else []
        self._store(text, tokens, seams, start, len(known), generated=False)
        return tokens.tolist()

    def remember(self, text: str, tokens: list[int], generated: list[int]) -> None:
        """``generated`` was the answer to the prompt ``text`` of ``tokens``. Answers that are no text are ignored."""
        try:
            answer = b"".join(map(self._tokenizer.piece, generated)).decode()
        except (UnicodeDecodeError, ValueError):
            return
        if answer:
            self._store(text + answer, array("i", tokens) + array("i", generated), [], 0, 0, generated=True)

    def _find(self, text: str, *, ends: bool = True) -> tuple[_Entry | None, _Seam | None]:
        """The remembered text and its seam that cover the most of ``text``."""
        with self._lock:
            entries = list(reversed(self._entries.values()))
        best: tuple[_Entry | None, _Seam | None] = (None, None)
        reach = 0
        for entry in entries:
            if not text.startswith(entry.text[: reach + 1]):
                continue
            common = common_prefix(text, entry.text)
            if ends and entry.generated and common == len(entry.text) > reach and len(text) > common:
                best = (entry, _Seam(common, common + 1, len(entry.tokens)))
                reach = common
                continue
            seam = next((s for s in reversed(entry.seams) if s.needs <= common), None)
            if seam is not None and seam.start > reach:
                best, reach = (entry, seam), seam.start
        return best

    def _is_special(self, tokens: list[int], text: str, start: int) -> bool:
        if not tokens or not self._is_control(tokens[0]):
            return False
        return text.startswith(self._tokenizer.piece(tokens[0]).decode("utf-8", "replace"), start)

    def _is_control(self, token: int) -> bool:
        known = self._control.get(token)
        if known is None:
            known = self._control[token] = self._tokenizer.is_control(token)
        return known

    def _store(
        self, text: str, tokens: array[int], seams: list[_Seam], start: int, first: int, *, generated: bool
    ) -> None:
        more = self._seams(text, tokens[first:], start, first)
        if more is None:
            return
        entry = _Entry(text, tokens, (*seams, *more), generated)
        with self._lock:
            self._drop(text)
            for key in [key for key, old in self._entries.items() if _begins(entry, old)]:
                self._drop(key)
            self._entries[text] = entry
            self._chars += len(text)
            while self._entries and (self._chars > self._max_chars or len(self._entries) > self._max_texts):
                self._drop(next(iter(self._entries)))

    def _drop(self, key: str) -> None:
        if self._entries.pop(key, None) is not None:
            self._chars -= len(key)

    def _seams(self, text: str, tokens: array[int], start: int, first: int) -> list[_Seam] | None:
        """Seams of ``text`` from ``start`` on, where the ``first``-th token begins. None: the text cannot be kept."""
        part = text[start:]
        data = part.encode()
        ends = token_ends(data, tokens.tolist(), self._tokenizer, self._lengths)
        if ends is None or (ends and ends[-1] != len(data)):
            return None
        ascii_only = len(data) == len(part)
        found = []
        for index, token in enumerate(tokens):
            if self._is_control(token) and (index or first):
                at, end = (ends[index - 1] if index else 0), ends[index]
                if not ascii_only:
                    at, end = len(data[:at].decode()), len(data[:end].decode())
                found.append(_Seam(start + at, start + end, first + index))
        found += self._line_seams(part, data, ends, start, first) if self._lines else []
        return sorted(found, key=lambda seam: seam.start)

    def _line_seams(self, part: str, data: bytes, ends: list[int], start: int, first: int) -> list[_Seam]:
        found = []
        last = 0
        for match in _LINE_START.finditer(part):
            at = match.end()
            if at - last < _LINE_DISTANCE:
                continue
            byte = at if len(data) == len(part) else len(part[:at].encode())
            count = bisect_right(ends, byte)
            if count and ends[count - 1] == byte:
                found.append(_Seam(start + at, start + at + 1, first + count))
                last = at
        return found


def _begins(longer: _Entry, shorter: _Entry) -> bool:
    return longer.text.startswith(shorter.text) and longer.tokens[: len(shorter.tokens)] == shorter.tokens


def _splits_lines(tokenizer: Tokenizer) -> bool:
    """True where the tokenizer treats what follows a line end as it would treat it alone."""
    encode = tokenizer.encode
    return all(
        encode(f"{before}\n{after}") == encode(f"{before}\n") + encode(after)
        for before in _LINE_SAMPLES
        for after in _LINE_SAMPLES
        if not after[0].isspace()
    )
