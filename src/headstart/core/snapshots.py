"""Recurrent states saved to host memory: which prefix each belongs to, what it weighs, which to give up.

A snapshot is only the state; the cells of its prefix stay with whoever holds them on the device. The bytes lie with the
engine under the snapshot's id; this is their index and the owner of the budget.

Small states come in thousands, so nothing here looks at one after the other: what is searched and ranked lies in the
columns of one table. Each state keeps only its *tail*, the tokens past the nearest earlier state of its path.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..types import CutReason
from .extents import TokenArray

KEEPSAKES = frozenset({CutReason.HEAD, CutReason.EXPLICIT, CutReason.DIVERGENCE})
# ``parent`` is the id of the nearest earlier state on the path or 0, ``hash`` that of the whole prefix and its salt,
# ``gap`` the length of the tail: what losing the state would cost.
_SEARCHED = [("id", "i8"), ("parent", "i8"), ("position", "i8"), ("hash", "u8")]
_RANKED = [("keepsake", "?"), ("gap", "i8"), ("hits", "i8"), ("used", "f8")]
ROW = np.dtype(_SEARCHED + _RANKED)
_Hashes = npt.NDArray[np.uint64]


@dataclass(slots=True)
class Saved:
    """The state after ``position`` tokens; ``size`` is what its bytes weigh, ``row`` where it stands in the table."""

    id: int
    salt: str
    position: int
    size: int
    parent: Saved | None
    tail: TokenArray
    row: int

    @property
    def tokens(self) -> TokenArray:
        """The whole prefix, put together from the tails of the path."""
        tails, at = [self.tail], self.parent
        while at is not None:
            tails.append(at.tail)
            at = at.parent
        return np.concatenate(tails[::-1])


class Snapshots:
    """At most ``budget`` bytes of saved states of ``state_bytes`` each."""

    def __init__(self, budget: int, state_bytes: int) -> None:
        self.budget, self.state_bytes = budget, state_bytes
        self.bytes_used = 0
        self._saved: dict[int, Saved] = {}
        self._table = np.zeros(64, ROW)  # the first `len(self)` rows count
        self._weights: _Hashes = np.empty(0, np.uint64)
        self._random = np.random.default_rng(0)
        self._next = 1

    def __len__(self) -> int:
        return len(self._saved)

    @property
    def enabled(self) -> bool:
        return 0 < self.state_bytes <= self.budget

    @property
    def affordable(self) -> int:
        """States that one prompt may leave: half of what fits, so that others keep theirs."""
        return max(1, self.budget // self.state_bytes // 2) if self.enabled else 0

    # ---- reading

    def find(self, tokens: TokenArray, limit: int, above: int = 0, salt: str = "") -> Saved | None:
        """The longest saved prefix of ``tokens`` with ``above`` < position <= ``limit``."""
        position = self._rows["position"]
        rows = np.flatnonzero((position > above) & (position <= min(limit, len(tokens))))
        if not len(rows):
            return None
        ends = position[rows]
        same = self._hashes(tokens[: int(ends.max())], salt)[ends - 1] == self._rows["hash"][rows]
        # Equal hashes are equal prefixes, nearly always; the tokens decide.
        for row in rows[same][np.argsort(-ends[same])]:
            saved = self._saved[int(self._rows["id"][row])]
            if saved.salt == salt and np.array_equal(saved.tokens, tokens[: saved.position]):
                return saved
        return None

    def has(self, tokens: TokenArray, salt: str) -> bool:
        return self.find(tokens, len(tokens), len(tokens) - 1, salt) is not None

    @property
    def _rows(self) -> npt.NDArray[np.void]:
        return self._table[: len(self._saved)]

    def _hashes(self, tokens: TokenArray, salt: str) -> _Hashes:
        """One for each prefix of ``tokens``: sums of the tokens, each multiplied by a number that belongs to its
        position."""
        short = len(tokens) - len(self._weights)
        if short > 0:
            more = self._random.integers(2**64, size=max(short, 4096), dtype=np.uint64)
            self._weights = np.concatenate([self._weights, more])
        sums: _Hashes = np.cumsum(tokens.astype(np.uint64) * self._weights[: len(tokens)], dtype=np.uint64)
        return sums + np.uint64(hash(salt) % 2**64)

    # ---- changing

    def add(self, tokens: TokenArray, why: CutReason, now: float, salt: str = "") -> tuple[Saved, list[int]]:
        """Book a state for ``tokens``, which has none. Returns it with the ids that had to be given up for it."""
        gone: list[int] = []
        while self._saved and self.bytes_used + self.state_bytes > self.budget:
            gone.append(self._least_worth())
            self.discard(gone[-1])
        n = len(tokens)
        parent = self.find(tokens, n - 1, 0, salt)
        start = parent.position if parent else 0
        saved = Saved(self._next, salt, n, self.state_bytes, parent, tokens[start:].copy(), len(self))
        later = self._later(saved)
        if len(self) == len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        digest = self._hashes(tokens, salt)[-1]
        above = parent.id if parent else 0
        self._table[saved.row] = (saved.id, above, n, digest, why in KEEPSAKES, n - start, 0, now)
        self._saved[saved.id] = saved
        self._next += 1
        self.bytes_used += saved.size
        for other in later:
            self._hang(other, saved, other.tail[n - start :].copy())
        return saved, gone

    def _later(self, saved: Saved) -> list[Saved]:
        """States whose nearest earlier one is ``saved`` from now on."""
        above = saved.parent.id if saved.parent else 0
        rows, n = self._rows, len(saved.tail)
        found = rows["id"][(rows["parent"] == above) & (rows["position"] > saved.position)]
        siblings: Iterable[Saved] = (self._saved[i] for i in found.tolist())
        return [
            s
            for s in siblings
            if s.salt == saved.salt and s.tail[n - 1] == saved.tail[-1] and np.array_equal(s.tail[:n], saved.tail)
        ]

    def _hang(self, saved: Saved, parent: Saved | None, tail: TokenArray) -> None:
        saved.parent, saved.tail = parent, tail
        row = self._table[saved.row]
        row["parent"], row["gap"] = parent.id if parent else 0, len(tail)

    def weigh(self, snapshot: int, size: int) -> None:
        """Its bytes have been copied and are ``size`` many; later ones are expected to weigh the same."""
        saved = self._saved.get(snapshot)
        if saved is not None:
            self.bytes_used += size - saved.size
            saved.size = self.state_bytes = size

    def touch(self, snapshot: int, now: float) -> None:
        row = self._table[self._saved[snapshot].row]
        row["used"] = now
        row["hits"] += 1

    def discard(self, snapshot: int) -> None:
        """Give it up, if it is there; later states of its path take its tail over."""
        saved = self._saved.get(snapshot)
        if saved is None:
            return
        rows = self._rows
        for other in rows["id"][rows["parent"] == snapshot].tolist():
            later = self._saved[other]
            self._hang(later, saved.parent, np.concatenate([saved.tail, later.tail]))
        last = self._saved[int(rows["id"][-1])]
        rows[saved.row], last.row = rows[-1], saved.row
        del self._saved[snapshot]
        self.bytes_used -= saved.size

    def _least_worth(self) -> int:
        """Heads and divergence points outlive turns. Within a kind, what covers least beyond its neighbours and was
        used longest ago goes first: a chain is thinned evenly instead of losing its front."""
        rows = self._rows if self._rows["keepsake"].all() else self._rows[~self._rows["keepsake"]]
        used = rows["used"]
        fresher = len(self) - np.searchsorted(np.sort(self._rows["used"]), used, side="right")
        worth = rows["gap"] * (1 + rows["hits"]) / (1.0 + fresher)
        return int(rows["id"][worth == worth.min()].min())

    # ---- proof

    def check(self) -> None:
        """Booked bytes never exceed the budget, no prefix is saved twice, and every link leads to the nearest one."""
        assert self.bytes_used == sum(s.size for s in self._saved.values())
        assert self.bytes_used <= max(self.budget, 0) or len(self) <= 1
        keys = set()
        for saved in self._saved.values():
            tokens, row = saved.tokens, self._rows[saved.row]
            keys.add((saved.salt, tokens.tobytes()))
            assert len(tokens) == saved.position == row["position"] and row["id"] == saved.id
            assert row["gap"] == len(saved.tail) and row["parent"] == (saved.parent.id if saved.parent else 0)
            assert self.find(tokens, saved.position - 1, 0, saved.salt) is saved.parent
        assert len(keys) == len(self), "a prefix is saved twice"
