"""What lies on the device: sequence ids, the cells they share, and the holders that pin prefixes.

The one owner of all three. Every change of the device's content goes through a method here, which updates the books
and notes the action for the engine, so that books and library cannot drift apart. `take_actions` drains the notes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..types import CutReason, RequestId, SeqId, Token
from .extents import TokenArray
from .plan import Action, Attach, Drop, Hold
from .tree import ExtentTree


@dataclass(slots=True)
class Holder:
    """An idle sequence that pins a prefix. ``why`` None: a session ended here and may come back for its next turn."""

    seq: SeqId
    tokens: int
    why: CutReason | None
    created: float
    used: float
    hits: int = 0
    keep_until: float = 0.0
    prompt: int = 0  # tokens of a session's prompt; what follows is the answer


class Device:
    """``n_seq`` sequence ids over ``n_cells`` cells; with ``counts_cells`` False tokens take no cells (recurrent).

    There must be more ids than requests that run at once, so that a donor never has to leave for its own follower.
    """

    def __init__(self, n_seq: int, n_cells: int, *, counts_cells: bool = True) -> None:
        self.n_seq, self.n_cells, self.counts_cells = n_seq, n_cells, counts_cells
        self.tree = ExtentTree()
        self.holders: dict[SeqId, Holder] = {}
        self.running: dict[SeqId, RequestId] = {}
        self.floors: dict[SeqId, int] = {}  # sliding windows: as read before a plan that admits requests
        self._salts: dict[SeqId, str] = {}  # of the running ones; a path keeps its own
        self._free = list(range(n_seq - 1, -1, -1))
        self._actions: list[Action] = []
        self._made_by: dict[SeqId, Attach | Hold] = {}  # what filled a sequence that is still what it was filled with

    # ---- reading

    def floor(self, seq: SeqId, *, anywhere: bool) -> int:
        """The lowest position at which another sequence can attach to ``seq``: any, only its end, or where the engine
        last saw a whole window before it."""
        return 0 if anywhere else min(self.floors.get(seq, self.tree.length(seq)), self.tree.length(seq))

    @property
    def free_seqs(self) -> int:
        return len(self._free)

    @property
    def used_cells(self) -> int:
        return self.tree.used if self.counts_cells else 0

    @property
    def free_cells(self) -> int:
        return self.n_cells - self.used_cells

    def cells(self, tokens: int) -> int:
        """Cells that ``tokens`` tokens take."""
        return tokens if self.counts_cells else 0

    def reclaimable(self) -> int:
        """Cells that removing every holder would free."""
        return self.tree.exclusive(self.holders.keys() - self.running.keys()) if self.counts_cells else 0

    # ---- changing

    def start(self, request: RequestId, salt: str = "") -> SeqId:
        """Give ``request`` an empty sequence. The caller has made sure that one is free."""
        seq = self._free.pop()
        self.running[seq], self._salts[seq] = request, salt
        return seq

    def attach(self, seq: SeqId, src: SeqId, position: int, snapshot: int | None = None) -> None:
        """Let the empty running ``seq`` share [0, position) of ``src``."""
        self.tree.share(src, seq, position)
        self._make(Attach(self.running[seq], src, seq, position, snapshot))

    def restore(self, seq: SeqId, tokens: TokenArray, snapshot: int) -> None:
        """Put the saved state after ``tokens`` into the empty running ``seq``, where tokens take no cells."""
        assert not self.counts_cells
        self.tree.append(seq, tokens.tolist(), self._salts[seq])
        self._make(Attach(self.running[seq], None, seq, len(tokens), snapshot))

    def hold(self, src: SeqId, position: int, why: CutReason, now: float, ttl: float | None) -> Holder:
        """Pin [0, position) of ``src`` under a free sequence."""
        seq = self._free.pop()
        self.tree.share(src, seq, position)
        self._make(Hold(src, seq, position))
        holder = Holder(seq, position, why, now, now, keep_until=now + (ttl or 0.0))
        self.holders[seq] = holder
        return holder

    def append(self, seq: SeqId, tokens: list[Token] | tuple[Token, ...]) -> None:
        """The engine has computed ``tokens`` on ``seq``."""
        self.tree.append(seq, tokens, self._salts[seq])

    def settle(self, seq: SeqId, prompt: int, now: float) -> Holder | None:
        """The request on ``seq`` is over: the sequence stays as a holder. None when it had computed nothing."""
        del self.running[seq], self._salts[seq]
        tokens = self.tree.length(seq)
        if tokens == 0:
            self._free.append(seq)
            return None
        holder = Holder(seq, tokens, None, now, now, prompt=prompt)
        self.holders[seq] = holder
        return holder

    def drop(self, seq: SeqId) -> int:
        """Remove a sequence, running or holder, and return how many cells that freed."""
        before = self.used_cells
        if self.tree.length(seq):
            self._actions.append(Drop(seq))
        self.tree.remove(seq)
        self._made_by.pop(seq, None)
        self.running.pop(seq, None)
        self._salts.pop(seq, None)
        self.floors.pop(seq, None)
        self.holders.pop(seq, None)
        self._free.append(seq)
        return before - self.used_cells

    def _make(self, action: Attach | Hold) -> None:
        self._actions.append(action)
        self._made_by[action.dst] = action

    def lost(self, action: Attach | Hold) -> bool:
        """The library refused ``action`` and left its destination empty: take those cells off the books. False when
        the sequence has been dropped or given away in the same plan, so that nothing is left to correct."""
        if self._made_by.get(action.dst) is not action:
            return False
        self.tree.remove(action.dst)
        return True

    def note(self, action: Action) -> None:
        """Queue an action that changes no cells (saved states)."""
        self._actions.append(action)

    def take_actions(self) -> tuple[Action, ...]:
        """The actions since the last call, in the order in which they must be performed."""
        actions, self._actions = tuple(self._actions), []
        return actions

    # ---- proof

    def check(self) -> None:
        """Free + running + holders == all ids; only they own cells; no more cells are used than there are."""
        self.tree.check()
        ids = [*self._free, *self.running, *self.holders]
        assert sorted(ids) == list(range(self.n_seq)), "a sequence id is lost or held twice"
        assert self.tree.sequences() <= self.running.keys() | self.holders.keys()
        assert self.used_cells <= self.n_cells
        for seq, holder in self.holders.items():
            assert holder.tokens == self.tree.length(seq)
