"""What the scheduler tells: replies for clients and events for subscribers, in the order in which they came about."""

from __future__ import annotations

from ..events import Done, Event, FirstToken
from ..messages import Failed, Finished, Progress, Reply, Sampled
from ..types import FinishReason
from .plan import Pick
from .requests import Request


class News:
    """Collects until somebody takes both lists."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.events: list[Event] = []

    def progress(self, request: Request, now: float) -> None:
        """A part of the prompt was computed. A second pass, after the request gave way, is not told again."""
        if request.preemptions or request.admitted is None:
            return
        self.replies.append(
            Progress(
                id=request.id,
                total=request.n_prompt,
                cached=request.cached,
                processed=request.position,
                time_ms=(now - request.admitted) * 1e3,
            )
        )

    def first_token(self, request: Request, now: float) -> None:
        """The prompt is done."""
        t = request.timings(now)
        self.events.append(FirstToken(request.id, t.queue_ms, t.prompt_ms, t.cache_n, t.prompt_n))

    def sampled(self, request: Request, pick: Pick) -> None:
        """One more token of the answer."""
        self.replies.append(Sampled(request.id, pick.token, pick.logprob, pick.top))

    def finished(self, request: Request, reason: FinishReason, written: int, now: float) -> None:
        """It ended well, or its client left."""
        t = request.timings(now)
        self.replies.append(Finished(request.id, reason, t, written))
        self.events.append(Done(request.id, reason, request.n_prompt, len(request.generated), t.predicted_ms))

    def failed(self, request: Request, error: Failed) -> None:
        """It could not go on."""
        self.replies.append(error)
        self.events.append(Done(request.id, None, request.n_prompt, len(request.generated), 0.0))
