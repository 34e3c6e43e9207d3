"""Characters, classes and counts as GBNF writes them, and the one way to refuse a grammar."""

from __future__ import annotations

import re
from typing import NoReturn

from ..errors import RequestError

MAX_REPEAT = 2_000  # the library's own bound

Ranges = tuple[tuple[int, int], ...]  # first and last code point

_UNIT = re.compile(
    r"\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\[tnr\\\"\[\]-]|[^\\]",
    re.DOTALL,
)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r"}


def refuse(why: str) -> NoReturn:
    """Raise the `RequestError`."""
    raise RequestError(f"the grammar {why}", param="grammar")


def times_of(found: re.Match[str]) -> tuple[int, int | None]:
    """Lower and upper count of a repetition; None: no bound."""
    sign = found["times"]
    if sign in "*+?":
        return (1 if sign == "+" else 0), (1 if sign == "?" else None)
    low = _count(found["low"])
    high = low if found["comma"] is None else _count(found["high"]) if found["high"] else None
    if low > MAX_REPEAT or (high is not None and high < low):
        # The library would count down from the lower bound past zero.
        refuse(f"repeats {sign[:20]}, which no count fits or which is more than {MAX_REPEAT}")
    return low, None if high is not None and high > MAX_REPEAT else high


def _count(digits: str) -> int:
    return int(digits.lstrip("0")[:9] or "0")


def characters(text: str) -> list[int]:
    """Code points of a literal."""
    return [c for c, _ in _units(text)] if "\\" in text else [ord(c) for c in text]


def _units(text: str) -> list[tuple[int, bool]]:
    """Code points, and whether each was written as a bare ``-``."""
    units = _UNIT.findall(text)
    if sum(map(len, units)) != len(text):
        refuse(f"has an escape that GBNF does not know in {text[:40]!r}")
    return [(_code(unit), unit == "-") for unit in units]


def _code(unit: str) -> int:
    if len(unit) == 1:
        return ord(unit)
    return ord(_ESCAPED.get(unit[1], unit[1])) if len(unit) == 2 else int(unit[2:], 16)


def ranges_of(text: str) -> Ranges:
    """Ranges of a character class."""
    units, out, i = _units(text), [], 0
    while i < len(units):
        low = high = units[i][0]
        if i + 2 < len(units) and units[i + 1][1]:
            high, i = units[i + 2][0], i + 2
        out.append((low, high))
        i += 1
    return tuple(out)
