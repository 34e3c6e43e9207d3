"""Core and engine joined: one turn decides, performs and folds the facts back. No clock, socket or process here."""

from __future__ import annotations

from collections.abc import Callable

from .core import overview
from .core.plan import Action, Attach, Drop, Hold, Plan, Save, Step
from .core.scheduler import Scheduler
from .engine.protocol import Engine, OutOfCells, Refused, StepResult
from .errors import RequestError
from .events import Event, Usage
from .failures import to_reply
from .messages import Failed, Finished, Reply, Snapshot, Submit
from .types import FinishReason, RequestId, SeqId


class Driver:
    """Drives ``engine`` by ``scheduler``. `turn` until it returns False; `take` what there is to tell.

    ``note`` is told which requests each plan is about before it is performed, and of none when there is nothing to do.
    """

    def __init__(
        self, engine: Engine, scheduler: Scheduler, note: Callable[[tuple[RequestId, ...]], object] = lambda _: None
    ) -> None:
        self.engine, self.scheduler, self._note = engine, scheduler, note
        self._refused: list[Reply] = []  # to requests that never got into the queue

    def submit(self, submit: Submit, now: float) -> None:
        """Queue a request, or reply at once why not."""
        try:
            self.engine.open(submit.id, submit.sampling, submit.tokens)
            self.scheduler.submit(submit, now)
        except RequestError as error:
            self.engine.close(submit.id)
            self._refused.append(to_reply(submit.id, error))

    def abort(self, request: RequestId, now: float, reason: FinishReason = FinishReason.ABORT) -> None:
        """Stop a request; what it has computed stays for the next one."""
        self.scheduler.abort(request, now, reason)
        self._settle(now)

    def turn(self, now: float, interrupted: Callable[[], bool] = lambda: True) -> bool:
        """Decide and perform one plan. ``now`` is read before the step; each step's own time is added to it. Where the
        plan lets a step go on, it does until ``interrupted``.

        Returns False when there was nothing to do.
        """
        if self.scheduler.roster.queue:
            # Any step may have taken masked cells of any sequence, and the library is asked about each.
            self.scheduler.see(self.engine.floors())
        plan = self.scheduler.plan(now)
        self._note(_requests(plan))
        whole = self._perform(plan.actions, now)
        if plan.step is not None and whole:
            self._run(plan.step, plan.rounds, now, interrupted)
        self._settle(now)
        return plan.step is not None or bool(plan.actions)

    def _settle(self, now: float) -> None:
        """Perform what the last facts led to, so that books and library agree whenever nobody is in the middle."""
        while actions := self.scheduler.device.take_actions():
            self._perform(actions, now)

    def _perform(self, actions: tuple[Action, ...], now: float) -> bool:
        """Perform the actions in order. False when one was refused, so that the step must be planned again."""
        lost: set[SeqId] = set()  # sequences that the books think filled and the library left empty
        whole = True
        for action in actions:
            if isinstance(action, Drop) and action.seq in lost:
                lost.discard(action.seq)
                continue
            try:
                if isinstance(action, Attach | Hold) and action.src in lost:
                    raise Refused("its source was refused before")
                if isinstance(action, Save) and action.seq in lost:
                    raise Refused("its source was refused before")
                size = self.engine.perform(action)
                if isinstance(action, Save):
                    self.scheduler.snapshots.weigh(action.snapshot, size)
            except Refused:
                whole = False
                if isinstance(action, Attach | Hold):
                    lost.add(action.dst)
                self.scheduler.refused(action, now)
        return whole

    def _run(self, step: Step, rounds: int, now: float, interrupted: Callable[[], bool]) -> None:
        """Compute first and book afterwards: what lies between two steps, every core waits for."""
        computed: list[tuple[Step, StepResult]] = []
        try:
            for left in range(rounds - 1, -1, -1):
                result = self.engine.run(step)
                computed.append((step, result))
                if not left or result.failed or any(pick.end for pick in result.picks) or interrupted():
                    break
                step = step.next(result.picks)
                # While it sampled, the engine noted one request at a time.
                self._note(tuple(decode.request for decode in step.decodes))
        except OutOfCells:
            if not computed:  # otherwise the next plan will meet it again
                self.scheduler.out_of_cells(step, now)
        for done, result in computed:
            now += result.ms / 1e3
            self.scheduler.done(done, result.picks, result.ms, now)
            for failure in result.failed:
                self.scheduler.fail(failure.id, failure, now)

    def take(self) -> tuple[list[Reply], list[Event]]:
        """Replies and events since the last call, in order."""
        replies, events = self.scheduler.take_news()
        for reply in replies:
            if isinstance(reply, Finished | Failed):
                self.engine.close(reply.id)
        refused, self._refused = self._refused, []
        return refused + replies, events

    def usage(self) -> Usage:
        """How much of everything is taken now."""
        return overview.usage(self.scheduler)

    def view(self, nonce: int) -> Snapshot:
        """Everything live, for /slots."""
        return overview.snapshot(self.scheduler, nonce)


def _requests(plan: Plan) -> tuple[RequestId, ...]:
    """Whose work it is."""
    attached = [action.request for action in plan.actions if isinstance(action, Attach)]
    return (*attached, *(entry.request for entry in plan.step.entries)) if plan.step else tuple(attached)
