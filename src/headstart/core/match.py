"""Where a prompt can resume: the longest usable prefix over everything that is on the device, and who is about to
compute more. Pure reading; nothing here changes a book or a timestamp."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..types import RequestId, SeqId, Source
from .device import Device
from .extents import TokenArray, common_prefix
from .requests import Request, State
from .rules import Rules
from .snapshots import Snapshots

WORTH_WAITING = 32  # tokens; below this a wait costs more in latency than the prefill that it saves


@dataclass(frozen=True, slots=True)
class Match:
    """The prompt resumes at ``position`` of ``donor`` (0: from nothing).

    ``depth`` is how far any path on the device agrees with the prompt; where ``position`` is less, the model kind
    has no state to resume from at ``depth``.
    """

    position: int = 0
    donor: SeqId | None = None
    source: Source = Source.NONE
    donor_tokens: int = 0
    snapshot: int | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Leader:
    """``request`` is prefilling and will have computed ``position`` tokens of the prompt that asks."""

    request: RequestId
    position: int


def find_match(device: Device, rules: Rules, snapshots: Snapshots, tokens: TokenArray, limit: int) -> Match:
    """The longest prefix of ``tokens``, at most ``limit`` long, that a new sequence can start from.

    Among equally long ones an idle donor wins over a running one, and a device state over a saved one.
    """
    best = Match()
    depth = 0
    if not rules.shares:
        return best
    for extent, matched in device.tree.walk(tokens):
        depth = max(depth, matched)
        if rules.anywhere:
            position, donors = min(matched, limit), list(extent.owners)
        elif matched == extent.end and matched <= limit:
            position, donors = matched, device.tree.ends_at(extent)
        else:
            continue
        if donors and position > 0 and (position > best.position or best.source is Source.ATTACH):
            donor = next((seq for seq in donors if seq in device.holders), donors[0])
            source = Source.HOLDER if donor in device.holders else Source.ATTACH
            if position > best.position or source is Source.HOLDER and position == best.position:
                best = Match(position, donor, source, device.tree.length(donor))
    best = _or_snapshot(device, rules, snapshots, tokens, min(limit, depth), best)
    return Match(best.position, best.donor, best.source, best.donor_tokens, best.snapshot, depth)


def _or_snapshot(
    device: Device, rules: Rules, snapshots: Snapshots, tokens: TokenArray, limit: int, best: Match
) -> Match:
    """A saved state further along than ``best``, under the cells of whoever has that prefix."""
    if not rules.state:
        return best
    saved = snapshots.find(tokens, limit, above=best.position)
    if saved is None:
        return best
    for extent, matched in device.tree.walk(tokens):
        if matched >= saved.position:
            donor = next(iter(extent.owners))
            return Match(saved.position, donor, Source.SNAPSHOT, device.tree.length(donor), saved.id)
    return best


def find_leader(request: Request, running: Iterable[Request], rules: Rules, have: int, limit: int) -> Leader | None:
    """The running prefill that will cover most of this prompt, if it covers enough more than ``have``.

    Where states count, a leader that has already passed the point where the prompts part is of no use.
    """
    best: Leader | None = None
    for other in running:
        if other.state is not State.PREFILL or other.id in request.not_again:
            continue
        shared = min(common_prefix(other.tokens[: other.target], request.tokens), limit)
        ahead = rules.anywhere or other.position <= shared
        if ahead and shared - have >= WORTH_WAITING and (best is None or shared > best.position):
            best = Leader(other.id, shared)
    return best
