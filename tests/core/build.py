"""A scheduler over the fake engine, with small numbers."""

from __future__ import annotations

from collections.abc import Callable

from headstart.core.admission import Limits
from headstart.core.device import Device
from headstart.core.pace import Pace
from headstart.core.rules import rules_for
from headstart.core.scheduler import Scheduler
from headstart.core.snapshots import Snapshots
from headstart.driver import Driver
from headstart.engine.fake import FakeEngine
from headstart.types import MemoryKind


def make_driver(
    kind: MemoryKind = MemoryKind.ATTENTION,
    *,
    n_ctx: int = 4000,
    parallel: int = 4,
    extra_seqs: int = 8,
    max_queue: int = 100,
    n_batch: int = 64,
    sharing: bool = True,
    saved_states: int = 4,
    end_every: int = 17,
    slack: int = 0,
) -> tuple[FakeEngine, Driver]:
    """``saved_states`` is the host budget in states; ``slack`` is of sliding windows."""
    engine = FakeEngine(kind, n_ctx=n_ctx, n_seq=parallel + extra_seqs, end_every=end_every, slack=slack)
    rules = rules_for(kind, sharing=sharing)
    device = Device(engine.n_seq, n_ctx, counts_cells=rules.cells)
    limits = Limits(n_ctx=n_ctx, parallel=parallel, max_queue=max_queue, reserve=max(16, n_ctx // (4 * parallel)))
    snapshots = Snapshots(saved_states * engine.info.state_bytes, engine.info.state_bytes)
    return engine, Driver(engine, Scheduler(limits, rules, device, snapshots, Pace(n_batch, 20.0)))


def take_turns(driver: Driver, turn: Callable[[], bool]) -> None:
    """Call ``turn`` until nothing is left to do; fail when that never comes."""
    for _ in range(20_000):
        if not turn() and not driver.scheduler.roster.queue:
            return
    raise AssertionError("it never ends")
