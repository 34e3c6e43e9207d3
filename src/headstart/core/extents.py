"""An extent: a run of cells that hold consecutive positions of one token path, as a node of a tree."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..types import SeqId

TokenArray = npt.NDArray[np.int32]


class Extent:
    """A run of tokens at positions [start, end) and the sequences that own all of it. Children continue their parent;
    a root has no parent, no tokens and no owners."""

    __slots__ = ("children", "owners", "parent", "start", "tokens")

    def __init__(self, parent: Extent | None, start: int, tokens: array[int], owners: set[SeqId]) -> None:
        self.parent = parent
        self.start = start
        self.tokens = tokens
        self.owners = owners
        self.children: list[Extent] = []

    @classmethod
    def root(cls) -> Extent:
        return cls(None, 0, array("i"), set())

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    def view(self) -> TokenArray:
        """The tokens without a copy. Drop it before the extent grows."""
        return np.frombuffer(self.tokens, dtype=np.int32)

    def upwards(self) -> Iterator[Extent]:
        """This extent and those above it, up to the one at the first position; the root is none of them."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    def below(self) -> Iterator[Extent]:
        """Every extent under this one, parents before their children."""
        stack = list(self.children)
        while stack:
            extent = stack.pop()
            yield extent
            stack.extend(extent.children)

    def add(self, tokens: array[int], owner: SeqId) -> Extent:
        """A new child."""
        child = Extent(self, self.end, tokens, {owner})
        self.children.append(child)
        return child

    def split(self, position: int) -> Extent:
        """Leave [start, position) to a new extent, which goes above, so that whoever points here and the children stay
        as they are. Returns the new one."""
        assert self.parent is not None
        at = position - self.start
        upper = Extent(self.parent, self.start, self.tokens[:at], set(self.owners))
        upper.children = [self]
        self.parent.children[self.parent.children.index(self)] = upper
        self.parent, self.start, self.tokens = upper, position, self.tokens[at:]
        return upper

    def join(self) -> None:
        """The opposite of `split`: the only child takes the tokens of this extent over, and its place."""
        (lower,) = self.children
        assert self.parent is not None
        assert lower.owners == self.owners
        lower.parent, lower.start, lower.tokens = self.parent, self.start, self.tokens + lower.tokens
        self.parent.children[self.parent.children.index(self)] = lower


def common_prefix(a: TokenArray, b: TokenArray) -> int:
    """How many leading tokens are equal."""
    n = min(len(a), len(b))
    if n == 0 or a[0] != b[0]:
        return 0
    differ = a[:n] != b[:n]
    first = int(differ.argmax())
    return first if differ[first] else n
