"""Who may start: finds where a queued request resumes, whether a leader is worth waiting for, and room for it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..events import Attached, Event, Miss, Missed, Waited
from ..messages import Started
from ..types import Cut, CutReason, Source
from .cuts import LEARN, choose, regular
from .device import Device
from .exact import exact_position
from .keeper import Keeper
from .match import Leader, Match, find_leader, find_match
from .requests import Moment, Request, State
from .rules import Rules
from .snapshots import Snapshots

AGAIN = "computed again, in a chunk as large as a cold run's"
PATIENCE = 30.0  # seconds to wait for a leader that makes no progress


@dataclass(frozen=True, slots=True)
class Limits:
    """``n_ctx`` cells in all, ``parallel`` running requests, ``max_queue`` waiting for a place. ``reserve`` bounds
    the cells set aside for what a request may generate; beyond it running requests compete. ``exact_chunk`` as in
    `ModelInfo`."""

    n_ctx: int
    parallel: int
    max_queue: int
    reserve: int
    exact_chunk: int = 64


class Admission:
    """Moves requests from the queue to the device. Changes nothing for a request that cannot start yet, except that
    it may note a leader to wait for."""

    def __init__(
        self,
        limits: Limits,
        device: Device,
        rules: Rules,
        snapshots: Snapshots,
        keeper: Keeper,
        events: list[Event],
    ) -> None:
        self.limits, self.device, self.rules = limits, device, rules
        self.snapshots, self.keeper, self.events = snapshots, keeper, events
        self.started: list[Started] = []

    def wait_or_match(self, request: Request, running: Sequence[Request], now: float) -> Match | None:
        """Where the request resumes, or None while it waits for a leader."""
        match = self._match(request, alone=_alone(request, running))
        leader = find_leader(request, running, self.rules, match.position)
        if leader is not None and self._keeps_waiting(request, leader, running, now):
            return None
        if request.state is State.WAITING:
            request.move(Moment.REPLAN)
        return match

    def _match(self, request: Request, *, alone: bool) -> Match:
        match = find_match(self.device, self.rules, self.snapshots, request)
        return self._to_the_bit(request, match) if alone else match

    def _keeps_waiting(self, request: Request, leader: Leader, running: Sequence[Request], now: float) -> bool:
        """Wait for ``leader`` as long as it gets on: its prompt is finite, so the wait is too. One in vain is not
        repeated."""
        other = next(r for r in running if r.id == leader.request)
        if request.leader != leader.request:
            self.events.append(Waited(request.id, leader.request, leader.position))
        elif request.leader_at == other.position and now >= request.wait_until:
            request.not_again.add(leader.request)
            return False
        if (request.leader, request.leader_at) != (other.id, other.position):
            request.leader, request.leader_at, request.wait_until = other.id, other.position, now + PATIENCE
        if not self.rules.anywhere:
            self._ask_for_cut(other, leader.position)
        if request.state is State.QUEUED:
            request.move(Moment.LEADER)
        return True

    def _ask_for_cut(self, leader: Request, position: int) -> None:
        """The leader pauses where the waiting prompt parts from it, so that a state is kept exactly there."""
        near = [c for c in leader.cuts if c.position == position]
        if not near and position > leader.position:
            insort(leader.cuts, Cut(position, CutReason.DIVERGENCE), key=lambda c: c.position)

    def admit(self, request: Request, match: Match, running: Sequence[Request], now: float) -> bool:
        """Start the request at ``match`` if ids and cells allow it. False leaves everything as it was, but for
        holders that had to make room."""
        generate = min(request.max_new - len(request.generated), self.limits.reserve)
        promised = sum(self._still_wants(r) for r in running)
        wanted = self.device.cells(len(request.tokens) - match.position + generate) + promised
        shared = self._reclaimed_by(match)
        if self.device.free_cells + self.device.reclaimable() - shared < wanted:
            return False
        if self.device.free_seqs == 0:
            if not self.keeper.evict_one(now, for_cells=False, keep=match.donor):
                return False
            # What left may have been saved to the host, at the price of the state that was matched.
            match = self._match(request, alone=_alone(request, running))
        self._start(request, match, now)
        # The donor's shared cells are safe under the new sequence now, so even the donor may go.
        if request.submit.reuse and not running:
            self.keeper.replace_repeats(request, now)
        self.keeper.make_room(wanted, now)
        return True

    def _to_the_bit(self, request: Request, match: Match) -> Match:
        """Alone on the server, a warm run computes the chunks of a cold one; see `exact`. In the same cells that makes
        the same bits. Tokens that were generated are computed one by one anyway, so past a donor's prompt there is
        nothing to keep exact."""
        holder = self.device.holders.get(match.donor) if match.donor is not None else None
        if self.rules.state or holder is None or (holder.why is None and match.position > holder.prompt):
            return match
        shortest = self.limits.exact_chunk
        pauses = self.rules.pauses(choose(self._cuts(request), after=0), request.target, shortest)
        position = exact_position(match.position, pauses, request.target, shortest)
        if position < self.device.floor(holder.seq, anywhere=self.rules.anywhere):
            return match
        return replace(match, position=position) if position else Match(depth=match.depth, parts=match.parts)

    def _reclaimed_by(self, match: Match) -> int:
        """Cells of holders alone that the request would take over by sharing them."""
        if match.donor is None or not self.device.counts_cells:
            return 0
        holders = self.device.holders.keys()
        shared = 0
        for extent in self.device.tree.path(match.donor):
            if extent.start < match.position and extent.owners <= holders:
                shared += min(extent.end, match.position) - extent.start
        return shared

    def _still_wants(self, request: Request) -> int:
        """Cells that a running request has been promised and not used yet."""
        fresh = request.position - request.target
        left = min(request.max_new - len(request.generated), max(0, self.limits.reserve - max(0, fresh)))
        return self.device.cells(request.remaining + left)

    def _start(self, request: Request, match: Match, now: float) -> None:
        seq = request.seq = self.device.start(request.id, request.submit.salt)
        if match.donor is not None:
            self.keeper.touch(request, match.agreed, now)
            self.device.attach(seq, match.donor, match.position, match.snapshot)
        elif match.snapshot is not None:
            self.device.restore(seq, request.tokens[: match.position], match.snapshot)
        if match.snapshot is not None:
            self.snapshots.touch(match.snapshot, now)
        request.position = match.position
        waited = request.leader is not None and match.source is not Source.NONE
        first = request.admitted is None
        code, reason = self._explain(request, match)
        if first:
            request.admitted = now
            request.source = Source.WAIT if waited and match.position else match.source
            request.cached = match.position
            request.reason = reason
            request.parts_at = match.depth if match.parts and 0 < match.depth < len(request.tokens) else None
        request.move(Moment.ADMIT)
        self._plan_cuts(request, match)
        if first:
            self.started.append(self.report(request, match.donor_tokens))
            if match.position:
                self.events.append(Attached(request.id, request.source, match.donor, match.position))
            if code is not None:
                left = len(request.tokens) - match.position
                self.events.append(Missed(request.id, code, reason, match.depth, left))

    def report(self, request: Request, source_tokens: int) -> Started:
        """What the client is told of where its prefix came from."""
        return Started(
            id=request.id,
            source=request.source,
            cached_tokens=request.cached,
            source_tokens=source_tokens,
            reason=request.reason,
            parts_at=request.parts_at,
        )

    def _cuts(self, request: Request) -> list[Cut]:
        """What the request asks to keep and, where any position will not do, regular places."""
        asked = [c for c in request.cuts if c.reason in self.rules.holds]
        if self.rules.anywhere or not request.submit.write:
            return asked
        affordable = self.snapshots.affordable if self.rules.state else 1
        places = regular(len(request.tokens), affordable, asked)
        return asked + [c for c in places if c.reason in self.rules.holds]

    def _plan_cuts(self, request: Request, match: Match) -> None:
        """Where the request will pause. Where states count, that is also the point up to which the device agrees with
        the prompt: prompts part there, and this one passes it next."""
        behind = [c for c in request.cuts if c.position <= match.position]
        wanted = self._cuts(request)
        parting = match.position + LEARN <= match.depth < len(request.tokens)
        if parting and not self.rules.anywhere and request.submit.write:
            wanted.append(Cut(match.depth, CutReason.DIVERGENCE))
        request.cuts = behind + choose(wanted, after=match.position)

    def _explain(self, request: Request, match: Match) -> tuple[Miss | None, str]:
        """Why no more of the prompt was reused, as a code and a sentence; None and "" when all that can be was."""
        if match.position >= request.limit:
            return None, ""
        if not self.rules.shares:
            return Miss.SHARING_OFF, "sharing is off"
        if not request.submit.reuse:
            return Miss.BYPASS, "the request asked for no reuse"
        if match.depth == 0:
            return Miss.NO_MATCH, "no prompt with this beginning is in the cache"
        if match.depth > match.position and not self.rules.anywhere:
            return Miss.NO_STATE, f"no state is saved between tokens {match.position} and {match.depth}"
        if match.parts and match.depth < request.limit:
            again = f", and the tokens from {match.position} on are {AGAIN}" if match.depth > match.position else ""
            return Miss.DIFFERS, f"differs from the closest cached prompt at token {match.depth}{again}"
        if match.snapshot is not None and match.donor is None:  # what else its prompt had is not known any more
            return Miss.NO_STATE, f"no state is saved after token {match.position}"
        if match.depth > match.position:
            return Miss.EXACT, f"the last tokens are {AGAIN}"
        return None, ""


def _alone(request: Request, running: Sequence[Request]) -> bool:
    """Whether it has the server to itself. Who waited for a leader came with siblings, and computes nothing twice."""
    return not running and request.leader is None
