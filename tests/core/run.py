"""A driver on the fake engine with everything that it replied, for scenarios."""

from __future__ import annotations

import random
from collections.abc import Callable

from headstart.driver import Driver
from headstart.engine.fake import FakeEngine
from headstart.messages import Failed, Finished, Progress, Sampled, Started, Submit
from headstart.types import Cut, CutReason, MemoryKind
from tests.core.build import make_driver, take_turns


def words(n: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1, 999) for _ in range(n)]


class Run:
    """A driver, its engine, and everything that was replied."""

    def __init__(self, kind: MemoryKind = MemoryKind.ATTENTION, **settings: int) -> None:
        self.engine: FakeEngine
        self.driver: Driver
        self.engine, self.driver = make_driver(kind, **{"end_every": 0, **settings})
        self.started: dict[str, Started] = {}
        self.ended: dict[str, Finished | Failed] = {}
        self.said: dict[str, list[int]] = {}
        self.reached: dict[str, int] = {}
        self.events: list[object] = []

    def submit(self, name: str, tokens: list[int], *, head: int = 0, max_tokens: int = 3, **more: object) -> None:
        cuts = [Cut(head, CutReason.HEAD)] if head else []
        self.driver.submit(
            Submit(id=name, tokens=tokens, max_tokens=max_tokens, **{"cuts": cuts, **more}), self.engine.now
        )

    def turn(self, n: int = 1, interrupted: Callable[[], bool] = lambda: True) -> bool:
        busy = True
        for _ in range(n):
            busy = self.driver.turn(self.engine.now, interrupted)
            self.driver.scheduler.check()
            replies, events = self.driver.take()
            self.events += events
            for reply in replies:
                match reply:
                    case Started(id=i):
                        self.started[i] = reply
                    case Finished(id=i) | Failed(id=i):
                        self.ended[i] = reply
                    case Sampled(id=i, token=token):
                        self.said.setdefault(i, []).append(token)
                    case Progress(id=i, processed=n_done):
                        self.reached[i] = n_done
        return busy

    def finish(self, interrupted: Callable[[], bool] = lambda: True) -> None:
        take_turns(self.driver, lambda: self.turn(interrupted=interrupted))

    def uncached(self, name: str) -> int:
        end = self.ended[name]
        assert isinstance(end, Finished)
        return end.timings.prompt_n

    def holders(self) -> list[int]:
        return sorted(h.tokens for h in self.driver.scheduler.device.holders.values())
