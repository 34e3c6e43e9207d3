"""Character offsets of a text -> token counts, at edges that no continuation of the text can move."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate

from .tokenizer import Tokenizer

# What the text after a cut may begin with; the text that really follows is tried as well.
_WORDS = ("a", "1", "{", ".", "'", ">")
_ANYTHING = ("\n", " ", *_WORDS)
_WINDOWS = (64, 256, 1024)  # bytes before a cut that are tokenized again
_LONGEST_RUN = 64  # characters; scripts without spaces have runs as long as a text


class PieceLengths(dict[int, int]):
    """Bytes of each token's piece, filled as tokens turn up; safe to fill from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._piece = tokenizer.piece

    def __missing__(self, token: int) -> int:
        length = self[token] = len(self._piece(token))
        return length


def stable_end(text: str, end: int) -> int:
    """The last offset up to ``end`` where byte-pair tokenizers split whatever follows ``end``.

    They split a text into runs of letters, digits, spaces and signs before merging, with a space or sign taken
    into the next run, line ends into a run of signs, and an apostrophe between letters into the word.
    """
    if end <= 0:
        return 0
    at = _run_start(text, end)
    kind = _kind(text[end - 1])
    if at and kind == "sign" and text[end - 1] in "'’":
        at = _run_start(text, at)
        kind = "letter"
    if at and kind in ("letter", "digit") and _kind(text[at - 1]) in ("sign", "space"):
        at -= 1
        if at and text[at] in "'’" and _kind(text[at - 1]) == "letter":
            at = _run_start(text, at)
            at -= 1 if at else 0
    elif at and kind == "space" and not {"\n", "\r"}.isdisjoint(text[at:end]) and _kind(text[at - 1]) == "sign":
        at = _run_start(text, at)
        at -= 1 if at and text[at - 1] == " " else 0
    elif at and kind == "sign" and text[at - 1] == " ":
        at -= 1
    return at


def _kind(char: str) -> str:
    if char.isspace():
        return "space"
    if char.isdigit() or char.isnumeric():
        return "digit"
    return "letter" if char.isalpha() or char > "\x7f" else "sign"


def _run_start(text: str, end: int) -> int:
    kind = _kind(text[end - 1])
    at = end - 1
    while at and end - at < _LONGEST_RUN and _kind(text[at - 1]) == kind:
        at -= 1
    return at


class Continuations:
    """The tokens of a text that stay, whichever of some texts follows it. Remembers them, as prompts of one template
    are cut after the same few characters; callers only read. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._encode = tokenizer.encode
        self.of = lru_cache(maxsize=1024)(self._kept)

    def _kept(self, text: str, following: tuple[str, ...]) -> list[int]:
        first, *others = [self._encode(text + more) for more in following]
        return first[: min(_common(first, other) for other in others)]


class TokenEdges:
    """One text and its tokens. ``tokens`` may start with a BOS that the text does not show."""

    def __init__(
        self,
        text: str,
        tokens: list[int],
        tokenizer: Tokenizer,
        lengths: PieceLengths,
        continuations: Continuations,
    ) -> None:
        self._text, self._tokens, self._tokenizer = text, tokens, tokenizer
        self._continuations = continuations
        self._data = text.encode()
        self._ascii = len(self._data) == len(text)
        self._ends = token_ends(self._data, tokens, tokenizer, lengths)

    def safe(self, offset: int, *, before_words: bool = False) -> int:
        """Tokens of the longest prefix ending at or before ``offset`` that every continuation of it keeps; with
        ``before_words`` every one that does not begin with white space, which a line end would be merged with."""
        line_start = before_words and self._text.endswith("\n", 0, offset)
        following = _WORDS if line_start else _ANYTHING
        stable = offset if line_start else stable_end(self._text, offset)
        if self._ends is None:
            return _common(self._tokenizer.encode(self._text[:stable], bos=True), self._tokens)
        limit, count = self._bytes(offset), 0
        low = self._bytes(stable)
        count = bisect_right(self._ends, limit)
        while count and self._ends[count - 1] > low and not self._tokenizer.is_control(self._tokens[count - 1]):
            count -= 1
        if count and self._ends[count - 1] > low:
            return count  # a special token is split off before anything is merged
        return self._tried(count, offset, following)

    def _bytes(self, offset: int) -> int:
        return offset if self._ascii else len(self._text[:offset].encode())

    def _tried(self, count: int, offset: int, following: tuple[str, ...]) -> int:
        """``count``, lowered to what tokenizing the end again with various continuations leaves."""
        assert self._ends is not None
        stop = self._bytes(offset)
        for size in _WINDOWS:
            first = self._window(count, size)
            if first is None:
                return count
            start = self._ends[first - 1] if first else 0
            tail = self._data[start:stop].decode("utf-8", "replace")
            real = self._text[offset : offset + 16]
            want = self._tokens[first:count]
            if _common(self._tokenizer.encode(tail + real), want) < len(want):
                continue  # the window's start is not an edge by itself: take a longer one
            return first + _common(self._continuations.of(tail, following), want)
        return count

    def _window(self, count: int, size: int) -> int | None:
        """Index of the token to tokenize again from: the nearest special one, as any text is split there, or else one
        ``size`` bytes back; None without any."""
        assert self._ends is not None
        if not count:
            return None
        floor = max(0, self._ends[count - 1] - size)
        first = bisect_right(self._ends, floor)
        for index in range(count - 1, max(first - 200, -1), -1):
            if self._tokenizer.is_control(self._tokens[index]):
                return index
        while first < count and self._data[self._ends[first - 1] if first else 0] & 0xC0 == 0x80:
            first += 1
        return first


def token_ends(data: bytes, tokens: list[int], tokenizer: Tokenizer, lengths: PieceLengths) -> list[int] | None:
    """Byte offset in ``data`` where each token ends, or None where pieces and text cannot be laid side by side."""
    sizes = list(map(lengths.__getitem__, tokens))
    if tokens and tokens[0] == tokenizer.bos and not data.startswith(tokenizer.piece(tokens[0])):
        sizes[0] = 0
    ends = list(accumulate(sizes))
    if not ends or ends[-1] == len(data):
        return ends
    return _aligned(data, tokens, tokenizer, sizes)


def _aligned(data: bytes, tokens: list[int], tokenizer: Tokenizer, sizes: list[int]) -> list[int] | None:
    """For tokenizers that put a space before words or drop spaces beside special tokens."""
    ends, at = [], 0
    for token, size in zip(tokens, sizes, strict=True):
        piece = tokenizer.piece(token) if size else b""
        if not data.startswith(piece, at):
            blank = at
            while blank < len(data) and data[blank : blank + 1].isspace():
                blank += 1
            if piece[:1] == b" " and data.startswith(piece[1:], at):
                piece = piece[1:]
            elif blank > at and data.startswith(piece, blank):
                at = blank
            else:
                return None
        at += len(piece)
        ends.append(at)
    return ends


def _common(left: list[int], right: list[int]) -> int:
    """Number of equal tokens at the start."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
