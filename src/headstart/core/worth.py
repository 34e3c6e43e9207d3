"""Which holder to give up when cells or sequence ids run out: the one whose return is least worth its room."""

from __future__ import annotations

from bisect import bisect_right

from ..types import CutReason, SeqId
from .device import Device, Holder
from .rules import Rules

HALF_LIFE = 300.0  # seconds
SHARED_KINDS = frozenset({CutReason.HEAD, CutReason.EXPLICIT, CutReason.DIVERGENCE})


def chance_of_return(holder: Holder, fresher: int, now: float) -> float:
    """A relative likelihood: grows with hits, halves with each of the ``fresher`` holders that were used since and with
    every `HALF_LIFE`. So of two equal ones the older goes, and being worth twice as much makes up for one such step."""
    return float((1 + holder.hits) * 0.5 ** (fresher + (now - holder.used) / HALF_LIFE))


def tokens_lost(device: Device, rules: Rules, seq: SeqId) -> int:
    """Tokens to compute again if the prefix of ``seq`` is wanted after its removal.

    Where any position can be cut, whoever shares the cells keeps them useful; where states count, a prompt falls back
    to the nearest earlier position at which another sequence ends.
    """
    if rules.anywhere:
        return device.tree.own_cells(seq)
    below = 0
    for extent in device.tree.path(seq):
        if any(other != seq for other in device.tree.ends_at(extent)):
            below = extent.end
    return device.tree.length(seq) - below


def least_worth(
    device: Device, rules: Rules, now: float, *, for_cells: bool, keep: SeqId | None = None
) -> SeqId | None:
    """The holder to remove next, or None when there is none.

    For cells only holders with cells of their own count (so leaves go before the ancestors that they share), unless
    all cells are shared among holders: then the cheapest of them goes so that others come to own theirs alone. A
    promised time to live is broken last.
    """
    holders = [h for h in device.holders.values() if h.seq != keep]
    if for_cells:
        holders = [h for h in holders if device.tree.own_cells(h.seq) > 0] or holders

    used = sorted(h.used for h in device.holders.values())

    def worth(holder: Holder) -> tuple[bool, float]:
        fresher = len(used) - bisect_right(used, holder.used)
        value = chance_of_return(holder, fresher, now) * tokens_lost(device, rules, holder.seq)
        room = device.tree.own_cells(holder.seq) if for_cells else 1
        return holder.keep_until > now, value / max(1, room)

    return min(holders, key=worth).seq if holders else None
