"""Who gives way when cells run out: holders first, then the youngest running request, which returns to the queue."""

from __future__ import annotations

from ..events import Preempted
from .device import Device
from .keeper import Keeper
from .news import News
from .pace import Pace
from .requests import Moment, State
from .roster import Roster


class Room:
    """Finds cells for what runs. Room for requests that have yet to start is `Admission`'s to find."""

    def __init__(self, device: Device, keeper: Keeper, pace: Pace, roster: Roster, news: News) -> None:
        self.device, self.keeper, self.pace, self.roster, self.news = device, keeper, pace, roster, news

    def for_decodes(self, now: float) -> None:
        """Each decode of the next step needs a cell. Afterwards they are free."""
        while True:
            needed = self.device.cells(self.roster.count_decoding())
            if self.device.free_cells >= needed or self.keeper.make_room(needed, now):
                return
            self._preempt_youngest(now)

    def for_prefills(self, now: float) -> int:
        """Cells that prompt tokens may take in the next step, beside its decodes; holders make room for as many as are
        wanted."""
        if not self.device.counts_cells:
            return self.pace.n_batch
        wanted = min(self.pace.n_batch, sum(r.remaining for r in self.roster.running if r.state is State.PREFILL))
        if not wanted:
            return 0
        decodes = self.roster.count_decoding()
        possible = self.device.free_cells + self.device.reclaimable()
        self.keeper.make_room(min(decodes + wanted, possible), now)
        free = self.device.free_cells - decodes
        if free <= 0 and not decodes:
            # Only prompts are running and none can go on: the youngest makes room for the others.
            self._preempt_youngest(now)
            return self.for_prefills(now)
        return free

    def for_the_same_step(self, now: float) -> bool:
        """The step found fewer cells than the books have: somebody gives way before it is tried again. False when
        there is nobody but the one request that wants them."""
        if self.keeper.evict_one(now, for_cells=True):
            return True
        if len(self.roster.running) > 1:
            self._preempt_youngest(now)
            return True
        return False

    def _preempt_youngest(self, now: float) -> None:
        """Take its cells and put it first in the queue, to resume from what others still hold."""
        request = self.roster.youngest()
        assert request.seq is not None
        self.news.events.append(Preempted(request.id, request.position))
        self.roster.requeue(request)
        self.device.drop(request.seq)
        request.move(Moment.PREEMPT)
        request.rewind()
