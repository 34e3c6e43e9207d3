"""The tree of extents against an oracle that keeps every sequence as a plain list of (cell, token)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headstart.core.extents import common_prefix
from headstart.core.tree import ExtentTree

SEQS = st.integers(0, 5)
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=9)


class TreeAgainstLists(RuleBasedStateMachine):
    """Every operation on both; after each, everything that can be asked must be answered alike."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = ExtentTree()
        self.lists: dict[int, list[tuple[int, int]]] = {}
        self.salts: dict[int, str] = {}
        self.cell = 0

    @rule(seq=SEQS, tokens=TOKENS, salt=st.sampled_from(["", "s"]))
    def append(self, seq: int, tokens: list[int], salt: str) -> None:
        self.tree.append(seq, tokens, salt)
        self.salts.setdefault(seq, salt)
        for token in tokens:
            self.lists.setdefault(seq, []).append((self.cell, token))
            self.cell += 1

    @precondition(lambda self: self.lists)
    @rule(data=st.data(), dst=SEQS)
    def share(self, data: st.DataObject, dst: int) -> None:
        if dst in self.lists:
            return
        src = data.draw(st.sampled_from(sorted(self.lists)))
        position = data.draw(st.integers(1, len(self.lists[src])))
        self.tree.share(src, dst, position)
        self.lists[dst] = self.lists[src][:position]
        self.salts[dst] = self.salts[src]

    @rule(seq=SEQS)
    def remove(self, seq: int) -> None:
        self.tree.remove(seq)
        self.lists.pop(seq, None)
        self.salts.pop(seq, None)

    @rule(prompt=TOKENS, salt=st.sampled_from(["", "s"]))
    def match(self, prompt: list[int], salt: str) -> None:
        tokens = np.array(prompt, np.int32)
        found = list(self.tree.walk(tokens, salt))
        best = max((n for _, n in found), default=0)
        told = {s: [t for _, t in cells] for s, cells in self.lists.items() if self.salts[s] == salt}
        truth = {s: common_prefix(np.array(t, np.int32), tokens) for s, t in told.items()}
        assert best == max(truth.values(), default=0)
        for extent, n in found:
            for seq in extent.owners:
                assert truth[seq] >= n
            for seq in self.tree.ends_at(extent):
                assert len(told[seq]) == extent.end

    @invariant()
    def agree(self) -> None:
        self.tree.check()
        cells = [cell for path in self.lists.values() for cell, _ in path]
        assert self.tree.used == len(set(cells))
        assert self.tree.sequences() == self.lists.keys()
        for seq, path in self.lists.items():
            assert self.tree.tokens(seq).tolist() == [token for _, token in path]
            assert self.tree.length(seq) == len(path)
            assert self.tree.salt(seq) == self.salts[seq]
            others = {cell for other, p in self.lists.items() if other != seq for cell, _ in p}
            assert self.tree.own_cells(seq) == len({cell for cell, _ in path} - others)
            same = {s for s, p in self.lists.items() if p == path}
            assert set(self.tree.ends_at(self.tree.path(seq)[-1])) == same
        some = frozenset(list(self.lists)[::2])
        kept = {cell for other, p in self.lists.items() if other not in some for cell, _ in p}
        assert self.tree.exclusive(some) == len(set(cells) - kept)

    @invariant()
    def stays_small(self) -> None:
        """Splits are joined again: no more extents than sequences can make necessary."""
        assert sum(1 for _ in self.tree.extents()) <= max(0, 2 * len(self.lists) - 1)


TestTree = TreeAgainstLists.TestCase
TestTree.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize(
    ("a", "b", "n"), [([], [1], 0), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1, 9, 3], 1), ([5], [6], 0)]
)
def test_common_prefix(a: list[int], b: list[int], n: int) -> None:
    assert common_prefix(np.array(a, np.int32), np.array(b, np.int32)) == n
