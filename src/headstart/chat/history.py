"""Tokens of texts seen before, so that a prompt that begins like an earlier one is only tokenized from there on.

It makes a long conversation cheap to tokenize, and it keeps history token-exact: an answer that comes back as the
text it was generated as gets the tokens it was generated as, so that no boundary moves. What one cache salt's clients
sent and got is never used for another's. Clients of one salt cannot make another's special tokens letters, nor letters
special tokens: see `TokenMemory.remember`.
"""

from __future__ import annotations

import re
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cache

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
    salt: str
    text: str
    tokens: array[int]
    seams: tuple[_Seam, ...]
    generated: bool  # the end is one more seam, when a special token follows it

    def seams_to(self, last: _Seam) -> tuple[_Seam, ...]:
        """Those up to ``last``, which is one of them or the text's end."""
        return tuple(seam for seam in self.seams if seam.start <= last.start) if last.tokens else ()


_NOTHING, _START = _Entry("", "", array("i"), (), generated=False), _Seam(0, 0, 0)


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
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()  # by salt and text
        self._chars = 0
        self._lock = threading.Lock()
        self._is_control = cache(tokenizer.is_control)
        # Runs of white space, which some models have as special tokens, are text like any other.
        self._is_marker = cache(lambda token: tokenizer.is_special(token) and bool(tokenizer.piece(token).strip()))
        self._lines = _splits_lines(tokenizer)

    def encode(self, text: str, salt: str = "") -> list[int]:
        """Tokens of ``text``, with the BOS that the model wants before it. Remembers them."""
        entry, seam, rest = self._split(text, salt, ends=True)
        if seam.needs > len(entry.text) and not self._is_special(rest, text, seam.start):
            entry, seam, rest = self._split(text, salt, ends=False)
        tokens = entry.tokens[: seam.tokens] + rest
        self._store(_Entry(salt, text, tokens, entry.seams_to(seam), generated=False), seam)
        return tokens.tolist()

    def remember(self, text: str, tokens: list[int], generated: list[int], salt: str = "") -> None:
        """``generated`` was the answer to the prompt ``text`` of ``tokens``. Answers that are no text are ignored.

        So is one that spells a special token in letters, or the reverse: a grammar and biases can make a model write
        any text in any tokens, and the tokens will stand in everybody's prompt that begins with the same text.
        """
        try:
            answer = b"".join(map(self._tokenizer.piece, generated)).decode()
        except (UnicodeDecodeError, ValueError):
            return
        whole, kept = text + answer, array("i", tokens) + array("i", generated)
        entry, seam, rest = self._split(whole, salt, ends=False)
        if kept[: seam.tokens] != entry.tokens[: seam.tokens]:  # the prompt holds an answer that this entry does not
            rest, entry, seam = entry.tokens[: seam.tokens] + rest, _NOTHING, _START
        if answer and self._markers(kept[seam.tokens :]) == self._markers(rest):
            self._store(_Entry(salt, whole, kept, entry.seams_to(seam), generated=True), seam)

    def _markers(self, tokens: array[int]) -> list[int]:
        return list(filter(self._is_marker, tokens))

    def _split(self, text: str, salt: str, *, ends: bool) -> tuple[_Entry, _Seam, array[int]]:
        """What `_find` finds, and the tokens of the rest of ``text``."""
        entry, seam = self._find(text, salt, ends=ends)
        return entry, seam, array("i", self._tokenizer.encode(text[seam.start :], bos=not seam.start))

    def _find(self, text: str, salt: str, *, ends: bool) -> tuple[_Entry, _Seam]:
        """The remembered text and its seam that cover the most of ``text``. ``ends``: ends of answers are seams."""
        with self._lock:
            entries = [entry for entry in reversed(self._entries.values()) if entry.salt == salt]
        best, reach = (_NOTHING, _START), 0
        for entry in entries:
            if not text.startswith(entry.text[: reach + 1]):
                continue
            common = common_prefix(text, entry.text)
            if ends and entry.generated and common == len(entry.text) > reach and len(text) > common:
                best, reach = (entry, _Seam(common, common + 1, len(entry.tokens))), common
                continue
            seam = next((s for s in reversed(entry.seams) if s.needs <= common), _START)
            if seam.start > reach:
                best, reach = (entry, seam), seam.start
        return best

    def _is_special(self, tokens: array[int], text: str, start: int) -> bool:
        if not tokens or not self._is_control(tokens[0]):
            return False
        return text.startswith(self._tokenizer.piece(tokens[0]).decode("utf-8", "replace"), start)

    def _store(self, entry: _Entry, known: _Seam) -> None:
        """Keep ``entry``, whose seams up to ``known`` it has already."""
        more = self._seams(entry.text, entry.tokens[known.tokens :], known.start, known.tokens)
        if more is None:
            return
        entry = replace(entry, seams=(*entry.seams, *more))
        key = (entry.salt, entry.text)
        with self._lock:
            self._drop(key)
            for old in [old for old, other in self._entries.items() if _begins(entry, other)]:
                self._drop(old)
            self._entries[key] = entry
            self._chars += _size(key)
            while self._entries and (self._chars > self._max_chars or len(self._entries) > self._max_texts):
                self._drop(next(iter(self._entries)))

    def _drop(self, key: tuple[str, str]) -> None:
        if self._entries.pop(key, None) is not None:
            self._chars -= _size(key)

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
    if longer.salt != shorter.salt or not longer.text.startswith(shorter.text):
        return False
    return longer.tokens[: len(shorter.tokens)] == shorter.tokens


def _size(key: tuple[str, str]) -> int:
    return len(key[0]) + len(key[1])


def _splits_lines(tokenizer: Tokenizer) -> bool:
    """True where the tokenizer treats what follows a line end as it would treat it alone."""
    encode = tokenizer.encode
    return all(
        encode(f"{before}\n{after}") == encode(f"{before}\n") + encode(after)
        for before in _LINE_SAMPLES
        for after in _LINE_SAMPLES
        if not after[0].isspace()
    )
