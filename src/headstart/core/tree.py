"""The cells of the device as a tree of extents: who owns which run of tokens, and what is there to match.

A sequence is the path from the root to its *tail*, and two sequences that share a prefix share the extents of it:

        root ── [0, 14000) owners 1 2 9 ──┬── [14000, 14210) owners 1
                 (head)                   └── [14000, 14090) owners 2        9 holds the head alone

Sharing adds an owner to the extents it covers and splits the last one; removing takes the owner away; an extent
without owners frees its cells. Paths of different *salts* never meet, whatever their tokens. Sharing tags cells and
never copies them, so ``used`` is the exact number of cells in use in a library that has no call to ask.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import takewhile

import numpy as np

from ..types import SeqId, Token
from .extents import Extent, TokenArray, common_prefix


class ExtentTree:
    """Owner of the cell accounting. Sequences come into being by `append` or `share` and end by `remove`."""

    def __init__(self) -> None:
        self._roots: dict[str, Extent] = {}
        self._tails: dict[SeqId, Extent] = {}
        self.used = 0

    # ---- reading

    def length(self, seq: SeqId) -> int:
        """Tokens of ``seq`` in the cache; 0 when it holds none."""
        tail = self._tails.get(seq)
        return tail.end if tail else 0

    def salt(self, seq: SeqId) -> str:
        """The salt of the path that ``seq`` lies on."""
        above = self.path(seq)[0].parent
        return next(salt for salt, root in self._roots.items() if root is above)

    def sequences(self) -> frozenset[SeqId]:
        return frozenset(self._tails)

    def path(self, seq: SeqId) -> list[Extent]:
        """Extents of ``seq`` from the first position to its tail."""
        tail = self._tails.get(seq)
        return list(tail.upwards())[::-1] if tail else []

    def tokens(self, seq: SeqId) -> TokenArray:
        """A copy of the tokens of ``seq``, shape [length]."""
        parts = [extent.view() for extent in self.path(seq)]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def exclusive(self, seqs: frozenset[SeqId] | set[SeqId]) -> int:
        """Cells that nobody outside ``seqs`` owns: what removing all of them would free."""
        return sum(len(e.tokens) for e in self.extents() if e.owners <= seqs)

    def own_cells(self, seq: SeqId) -> int:
        """Cells that ``seq`` shares with nobody. Owners only shrink towards the tail, so the walk stops early."""
        tail = self._tails.get(seq)
        if tail is None:
            return 0
        return sum(len(e.tokens) for e in takewhile(lambda e: len(e.owners) == 1, tail.upwards()))

    def ends_at(self, extent: Extent) -> list[SeqId]:
        """Sequences whose last token is the last of ``extent``."""
        return [seq for seq in extent.owners if self._tails[seq] is extent]

    def walk(self, tokens: TokenArray, salt: str = "") -> Iterator[tuple[Extent, int]]:
        """Every extent that ``tokens`` enters, with the number of leading tokens (from position 0) equal up to there.

        Equal paths can exist twice (computed while sharing was off), so more than one branch may be yielded.
        """
        root = self._roots.get(salt)
        stack = list(root.children) if root is not None else []
        while stack:
            extent = stack.pop()
            common = common_prefix(extent.view(), tokens[extent.start :])
            if common == 0:
                continue
            yield extent, extent.start + common
            if extent.start + common == extent.end:
                stack.extend(extent.children)

    def extents(self) -> Iterator[Extent]:
        """All of them, parents before their children."""
        for root in self._roots.values():
            yield from root.below()

    # ---- changing

    def append(self, seq: SeqId, tokens: Sequence[Token], salt: str = "") -> None:
        """``seq`` computed ``tokens`` after its last position, in cells of its own; an empty one starts in ``salt``."""
        if not len(tokens):
            return
        tail = self._tails.get(seq) or self._roots.setdefault(salt, Extent.root())
        if tail.parent is None or tail.children or tail.owners != {seq}:
            self._tails[seq] = tail.add(array("i", tokens), seq)
        else:
            tail.tokens.extend(tokens)
        self.used += len(tokens)

    def share(self, src: SeqId, dst: SeqId, position: int) -> None:
        """Let the empty ``dst`` own [0, position) of ``src``."""
        assert dst not in self._tails, f"sequence {dst} is not empty"
        assert 0 < position <= self.length(src), f"{position} is not inside sequence {src}"
        last = next(extent for extent in self._tails[src].upwards() if extent.start < position)
        if last.end != position:
            last = last.split(position)
        self._tails[dst] = last
        for extent in last.upwards():
            extent.owners.add(dst)

    def remove(self, seq: SeqId) -> None:
        """``seq`` leaves; cells that nobody else owns become free. An unknown sequence is empty already."""
        tail = self._tails.pop(seq, None)
        if tail is None:
            return
        surviving: Extent | None = None
        for extent in tail.upwards():
            extent.owners.discard(seq)
            if extent.owners:
                surviving = surviving or extent
                continue
            assert extent.parent is not None and not extent.children, "a child's owners own its parent too"
            self.used -= len(extent.tokens)
            extent.parent.children.remove(extent)
        if surviving is None:
            self._roots = {salt: root for salt, root in self._roots.items() if root.children}
        elif len(surviving.children) == 1 and not self.ends_at(surviving):
            surviving.join()  # nothing ends between the two any more, and splits must not pile up

    # ---- proof

    def check(self) -> None:
        """Every cell is counted once, every owner owns the whole path above, every sequence ends at an extent's end."""
        extents = list(self.extents())
        assert sum(len(e.tokens) for e in extents) == self.used
        for extent in extents:
            parent = extent.parent
            assert parent is not None and extent.tokens and extent.owners
            assert extent.start == parent.end
            assert parent.parent is None or extent.owners <= parent.owners
        owned: dict[SeqId, int] = {}
        for extent in extents:
            for seq in extent.owners:
                owned[seq] = owned.get(seq, 0) + len(extent.tokens)
        assert owned == {seq: tail.end for seq, tail in self._tails.items()}
