"""What stays on the device when a prefill passes a cut or a session ends, and what leaves when room runs out."""

from __future__ import annotations

import numpy as np

from ..events import Event, Evicted, Held
from ..types import Cut, CutReason, SeqId
from .device import Device, Holder
from .plan import Forget, Save
from .requests import Request
from .rules import Rules
from .snapshots import Snapshots
from .worth import SHARED_KINDS, least_worth


class Keeper:
    """Holds, supersedes and evicts, through the device's and the snapshots' books. ``events`` takes what it did.

    ``spare`` sequence ids are left to requests that have yet to start; only the ids beyond them become holders at cuts.
    """

    def __init__(self, device: Device, rules: Rules, snapshots: Snapshots, events: list[Event], *, spare: int) -> None:
        self.device, self.rules, self.snapshots, self.events, self.spare = device, rules, snapshots, events, spare

    # ---- keeping

    def pass_cuts(self, request: Request, now: float) -> None:
        """Keep the prefix at every cut that the request's sequence has reached; the cuts behind it are done with."""
        while request.cuts and request.cuts[0].position <= request.position:
            cut = request.cuts.pop(0)
            if cut.reason in self.rules.holds:
                self._keep(request, cut, now)

    def _keep(self, request: Request, cut: Cut, now: float) -> None:
        assert request.seq is not None
        holder = self._holder_of(request, cut.position)
        if holder is not None:
            holder.used, holder.keep_until = now, max(holder.keep_until, now + (cut.ttl or 0.0))
            holder.why = _stronger(holder.why, cut.reason)
            request.kept = max(request.kept, cut.position)
        elif self.rules.anywhere or cut.position == request.position:
            self._hold(request, request.seq, cut, now)

    def _holder_of(self, request: Request, position: int) -> Holder | None:
        """Who keeps the prompt's first ``position`` tokens already, in whichever cells."""
        for extent, matched in self.device.tree.walk(request.tokens[:position], request.submit.salt):
            if matched == position == extent.end:
                present = [s for s in self.device.tree.ends_at(extent) if s in self.device.holders]
                if present:
                    return self.device.holders[present[0]]
        return None

    def _hold(self, request: Request, seq: SeqId, cut: Cut, now: float) -> None:
        """Keep the prefix on the device where other sessions want it, and else its state on the host."""
        request.kept = max(request.kept, cut.position)
        on_device = cut.reason in SHARED_KINDS or not self.snapshots.enabled
        if on_device and self._free_an_id(now, keep=None):
            holder = self.device.hold(seq, cut.position, cut.reason, now, cut.ttl)
            self.events.append(Held(holder.seq, cut.position, cut.reason))
        elif self.rules.state:
            self._save(seq, cut.reason, now)

    def _free_an_id(self, now: float, keep: SeqId | None) -> bool:
        """Make sure that a holder can have an id without taking one that a request may need."""
        busy = len(self.device.running)
        while self.device.free_seqs + busy <= self.spare:
            if not self.evict_one(now, for_cells=False, keep=keep):
                return False
        return self.device.free_seqs > 0

    def _save(self, seq: SeqId, why: CutReason, now: float) -> None:
        """Copy the state of ``seq`` as it stands to the host, unless it is there already or none is wanted."""
        tokens, salt = self.device.tree.tokens(seq), self.device.tree.salt(seq)
        if not self.snapshots.enabled or self.snapshots.has(tokens, salt):
            return
        saved, gone = self.snapshots.add(tokens, why, now, salt)
        for snapshot in gone:
            self.device.note(Forget(snapshot))
        self.device.note(Save(seq, saved.position, saved.id))

    def settle(self, request: Request, now: float) -> None:
        """The request is over. Its sequence stays for the next turn; what it makes superfluous goes."""
        seq, request.seq = request.seq, None
        if seq is None:
            return
        if not self.rules.shares or not request.submit.write:
            self.device.drop(seq)
            return
        holder = self.device.settle(seq, request.n_prompt, now)
        if holder is not None:
            self.events.append(Held(seq, holder.tokens, None))
            self._supersede(holder, now)

    def _supersede(self, new: Holder, now: float) -> None:
        """A session that came back takes its earlier turns' place, with their hits and one more. The cells it shares
        with them stay; where a state ended there it goes to the host, so that an edited last turn can still resume."""
        for old in self._earlier_turns(new):
            new.hits = max(new.hits, old.hits + 1)
            if old.keep_until <= now:
                self._evict(old.seq, "superseded", now)

    def _earlier_turns(self, new: Holder) -> list[Holder]:
        """Sessions that end inside ``new``, or whose answer it gives in other words in its longer prompt: clients drop
        reasoning and write tool calls anew."""
        tree, common = self.device.tree, dict.fromkeys(self.device.holders, 0)
        for extent, matched in tree.walk(tree.tokens(new.seq), tree.salt(new.seq)):
            common |= dict.fromkeys(common.keys() & extent.owners, matched)
        sessions = [h for h in self.device.holders.values() if h.why is None and h.seq != new.seq]
        return [h for h in sessions if common[h.seq] == h.tokens or h.prompt <= min(common[h.seq], new.prompt - 1)]

    def replace_repeats(self, request: Request, now: float) -> None:
        """A prompt that is asked again supersedes its earlier answers. The new answer then takes their cells, so that
        it is computed exactly as the first one was: the library's rounding depends on the highest cell in use."""
        for seq, holder in list(self.device.holders.items()):
            if holder.why is None and holder.prompt == request.n_prompt and holder.keep_until <= now:
                tree, prompt = self.device.tree, request.tokens[: request.n_prompt]
                if tree.salt(seq) == request.submit.salt and np.array_equal(tree.tokens(seq)[: len(prompt)], prompt):
                    self._evict(seq, "asked_again", now)

    def touch(self, request: Request, position: int, now: float) -> None:
        """The request found its first ``position`` tokens here: every holder of a part of them has proved its worth."""
        for extent, matched in self.device.tree.walk(request.tokens[:position], request.submit.salt):
            if matched < extent.end:
                continue
            for seq in self.device.tree.ends_at(extent):
                holder = self.device.holders.get(seq)
                if holder is not None:
                    holder.used, holder.hits = now, holder.hits + 1

    # ---- making room

    def make_room(self, cells: int, now: float) -> bool:
        """Evict holders until ``cells`` cells are free. False, with nothing evicted, when all of them would not do."""
        if self.device.free_cells + self.device.reclaimable() < cells:
            return False
        while self.device.free_cells < cells:
            if not self.evict_one(now, for_cells=True):
                return False
        return True

    def evict_one(self, now: float, *, for_cells: bool, keep: SeqId | None = None) -> bool:
        """Give up the holder that is worth least; False when there is none."""
        seq = least_worth(self.device, self.rules, now, for_cells=for_cells, keep=keep)
        if seq is None:
            return False
        self._evict(seq, "cells" if for_cells else "sequence_ids", now)
        return True

    def _evict(self, seq: SeqId, why: str, now: float) -> None:
        holder = self.device.holders[seq]
        if self.rules.state and self._someone_keeps_cells(seq):
            self._save(seq, holder.why or CutReason.GENERATION, now)
        freed = self.device.drop(seq)
        self.events.append(Evicted(seq, holder.tokens, freed, why))

    def _someone_keeps_cells(self, seq: SeqId) -> bool:
        """A state without the cells of its prefix is of no use (where tokens take no cells it always is)."""
        return not self.rules.cells or self.device.tree.own_cells(seq) == 0


def _stronger(a: CutReason | None, b: CutReason) -> CutReason:
    """The reason that speaks more for keeping: what other sessions share beats one session's own cut."""
    return a if a in SHARED_KINDS else b
