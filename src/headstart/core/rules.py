"""What each memory kind allows. The one place where the core knows that models differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..types import Cut, CutReason, MemoryKind

ANYWHERE = frozenset({CutReason.HEAD, CutReason.EXPLICIT})
STATEFUL = frozenset(CutReason)
WINDOWED = frozenset(CutReason) - {CutReason.GEOMETRIC, CutReason.INTERVAL, CutReason.LAST_USER}
# A short chunk costs the time of 1.2 to 1.6 x ``shortest`` tokens of a long one more (measured after 3,000 and 14,000
# tokens): about 3 % of a prompt that is so many times ``shortest`` long.
LONG = 50


@dataclass(frozen=True, slots=True)
class Rules:
    """``anywhere``: a prefix may be cut at any position of any sequence, running ones included; otherwise only where
    a sequence ends. ``state``: what a sequence ends on can be copied out and put under borrowed cells. ``cells``:
    tokens take cells. ``holds``: the cuts worth a holder of their own; where any position will do, the session's own
    sequence serves its next turn, and only what other sessions share needs pinning.
    """

    shares: bool
    anywhere: bool
    state: bool
    cells: bool
    holds: frozenset[CutReason]

    def pauses(self, cuts: Iterable[Cut], n_tokens: int, shortest: int) -> list[int]:
        """Where a prompt of ``n_tokens`` ends a chunk: at the cuts that are kept.

        Where a prefix can be cut off later, that is needed only so that a sibling with few tokens of its own computes
        them as this prompt does, in a chunk of fewer than ``shortest`` tokens; and only worth it in a long prompt.
        """
        kept = [c.position for c in cuts if c.reason in self.holds]
        if not self.anywhere:
            return kept
        return [p for p in kept if n_tokens - p < shortest] if n_tokens >= LONG * shortest else []


RULES = {
    MemoryKind.ATTENTION: Rules(shares=True, anywhere=True, state=False, cells=True, holds=ANYWHERE),
    MemoryKind.SLIDING: Rules(shares=True, anywhere=False, state=False, cells=True, holds=WINDOWED),
    MemoryKind.HYBRID: Rules(shares=True, anywhere=False, state=True, cells=True, holds=STATEFUL),
    MemoryKind.RECURRENT: Rules(shares=True, anywhere=False, state=True, cells=False, holds=STATEFUL),
    MemoryKind.UNKNOWN: Rules(shares=False, anywhere=False, state=False, cells=True, holds=frozenset()),
}


def rules_for(kind: MemoryKind, *, sharing: bool) -> Rules:
    """The rules of ``kind``; with ``sharing`` off every request computes its own prompt and leaves nothing."""
    if sharing and RULES[kind].shares:
        return RULES[kind]
    return Rules(shares=False, anywhere=False, state=False, cells=RULES[kind].cells, holds=frozenset())
