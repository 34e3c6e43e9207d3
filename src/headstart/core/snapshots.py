"""Recurrent states saved to host memory: which prefix each belongs to, what it weighs, which to give up.

A snapshot is only the state; the cells of its prefix stay with whoever holds them on the device. The bytes lie with the
engine under the snapshot's id; this is their index and the owner of the budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..types import CutReason
from .extents import TokenArray

KEEPSAKES = frozenset({CutReason.HEAD, CutReason.EXPLICIT, CutReason.DIVERGENCE})


@dataclass(slots=True)
class Saved:
    """The state after ``tokens``; ``size`` is what its bytes weigh."""

    id: int
    tokens: TokenArray
    why: CutReason
    size: int
    used: float
    salt: str = ""
    hits: int = 0

    @property
    def position(self) -> int:
        return len(self.tokens)


class Snapshots:
    """At most ``budget`` bytes of saved states of ``state_bytes`` each."""

    def __init__(self, budget: int, state_bytes: int) -> None:
        self.budget, self.state_bytes = budget, state_bytes
        self._saved: dict[int, Saved] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._saved)

    @property
    def bytes_used(self) -> int:
        return sum(s.size for s in self._saved.values())

    @property
    def enabled(self) -> bool:
        return 0 < self.state_bytes <= self.budget

    @property
    def affordable(self) -> int:
        """States that one prompt may leave: half of what fits, so that others keep theirs."""
        return max(1, self.budget // self.state_bytes // 2) if self.enabled else 0

    def find(self, tokens: TokenArray, limit: int, above: int = 0, salt: str = "") -> Saved | None:
        """The longest saved prefix of ``tokens`` with ``above`` < position <= ``limit``."""
        best: Saved | None = None
        for saved in self._saved.values():
            p = saved.position
            longer = saved.salt == salt and above < p <= min(limit, len(tokens)) and (best is None or p > best.position)
            if longer and saved.tokens[-1] == tokens[p - 1] and np.array_equal(saved.tokens, tokens[:p]):
                best = saved
        return best

    def has(self, tokens: TokenArray, salt: str) -> bool:
        return self.find(tokens, len(tokens), len(tokens) - 1, salt) is not None

    def add(self, tokens: TokenArray, why: CutReason, now: float, salt: str = "") -> tuple[Saved, list[int]]:
        """Book a state for ``tokens``. Returns it with the ids that had to be given up for it."""
        saved = Saved(self._next, tokens, why, self.state_bytes, now, salt)
        self._next += 1
        gone: list[int] = []
        while self._saved and self.bytes_used + saved.size > self.budget:
            worst = min(self._saved.values(), key=self._worth)
            del self._saved[worst.id]
            gone.append(worst.id)
        self._saved[saved.id] = saved
        return saved, gone

    def weigh(self, snapshot: int, size: int) -> None:
        """Its bytes have been copied and are ``size`` many; later ones are expected to weigh the same."""
        if snapshot in self._saved:
            self._saved[snapshot].size = self.state_bytes = size

    def touch(self, snapshot: int, now: float) -> None:
        self._saved[snapshot].used = now
        self._saved[snapshot].hits += 1

    def discard(self, snapshot: int) -> None:
        self._saved.pop(snapshot, None)

    def _worth(self, saved: Saved) -> tuple[bool, float]:
        """Heads and divergence points outlive turns. Within a kind, what covers least beyond its neighbours and was
        used longest ago goes first: a chain is thinned evenly instead of losing its front."""
        return (saved.why in KEEPSAKES, self._gap(saved) * (1 + saved.hits) / (1.0 + self._age_rank(saved)))

    def _gap(self, saved: Saved) -> int:
        """Tokens between this state and the nearest earlier one on the same path: what losing it would cost."""
        below = self.find(saved.tokens, saved.position - 1, 0, saved.salt)
        return saved.position - (below.position if below else 0)

    def _age_rank(self, saved: Saved) -> int:
        return sum(other.used > saved.used for other in self._saved.values())

    def check(self) -> None:
        """Booked bytes never exceed the budget, and no prefix is saved twice."""
        assert self.bytes_used <= max(self.budget, 0) or len(self._saved) <= 1
        keys = [(s.salt, s.tokens.tobytes()) for s in self._saved.values()]
        assert len(keys) == len(set(keys)), "a prefix is saved twice"
