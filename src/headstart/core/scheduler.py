"""The whole of deciding: requests in, plans out, facts back. Pure but for its own books; time is an argument.

submit/abort ──> queue ──admission──> running ──step──> done / refused / out_of_cells
                   ^                     |
                   └──── preempted ──────┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import RequestError, context_length_exceeded
from ..events import Done, Event, FirstToken, Preempted, Queued, Stepped, TierFailed
from ..messages import Failed, Finished, Progress, Reply, Sampled, Submit
from ..types import FinishReason, RequestId, SeqId, Source
from .admission import Admission, Limits
from .device import Device
from .keeper import Keeper
from .pace import Pace
from .plan import Action, Attach, Decode, Hold, Pick, Prefill, Save, Step
from .requests import Moment, Request, State
from .rules import Rules
from .snapshots import Snapshots
from .stepping import compose

LOOKAHEAD = 2  # queued requests per slot that are examined in one plan


@dataclass(frozen=True, slots=True)
class Plan:
    """Perform ``actions`` in order, then run ``step``, if there is one."""

    actions: tuple[Action, ...]
    step: Step | None


class Scheduler:
    """Decides for one model. `plan`, perform it, report with `done`; replies and events wait in `take_news`."""

    def __init__(self, limits: Limits, rules: Rules, device: Device, snapshots: Snapshots, pace: Pace) -> None:
        self.limits, self.rules, self.device, self.snapshots, self.pace = limits, rules, device, snapshots, pace
        self.keeper = Keeper(device, rules, snapshots, spare=limits.parallel)
        self.admission = Admission(limits, device, rules, snapshots, self.keeper, pace)
        self.queue: list[Request] = []
        self.running: list[Request] = []
        self._replies: list[Reply] = []
        self._events: list[Event] = []

    # ---- requests come and go

    def submit(self, submit: Submit, now: float) -> None:
        """Queue a request. Raises `RequestError` when it can never fit, or the queue is full."""
        n = len(submit.tokens)
        if n >= self.limits.n_ctx:
            raise context_length_exceeded(n, self.limits.n_ctx)
        # Requests that arrive in one step are all here before any of them starts: count the free places too.
        if len(self.queue) >= self.limits.max_queue + self.limits.parallel - len(self.running):
            ahead = sum(self.pace.seconds(r.remaining) for r in [*self.running, *self.queue])
            raise RequestError(
                f"{len(self.queue)} requests are waiting already.",
                status=429,
                kind="rate_limit_error",
                code="queue_full",
                retry_after=min(max(1, round(ahead)), 60),
            )
        free = self.limits.n_ctx - n
        request = Request.of(submit, min(submit.max_tokens if submit.max_tokens is not None else free, free), now)
        if not submit.write and not submit.cuts:
            request.cuts = []
        self.queue.append(request)
        self._events.append(Queued(request.id, n))

    def abort(self, request_id: RequestId, now: float) -> None:
        """The client left. What was computed stays; an unknown id has finished already."""
        for request in [*self.queue, *self.running]:
            if request.id == request_id:
                self._finish(request, FinishReason.ABORT, now)
                return

    def fail(self, request_id: RequestId, error: Failed, now: float) -> None:
        """The engine could not go on with this request."""
        for request in [*self.queue, *self.running]:
            if request.id == request_id:
                self._end(request, now)
                self._replies.append(error)
                self._events.append(Done(request.id, None, request.n_prompt, len(request.generated), 0.0))

    def _finish(self, request: Request, reason: FinishReason, now: float) -> None:
        written = request.n_prompt - request.cached if request.submit.write else max(0, request.kept - request.cached)
        if not self.rules.shares or request.seq is None:
            written = 0
        computed = min(written, max(0, request.position - request.cached))
        self._end(request, now)
        timings = request.timings(now)
        self._replies.append(Finished(request.id, reason, timings, computed))
        self._events.append(Done(request.id, reason, request.n_prompt, len(request.generated), timings.predicted_ms))

    def _end(self, request: Request, now: float) -> None:
        (self.running if request.running else self.queue).remove(request)
        if request.seq is not None:
            self.keeper.pass_cuts(request, now)  # those of the last step, which no plan has seen yet
        request.move(Moment.END)
        self.keeper.settle(request, now)

    # ---- plan

    def plan(self, now: float) -> Plan:
        """What to do next. An empty plan means that there is nothing to do until something arrives."""
        for request in self.running:
            self.keeper.pass_cuts(request, now)
        self._admit(now)
        step = self._compose(now)
        return Plan(self.device.take_actions(), step)

    def _admit(self, now: float) -> None:
        """Start queued requests in order of arrival. One that waits for a leader lets others pass; one for which
        there is no room does not, or it might never find any."""
        for request in self.queue[: LOOKAHEAD * self.limits.parallel + len(self.running)]:
            match = self.admission.wait_or_match(request, self.running, now)
            if match is None:
                continue
            if len(self.running) >= self.limits.parallel or not self.admission.admit(request, match, self.running, now):
                return
            self.queue.remove(request)
            self.running.append(request)
            self.keeper.pass_cuts(request, now)

    def _compose(self, now: float) -> Step | None:
        self._make_room_for_decodes(now)
        cells = self._cells_for_prefill(sum(r.state is State.DECODE for r in self.running), now)
        return compose(self.running, cells, self.pace, self.rules, self.limits.exact_chunk, now)

    def _make_room_for_decodes(self, now: float) -> None:
        """Each decode needs a cell. Holders go first, then the youngest running request returns to the queue."""
        while True:
            needed = self.device.cells(sum(r.state is State.DECODE for r in self.running))
            if self.device.free_cells >= needed or self.keeper.make_room(needed, now):
                return
            self._preempt(max(self.running, key=lambda r: r.arrived), now)

    def _cells_for_prefill(self, decodes: int, now: float) -> int:
        """Cells that prompt tokens may take in this step; holders make room for as many as are wanted."""
        if not self.device.counts_cells:
            return self.pace.n_batch
        wanted = min(self.pace.n_batch, sum(r.remaining for r in self.running if r.state is State.PREFILL))
        possible = self.device.free_cells + self.device.reclaimable()
        self.keeper.make_room(min(decodes + wanted, possible), now)
        free = self.device.free_cells - decodes
        if free <= 0 and wanted and not decodes:
            # Only prompts are running and none can go on: the youngest makes room for the others.
            self._preempt(max(self.running, key=lambda r: r.arrived), now)
            return self._cells_for_prefill(decodes, now)
        return free

    def _preempt(self, request: Request, now: float) -> None:
        """Take the request's cells and put it first in the queue, to resume from what others still hold."""
        assert request.seq is not None
        self._events.append(Preempted(request.id, request.position))
        self.running.remove(request)
        self.device.drop(request.seq)
        request.move(Moment.PREEMPT)
        request.rewind()
        self.queue.insert(0, request)

    # ---- facts come back

    def done(self, step: Step, picks: Sequence[Pick], ms: float, now: float, floors: Mapping[SeqId, int]) -> None:
        """The step was computed: book its tokens and pass the sampled ones on. ``floors`` as in `Device.floors`."""
        self.device.floors = dict(floors)
        self.pace.observe(step, ms)
        by_id = {r.id: r for r in self.running}
        for entry in step.entries:
            request = by_id[entry.request]
            tokens = (entry.token,) if isinstance(entry, Decode) else entry.tokens
            self.device.append(entry.seq, tokens)
            request.position += len(tokens)
            if isinstance(entry, Prefill):
                self._report_progress(request, now)
        for pick in picks:
            self._pick(by_id[pick.request], pick, now)
        prefill = step.n_tokens - len(step.decodes)
        self._events.append(Stepped(prefill, len(step.decodes), ms))

    def _report_progress(self, request: Request, now: float) -> None:
        if request.preemptions or request.admitted is None:
            return
        elapsed = (now - request.admitted) * 1e3
        self._replies.append(
            Progress(
                id=request.id,
                total=request.n_prompt,
                cached=request.cached,
                processed=request.position,
                time_ms=elapsed,
            )
        )

    def _pick(self, request: Request, pick: Pick, now: float) -> None:
        self.keeper.pass_cuts(request, now)
        if request.state is State.PREFILL:
            request.move(Moment.PROMPT)
        if request.first_token is None:
            request.first_token = now
            timings = request.timings(now)
            self._events.append(
                FirstToken(request.id, timings.queue_ms, timings.prompt_ms, timings.cache_n, timings.prompt_n)
            )
        request.last_token = now
        if not pick.end and request.max_new > 0:
            request.push(pick.token)
            self._replies.append(Sampled(request.id, pick.token, pick.logprob, pick.top))
        reason = request.finish_reason(pick.end)
        if reason is not None:
            self._finish(request, reason, now)

    def refused(self, action: Action, now: float) -> None:
        """The library would not do it, and left the destination empty. Reuse is lost, the request is not: one that
        was to attach computes its prompt instead. Call it before the news of the plan are taken."""
        if isinstance(action, Save):
            self.snapshots.discard(action.snapshot)
        elif isinstance(action, Hold):
            if self.device.lost(action):
                self.device.drop(action.dst)
        elif isinstance(action, Attach):
            if action.snapshot is not None:
                self.snapshots.discard(action.snapshot)
            if self.device.lost(action):
                self._start_over(next(r for r in self.running if r.id == action.request))

    def _start_over(self, request: Request) -> None:
        request.position = 0
        request.cuts = [c for c in request.submit.cuts if 0 < c.position < request.n_prompt]
        started = self.admission.started
        if any(s.id == request.id for s in started):
            request.source, request.cached, request.reason = Source.NONE, 0, "the cached prefix could not be used"
            started[:] = [self.admission.report(request, 0) if s.id == request.id else s for s in started]
        self._events.append(TierFailed(request.id, "attach refused"))

    def out_of_cells(self, step: Step, now: float) -> None:
        """The library had no room for a step that the books had room for (sliding windows pin cells that nobody can
        count). Nothing was computed; the holder that is worth least goes, else the youngest request."""
        if self.keeper.evict_one(now, for_cells=True):
            return
        if len(self.running) > 1:
            self._preempt(max(self.running, key=lambda r: r.arrived), now)
            return
        for entry in step.entries:
            message = "The cache has no room left for this request."
            self.fail(entry.request, Failed(id=entry.request, message=message, status=503), now)

    # ---- news and proof

    def count_queued(self) -> int:
        """Queued requests that do not wait for a leader."""
        return sum(r.state is State.QUEUED for r in self.queue)

    def take_news(self) -> tuple[list[Reply], list[Event]]:
        """Replies and events since the last call."""
        replies: list[Reply] = [*self.admission.started, *self._replies]
        events = [*self._events, *self.admission.events, *self.keeper.events]
        for taken in (self.admission.started, self._replies, self._events, self.admission.events, self.keeper.events):
            taken.clear()
        return replies, events

    def check(self) -> None:
        """All books agree with one another."""
        self.device.check()
        self.snapshots.check()
        assert {r.seq for r in self.running} == set(self.device.running)
        for request in self.running:
            assert request.seq is not None and self.device.running[request.seq] == request.id
            assert request.position == self.device.tree.length(request.seq)
        assert all(r.seq is None and not r.running for r in self.queue)
        assert len(self.running) <= self.limits.parallel
