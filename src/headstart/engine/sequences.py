"""What lies under each sequence id of the library's context: performs memory actions, and proves what came of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import llama_cpp.llama_cpp as C

from ..core.plan import Action, Attach, Drop, Forget, Hold, Save
from ..errors import EngineError
from ..types import SeqId
from . import lib
from .model import Loaded
from .protocol import Refused


class Sequences:
    """Every id is checked here: the library ends the process on one that it does not have. Saved states live here too.

    ``swa_full``: the sliding layers keep everything, so no window has to be watched.
    """

    def __init__(self, loaded: Loaded, *, swa_full: bool) -> None:
        self._ctx, self._mem = loaded.ctx, loaded.mem
        self._rules, self._info = loaded.rules, loaded.info
        self._window = int(C.llama_model_n_swa(loaded.model)) if not swa_full else 0
        self._snapshots: dict[int, tuple[Any, int]] = {}

    # ---- actions

    def perform(self, action: Action) -> int:
        """As in `protocol.Engine`."""
        match action:
            case Attach():
                self._attach(action)
            case Hold():
                self._share(action.src, action.dst, action.position)
            case Drop():
                lib.remove_seq(self._mem, self.known(action.seq))
            case Save():
                return self._save(action)
            case Forget():
                self._snapshots.pop(action.snapshot, None)
        return 0

    def _attach(self, a: Attach) -> None:
        if a.snapshot is None:
            self._share(_named(a.src), a.dst, a.position)
            return
        self._empty(a.dst)
        blob, position = self._snapshots.get(a.snapshot, (None, -1))
        if blob is None or position != a.position:
            raise Refused(f"no saved state {a.snapshot} at position {a.position}")
        if self._rules.cells:
            src = _named(a.src)
            if self._end(src) < a.position:
                raise Refused(f"sequence {src} ends before position {a.position}")
            lib.copy_seq(self._mem, src, a.dst, a.position)
        if not lib.import_state(self._ctx, a.dst, blob):
            self._refuse(a.dst, "the saved state was not taken whole")
        self._verify(a.dst, a.position)

    def _share(self, src: SeqId, dst: SeqId, position: int) -> None:
        """Tag [0, position) of ``src`` for ``dst``; a recurrent state is shared as it stands, so ``src`` must too."""
        self._empty(dst)
        end = self._end(src)
        if end < position or (end != position and self._rules.state):
            raise Refused(f"sequence {src} stands at {end}, not at {position}")
        lib.copy_seq(self._mem, src, dst, -1 if end == position else position)
        self._verify(dst, position)

    def _verify(self, seq: SeqId, position: int) -> None:
        end = self._end(seq)
        if end != position:
            self._refuse(seq, f"the sequence stands at {end} instead of {position}")
        if self._window and not self._rules.state:
            first = lib.first_position(self._mem, seq)
            if first > max(0, position - self._window):
                self._refuse(seq, f"the window before {position} is gone: it starts at {first}")

    def _save(self, action: Save) -> int:
        if not self._rules.state:
            # On an attention cache the same call would write every cell once more.
            raise Refused(f"a {self._info.kind} model has no state to save")
        end = self._end(action.seq)
        if end != action.position:
            raise Refused(f"sequence {action.seq} stands at {end}, not at {action.position}")
        blob = lib.export_state(self._ctx, action.seq)
        if blob is None:
            raise Refused("the library gave no state")
        self._snapshots[action.snapshot] = (blob, action.position)
        return len(blob)

    def _refuse(self, seq: SeqId, why: str) -> None:
        lib.remove_seq(self._mem, seq)
        raise Refused(why)

    def _empty(self, seq: SeqId) -> None:
        if self._end(seq):
            raise EngineError(f"sequence {seq} is not empty")

    def _end(self, seq: SeqId) -> int:
        """The position after the last; 0 on an empty sequence."""
        return lib.last_position(self._mem, self.known(seq)) + 1

    # ---- around a step

    def known(self, seq: SeqId) -> SeqId:
        """``seq`` itself. Raises `EngineError` where the context has no such sequence."""
        if not 0 <= seq < self._info.n_seq:
            raise EngineError(f"no sequence {seq}; the context has {self._info.n_seq}")
        return seq

    def take_back(self, starts: Iterable[tuple[SeqId, int]]) -> None:
        """Undo what micro-batches before a failed one left: no sequence keeps more than it had at its start."""
        for seq, start in starts:
            if self._end(seq) <= start:
                continue
            if not lib.remove_seq(self._mem, seq, start):
                lib.remove_seq(self._mem, seq)
                raise EngineError(f"cells ran out inside a step and sequence {seq} could not go back to {start}")

    def floors(self) -> dict[SeqId, int]:
        """Where the windows still reach down to. Any step may have taken masked cells of any sequence."""
        if not self._window or self._rules.state:
            return {}
        firsts = {seq: lib.first_position(self._mem, seq) for seq in range(self._info.n_seq)}
        return {seq: first and first + self._window for seq, first in firsts.items() if first >= 0}

    def forget_all(self) -> None:
        """Free every saved state."""
        self._snapshots.clear()


def _named(src: SeqId | None) -> SeqId:
    if src is None:
        raise Refused("cells can only be shared with a sequence that has them")
    return src
