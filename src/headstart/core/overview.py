"""The books at a glance: the figures that metrics show, and everything live for /slots. Pure reading."""

from __future__ import annotations

from ..events import Usage
from ..messages import SlotView, Snapshot
from .device import Device, Holder
from .requests import Request
from .scheduler import Scheduler


def usage(scheduler: Scheduler) -> Usage:
    """How much of everything is taken, and how many wait for it."""
    device, roster, snapshots = scheduler.device, scheduler.roster, scheduler.snapshots
    queued = roster.count_queued()
    return Usage(
        cells_used=device.used_cells,
        cells_total=device.n_cells,
        running=len(roster.running),
        queued=queued,
        waiting=len(roster.queue) - queued,
        holders=len(device.holders),
        seqs_free=device.free_seqs,
        seqs_total=device.n_seq,
        saved_states=len(snapshots),
        saved_bytes=snapshots.bytes_used,
        saved_budget=snapshots.budget if scheduler.rules.state else 0,
    )


def snapshot(scheduler: Scheduler, nonce: int) -> Snapshot:
    """Every request and holder; ``nonce`` is of the `Inspect` that it answers."""
    device, now = scheduler.device, usage(scheduler)
    return Snapshot(
        nonce=nonce,
        slots=[
            *(_of_request(request, device) for request in scheduler.roster.everyone()),
            *(_of_holder(holder, device) for holder in device.holders.values()),
        ],
        cells_used=now.cells_used,
        cells_total=now.cells_total,
        running=now.running,
        queued=now.queued,
        waiting=now.waiting,
    )


def _of_request(request: Request, device: Device) -> SlotView:
    return SlotView(
        seq=-1 if request.seq is None else request.seq,
        state=request.state,
        id=request.id,
        n_tokens=request.position,
        n_prompt=request.n_prompt,
        n_cached=request.cached,
        n_decoded=len(request.generated),
        own_cells=0 if request.seq is None else device.tree.own_cells(request.seq),
        reason=request.reason,
    )


def _of_holder(holder: Holder, device: Device) -> SlotView:
    return SlotView(
        state="holder",
        reason=holder.why or "session",
        hits=holder.hits,
        seq=holder.seq,
        id=None,
        n_tokens=holder.tokens,
        n_prompt=holder.tokens,
        n_cached=holder.tokens,
        n_decoded=0,
        own_cells=device.tree.own_cells(holder.seq),
    )
