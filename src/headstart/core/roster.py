"""Requests that have not ended: the queue and those that run. The one owner of both lists."""

from __future__ import annotations

from ..types import RequestId
from .requests import Request, State


class Roster:
    """``queue`` is in order of arrival, but for requests that gave way: they are first, to go on soon."""

    def __init__(self) -> None:
        self.queue: list[Request] = []
        self.running: list[Request] = []

    # ---- reading

    def everyone(self) -> list[Request]:
        """Those that run, then those that do not."""
        return [*self.running, *self.queue]

    def find(self, request: RequestId) -> Request | None:
        """The live request of that id, or None: it has ended already."""
        return next((r for r in self.everyone() if r.id == request), None)

    def youngest(self) -> Request:
        """The running request that arrived last."""
        return max(self.running, key=lambda r: r.arrived)

    def count_decoding(self) -> int:
        """Requests that need a cell for their next token."""
        return sum(r.state is State.DECODE for r in self.running)

    def count_queued(self) -> int:
        """Queued requests that do not wait for a leader."""
        return sum(r.state is State.QUEUED for r in self.queue)

    # ---- changing

    def start(self, request: Request) -> None:
        """From the queue to those that run."""
        self.queue.remove(request)
        self.running.append(request)

    def requeue(self, request: Request) -> None:
        """From those that run to the front of the queue."""
        self.running.remove(request)
        self.queue.insert(0, request)

    def remove(self, request: Request) -> None:
        """The request is over, wherever it was."""
        (self.running if request.running else self.queue).remove(request)

    # ---- proof

    def check(self) -> None:
        """Nobody is listed twice; who runs has a sequence, who waits has none."""
        everyone = self.everyone()
        assert len({r.id for r in everyone}) == len(everyone)
        assert all(r.seq is not None and r.running for r in self.running)
        assert all(r.seq is None and not r.running for r in self.queue)
