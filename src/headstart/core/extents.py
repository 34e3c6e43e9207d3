"""The cells of the device as a tree of extents: who owns which run of tokens, and what is there to match.

An *extent* is a run of cells that hold consecutive positions of one token path. Children continue their parent, so a
sequence is the path from the root to its *tail*, and two sequences that share a prefix share the extents of it:

        root ── [0, 14000) owners 1 2 9 ──┬── [14000, 14210) owners 1
                 (head)                   └── [14000, 14090) owners 2        9 holds the head alone

Sharing adds an owner to the extents it covers and splits the last one; removing takes the owner away; an extent
without owners frees its cells. Paths of different *salts* never meet, whatever their tokens. Sharing tags cells and
never copies them, so ``used`` is the exact number of cells in use in a library that has no call to ask.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ..types import SeqId, Token

TokenArray = npt.NDArray[np.int32]


class Extent:
    """A run of tokens at positions [start, end) and the sequences that own all of it."""

    __slots__ = ("children", "owners", "parent", "start", "tokens")

    def __init__(self, parent: Extent | None, start: int, tokens: array[int], owners: set[SeqId]) -> None:
        self.parent = parent
        self.start = start
        self.tokens = tokens
        self.owners = owners
        self.children: list[Extent] = []

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    def view(self) -> TokenArray:
        """The tokens without a copy. Drop it before the extent grows."""
        return np.frombuffer(self.tokens, dtype=np.int32)


def common_prefix(a: TokenArray, b: TokenArray) -> int:
    """How many leading tokens are equal."""
    n = min(len(a), len(b))
    if n == 0 or a[0] != b[0]:
        return 0
    differ = a[:n] != b[:n]
    first = int(differ.argmax())
    return first if differ[first] else n


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
        node = self._tails[seq]
        while node.parent is not None:
            node = node.parent
        return next(salt for salt, root in self._roots.items() if root is node)

    def sequences(self) -> frozenset[SeqId]:
        return frozenset(self._tails)

    def path(self, seq: SeqId) -> list[Extent]:
        """Extents of ``seq`` from the first position to its tail."""
        found: list[Extent] = []
        node = self._tails.get(seq)
        while node is not None and node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    def tokens(self, seq: SeqId) -> TokenArray:
        """A copy of the tokens of ``seq``, shape [length]."""
        parts = [extent.view() for extent in self.path(seq)]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def exclusive(self, seqs: frozenset[SeqId] | set[SeqId]) -> int:
        """Cells that nobody outside ``seqs`` owns: what removing all of them would free."""
        return sum(len(e.tokens) for e in self._extents() if e.owners and e.owners <= seqs)

    def own_cells(self, seq: SeqId) -> int:
        """Cells that ``seq`` shares with nobody. Owners only shrink towards the tail, so the walk stops early."""
        cells, node = 0, self._tails.get(seq)
        while node is not None and node.parent is not None and len(node.owners) == 1:
            cells += len(node.tokens)
            node = node.parent
        return cells

    def ends_at(self, extent: Extent) -> list[SeqId]:
        """Sequences whose last token is the last of ``extent``."""
        return [seq for seq in extent.owners if self._tails[seq] is extent]

    def ending(self, seq: SeqId, position: int) -> list[SeqId]:
        """Sequences that are exactly the first ``position`` tokens of ``seq`` and nothing more."""
        for extent in self.path(seq):
            if extent.end == position:
                return self.ends_at(extent)
        return []

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

    # ---- changing

    def append(self, seq: SeqId, tokens: Sequence[Token], salt: str = "") -> None:
        """``seq`` computed ``tokens`` after its last position, in cells of its own; an empty one starts in ``salt``."""
        if not len(tokens):
            return
        tail = self._tails.get(seq) or self._roots.setdefault(salt, Extent(None, 0, array("i"), set()))
        if tail.parent is None or tail.children or tail.owners != {seq}:
            grown = Extent(tail, tail.end, array("i", tokens), {seq})
            tail.children.append(grown)
            self._tails[seq] = grown
        else:
            tail.tokens.extend(tokens)
        self.used += len(tokens)

    def share(self, src: SeqId, dst: SeqId, position: int) -> None:
        """Let the empty ``dst`` own [0, position) of ``src``."""
        assert dst not in self._tails, f"sequence {dst} is not empty"
        assert 0 < position <= self.length(src), f"{position} is not inside sequence {src}"
        node = self._cut(self._tails[src], position)
        self._tails[dst] = node
        while node.parent is not None:
            node.owners.add(dst)
            node = node.parent

    def truncate(self, seq: SeqId, position: int) -> None:
        """Take [position, end) away from ``seq``."""
        if position <= 0:
            self.remove(seq)
            return
        if position >= self.length(seq):
            return
        keep = self._cut(self._tails[seq], position)
        self._disown(seq, keep)
        self._tails[seq] = keep

    def remove(self, seq: SeqId) -> None:
        """``seq`` leaves; cells that nobody else owns become free. An unknown sequence is empty already."""
        if seq in self._tails:
            self._disown(seq, None)
            del self._tails[seq]

    def _disown(self, seq: SeqId, until: Extent | None) -> None:
        """Take ``seq`` off its extents from the tail up to but not including ``until`` (None: off all of them)."""
        node = self._tails[seq]
        surviving: Extent | None = until
        while node is not until and node.parent is not None:
            parent = node.parent
            node.owners.discard(seq)
            if node.owners:
                surviving = node if surviving is until else surviving
            else:
                assert not node.children, "a child's owners own its parent too"
                self.used -= len(node.tokens)
                parent.children.remove(node)
            node = parent
        if surviving is not None:
            self._join(surviving, leaving=seq)
        elif not node.children:
            self._roots = {salt: root for salt, root in self._roots.items() if root is not node}

    def _join(self, upper: Extent, leaving: SeqId) -> None:
        """Merge ``upper`` with its only child if nothing ends between them any more, so that splits do not pile up."""
        if upper.parent is None or len(upper.children) != 1:
            return
        if any(self._tails[seq] is upper for seq in upper.owners if seq != leaving) or leaving in upper.owners:
            return
        (lower,) = upper.children
        assert lower.owners == upper.owners
        lower.parent, lower.start, lower.tokens = upper.parent, upper.start, upper.tokens + lower.tokens
        upper.parent.children[upper.parent.children.index(upper)] = lower

    def _cut(self, tail: Extent, position: int) -> Extent:
        """The extent of this path that ends exactly at ``position``, split off if need be."""
        node = tail
        while node.start >= position:
            assert node.parent is not None
            node = node.parent
        if node.end == position:
            return node
        # The new extent goes above, so that tails and children below stay as they are.
        at = position - node.start
        assert node.parent is not None
        upper = Extent(node.parent, node.start, node.tokens[:at], set(node.owners))
        upper.children = [node]
        node.parent.children[node.parent.children.index(node)] = upper
        node.parent, node.start, node.tokens = upper, position, node.tokens[at:]
        return upper

    # ---- proof

    def _extents(self) -> Iterator[Extent]:
        stack = [extent for root in self._roots.values() for extent in root.children]
        while stack:
            extent = stack.pop()
            yield extent
            stack.extend(extent.children)

    def check(self) -> None:
        """Every cell is counted once, every owner owns the whole path above, every sequence ends at an extent's end."""
        extents = list(self._extents())
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
