"""Where a prompt can resume: the longest usable prefix over everything that is on the device, and who is about to
compute more. Pure reading; nothing here changes a book or a timestamp."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..types import RequestId, SeqId, Source
from .device import Device
from .extents import common_prefix
from .requests import Request, State
from .rules import Rules
from .snapshots import Snapshots

WORTH_WAITING = 32  # tokens; below this a wait costs more in latency than the prefill that it saves


@dataclass(frozen=True, slots=True)
class Match:
    """The prompt resumes at ``position`` of ``donor`` (0: from nothing), which agrees with it up to ``agreed``.
    Without a donor the ``snapshot`` is all that is needed.

    ``depth`` is how far any path on the device agrees with the prompt, and ``parts`` whether one goes on in another
    way there; where ``position`` is less, the model kind has no state to resume from at ``depth``.
    """

    position: int = 0
    donor: SeqId | None = None
    source: Source = Source.NONE
    donor_tokens: int = 0
    snapshot: int | None = None
    agreed: int = 0
    depth: int = 0
    parts: bool = False


@dataclass(frozen=True, slots=True)
class Leader:
    """``request`` is prefilling and will have computed ``position`` tokens of the prompt that asks."""

    request: RequestId
    position: int


def find_match(device: Device, rules: Rules, snapshots: Snapshots, request: Request) -> Match:
    """The longest prefix that the request can start from. At least its last token is left to compute, for its logits.

    Among equally long ones an idle donor wins over a running one, and a device state over a saved one.
    """
    if not (rules.shares and request.submit.reuse):
        return Match()
    best, depth, parts = Match(), 0, False
    for extent, matched in device.tree.walk(request.tokens, request.submit.salt):
        goes_on = matched < extent.end or bool(extent.children)
        if matched >= depth:
            depth, parts = matched, goes_on or (parts and matched == depth)
        position = min(matched, request.limit)
        donors = [seq for seq in extent.owners if device.floor(seq, anywhere=rules.anywhere) <= position]
        best = max(best, _from_donors(device, position, donors), key=_preference)
    saved = _from_snapshot(device, rules, snapshots, request, above=best.position)
    found = saved or best
    return replace(found, depth=max(depth, found.position), parts=parts and depth >= found.position)


def _preference(match: Match) -> tuple[int, bool]:
    return match.position, match.source is Source.HOLDER


def _from_donors(device: Device, position: int, donors: list[SeqId]) -> Match:
    if not donors or position <= 0:
        return Match()
    donor = next((seq for seq in donors if seq in device.holders), donors[0])
    source = Source.HOLDER if donor in device.holders else Source.ATTACH
    return Match(position, donor, source, device.tree.length(donor), agreed=position)


def _from_snapshot(device: Device, rules: Rules, snapshots: Snapshots, request: Request, above: int) -> Match | None:
    """A saved state further along than ``above``, under the cells of whoever has that prefix; where tokens take no
    cells it needs nobody."""
    saved = snapshots.find(request.tokens, request.limit, above, request.submit.salt) if rules.state else None
    if saved is None:
        return None
    for extent, matched in device.tree.walk(request.tokens, request.submit.salt):
        if matched >= saved.position:
            donor = next(iter(extent.owners))
            length = device.tree.length(donor)
            return Match(saved.position, donor, Source.SNAPSHOT, length, saved.id, agreed=saved.position)
    if rules.cells:
        return None
    return Match(saved.position, None, Source.SNAPSHOT, saved.position, saved.id, agreed=saved.position)


def find_leader(request: Request, running: Iterable[Request], rules: Rules, have: int) -> Leader | None:
    """The running prefill that will cover most of this prompt, if it covers enough more than ``have``.

    Where states count, a leader that has already passed the point where the prompts part is of no use.
    """
    best: Leader | None = None
    if not (rules.shares and request.submit.reuse):
        return best
    for other in running:
        if other.state is not State.PREFILL or other.id in request.not_again:
            continue
        if other.submit.salt != request.submit.salt:
            continue
        shared = min(common_prefix(other.tokens[: other.target], request.tokens), request.limit)
        ahead = rules.anywhere or other.position <= shared
        # Who waits already waits for the last token: leaving a little early would compute the rest once more.
        worth = 1 if other.id == request.leader else WORTH_WAITING
        if ahead and shared - have >= worth and (best is None or shared > best.position):
            best = Leader(other.id, shared)
    return best
