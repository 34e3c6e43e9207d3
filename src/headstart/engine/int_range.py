"""GBNF for the decimal integers between two bounds."""

from __future__ import annotations

DIGITS = 16  # of the longest integer, as in the converter's own rule for one without bounds


def int_range(low: int | None, high: int | None) -> str:
    """An expression for low..high, both included; None is no bound. ``low`` must not be above ``high``, and neither may
    have more than `DIGITS` digits."""
    parts = []
    if low is None or low < 0:
        nearest = 1 if high is None or high >= 0 else -high
        parts.append(f'"-" {_grouped(_spans(nearest, None if low is None else -low))}')
    if high is None or high >= 0:
        parts += _spans(max(low or 0, 0), high)
    return " | ".join(parts)


def _spans(low: int, high: int | None) -> list[str]:
    """Alternatives for the natural numbers low..high, one for each count of digits."""
    if high is None:
        digits = len(str(low))
        return [_same_length(str(low), "9" * digits), f"[1-9] [0-9]{{{digits},{DIGITS - 1}}}"]
    spans = []
    while low <= high:
        end = min(high, 10 ** len(str(low)) - 1)
        spans.append(_same_length(str(low), str(end)))
        low = end + 1
    return spans


def _same_length(low: str, high: str) -> str:
    """The digit strings between two of the same length."""
    if low == high:
        return f'"{low}"'
    first, last, rest = int(low[0]), int(high[0]), len(low) - 1
    if first == last:
        return f'"{first}" {_grouped([_same_length(low[1:], high[1:])])}'
    least, most = "0" * rest, "9" * rest
    parts = []
    if low[1:] != least:
        parts.append(f'"{first}" {_grouped([_same_length(low[1:], most)])}')
        first += 1
    tail = []
    if high[1:] != most:
        tail.append(f'"{last}" {_grouped([_same_length(least, high[1:])])}')
        last -= 1
    if first <= last:
        parts.append(f"[{first}-{last}]" + (f" [0-9]{{{rest}}}" if rest else ""))
    return " | ".join(parts + tail)


def _grouped(parts: list[str]) -> str:
    return f"({' | '.join(parts)})"
