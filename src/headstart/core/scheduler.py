"""The whole of deciding: requests in, plans out, facts back. Pure but for its own books; time is an argument.

submit/abort ──> queue ──admission──> running ──step──> done / refused / out_of_cells
                   ^                     |
                   └──── preempted ──────┘
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import context_length_exceeded, queue_full
from ..events import Event, Queued, Stepped, TierFailed
from ..messages import Failed, Reply, Submit
from ..types import FinishReason, RequestId, SeqId, Source
from .admission import Admission, Limits
from .device import Device
from .keeper import Keeper
from .news import News
from .pace import Pace
from .plan import Action, Attach, Decode, Hold, Pick, Plan, Prefill, Save, Step
from .requests import Moment, Request, State
from .room import Room
from .roster import Roster
from .rules import Rules
from .snapshots import Snapshots
from .stepping import compose, rounds

LOOKAHEAD = 2  # queued requests per slot that are examined in one plan


class Scheduler:
    """Decides for one model. `plan`, perform it, report with `done`; replies and events wait in `take_news`."""

    def __init__(self, limits: Limits, rules: Rules, device: Device, snapshots: Snapshots, pace: Pace) -> None:
        self.limits, self.rules, self.device, self.snapshots, self.pace = limits, rules, device, snapshots, pace
        self.roster, self._news = Roster(), News()
        self.keeper = Keeper(device, rules, snapshots, self._news.events, spare=limits.parallel)
        self.admission = Admission(limits, device, rules, snapshots, self.keeper, self._news.events)
        self._room = Room(device, self.keeper, pace, self.roster, self._news)

    # ---- requests come and go

    def submit(self, submit: Submit, now: float) -> None:
        """Queue a request. Raises `RequestError` when it can never fit, or the queue is full."""
        n, roster = len(submit.tokens), self.roster
        if n >= self.limits.n_ctx:
            raise context_length_exceeded(n, self.limits.n_ctx)
        # Requests that arrive in one step are all here before any of them starts: count the free places too.
        if len(roster.queue) >= self.limits.max_queue + self.limits.parallel - len(roster.running):
            ahead = sum(self.pace.seconds(r.remaining) for r in roster.everyone())
            raise queue_full(len(roster.queue), retry_after=min(max(1, round(ahead)), 60))
        free = self.limits.n_ctx - n
        request = Request.of(submit, min(submit.max_tokens if submit.max_tokens is not None else free, free), now)
        roster.queue.append(request)
        self._news.events.append(Queued(request.id, n))

    def abort(self, request_id: RequestId, now: float, reason: FinishReason = FinishReason.ABORT) -> None:
        """Nobody wants more of it. What was computed stays; an unknown id has finished already."""
        request = self.roster.find(request_id)
        if request is not None:
            self._finish(request, reason, now)

    def fail(self, request_id: RequestId, error: Failed, now: float) -> None:
        """The engine could not go on with this request."""
        request = self.roster.find(request_id)
        if request is not None:
            self._end(request, now)
            self._news.failed(request, error)

    def _finish(self, request: Request, reason: FinishReason, now: float) -> None:
        written = self._written(request)
        self._end(request, now)
        self._news.finished(request, reason, written, now)

    def _written(self, request: Request) -> int:
        """Prompt tokens that the request has computed and that stay when it ends."""
        if not self.rules.shares or request.seq is None:
            return 0
        stays = request.n_prompt if request.submit.write else request.kept
        return max(0, min(stays, request.position) - request.cached)

    def _end(self, request: Request, now: float) -> None:
        self.roster.remove(request)
        if request.seq is not None:
            self.keeper.pass_cuts(request, now)  # those of the last step, which no plan has seen yet
        request.move(Moment.END)
        self.keeper.settle(request, now)

    # ---- plan

    def see(self, floors: dict[SeqId, int]) -> None:
        """Sliding windows: how far down each sequence's still reaches. Call it before a plan that admits requests."""
        self.device.floors = floors

    def plan(self, now: float) -> Plan:
        """What to do next. An empty plan means that there is nothing to do until something arrives."""
        for request in self.roster.running:
            self.keeper.pass_cuts(request, now)
        self._admit(now)
        self._room.for_decodes(now)
        cells = self._room.for_prefills(now)
        step = compose(self.roster.running, cells, self.pace, self.rules, self.limits.exact_chunk, now)
        return Plan(self.device.take_actions(), step, self._rounds(step) if step is not None else 0)

    def _rounds(self, step: Step) -> int:
        running, device = self.roster.running, self.device
        if self.roster.queue and len(running) < self.limits.parallel:
            return 1  # whoever waits may start after any step
        return rounds(step, running, device.free_cells, device.cells(len(step.decodes)))

    def _admit(self, now: float) -> None:
        """Start queued requests in order of arrival. One that waits for a leader lets others pass; one for which
        there is no room does not, or it might never find any."""
        running = self.roster.running
        for request in self.roster.queue[: LOOKAHEAD * self.limits.parallel + len(running)]:
            match = self.admission.wait_or_match(request, running, now)
            if match is None:
                continue
            if len(running) >= self.limits.parallel or not self.admission.admit(request, match, running, now):
                return
            self.roster.start(request)
            self.keeper.pass_cuts(request, now)

    # ---- facts come back

    def done(self, step: Step, picks: Sequence[Pick], ms: float, now: float) -> None:
        """The step was computed: book its tokens and pass the sampled ones on."""
        self.pace.observe(step, ms)
        by_id = {r.id: r for r in self.roster.running}
        for entry in step.entries:
            request = by_id[entry.request]
            tokens = (entry.token,) if isinstance(entry, Decode) else entry.tokens
            self.device.append(entry.seq, tokens)
            request.position += len(tokens)
            if isinstance(entry, Prefill):
                self._news.progress(request, now)
        for pick in picks:
            self._pick(by_id[pick.request], pick, now)
        prefill = step.n_tokens - len(step.decodes)
        self._news.events.append(Stepped(prefill, len(step.decodes), ms))

    def _pick(self, request: Request, pick: Pick, now: float) -> None:
        self.keeper.pass_cuts(request, now)
        if request.state is State.PREFILL:
            request.move(Moment.PROMPT)
        if request.first_token is None:
            request.first_token = now
            self._news.first_token(request, now)
        request.last_token = now
        if not pick.end and request.max_new > 0:
            request.push(pick.token)
            self._news.sampled(request, pick)
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
                self._start_over(next(r for r in self.roster.running if r.id == action.request))

    def _start_over(self, request: Request) -> None:
        request.start_over()
        started = self.admission.started
        if any(s.id == request.id for s in started):
            request.source, request.cached, request.reason = Source.NONE, 0, "the cached prefix could not be used"
            started[:] = [self.admission.report(request, 0) if s.id == request.id else s for s in started]
        self._news.events.append(TierFailed(request.id, "attach refused"))

    def out_of_cells(self, step: Step, now: float) -> None:
        """The library had no room for a step that the books had room for (sliding windows pin cells that nobody can
        count). Nothing was computed; the holder that is worth least goes, else the youngest request."""
        if self._room.for_the_same_step(now):
            return
        for entry in step.entries:
            message = "The cache has no room left for this request."
            self.fail(entry.request, Failed(id=entry.request, message=message, status=503), now)

    # ---- news and proof

    def take_news(self) -> tuple[list[Reply], list[Event]]:
        """Replies and events since the last call."""
        started, news = self.admission.started, self._news
        replies: list[Reply] = [*started, *news.replies]
        events = list(news.events)
        for taken in (started, news.replies, news.events):
            taken.clear()
        return replies, events

    def check(self) -> None:
        """All books agree with one another."""
        self.device.check()
        self.snapshots.check()
        self.roster.check()
        assert {r.seq: r.id for r in self.roster.running} == self.device.running
        for request in self.roster.running:
            assert request.seq is not None
            assert request.position == self.device.tree.length(request.seq)
        assert len(self.roster.running) <= self.limits.parallel
