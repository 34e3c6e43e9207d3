"""One request's life, as a table and a record. Scheduler, admission and room move it along; nobody else does."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from ..messages import Submit, Timings
from ..types import Cut, FinishReason, RequestId, SeqId, Source, Token
from .extents import TokenArray


class State(StrEnum):
    QUEUED = "queued"  # no sequence yet
    WAITING = "waiting"  # no sequence yet, because a leader is computing what it shares
    PREFILL = "prefill"
    DECODE = "decode"
    DONE = "done"


class Moment(StrEnum):
    LEADER = "found a leader"
    REPLAN = "leader left, passed or took too long"
    ADMIT = "got a sequence and cells"
    PROMPT = "prompt computed, first token sampled"
    PREEMPT = "gave its cells to an older request"
    END = "finished, failed or aborted"


LIFE: dict[tuple[State, Moment], State] = {
    (State.QUEUED, Moment.LEADER): State.WAITING,
    (State.QUEUED, Moment.ADMIT): State.PREFILL,
    (State.QUEUED, Moment.END): State.DONE,
    (State.WAITING, Moment.REPLAN): State.QUEUED,
    (State.WAITING, Moment.ADMIT): State.PREFILL,
    (State.WAITING, Moment.END): State.DONE,
    (State.PREFILL, Moment.PROMPT): State.DECODE,
    (State.PREFILL, Moment.PREEMPT): State.QUEUED,
    (State.PREFILL, Moment.END): State.DONE,
    (State.DECODE, Moment.PREEMPT): State.QUEUED,
    (State.DECODE, Moment.END): State.DONE,
}


@dataclass(slots=True)
class Request:
    """``tokens`` is the prompt, then what was sampled; the last sampled token is not in the cache yet.

    Seconds are the worker's clock. ``cached`` and ``computed`` add up to ``n_prompt`` once the prompt is done,
    whatever happened in between (a preempted request computes again, and only its first pass is reported).
    """

    id: RequestId
    submit: Submit
    tokens: TokenArray
    n_prompt: int
    max_new: int
    arrived: float
    cuts: list[Cut] = field(default_factory=list)  # ahead of the sequence, ascending
    state: State = State.QUEUED
    seq: SeqId | None = None
    position: int = 0  # tokens of it in the cache
    target: int = 0  # prefill runs up to here, then the next token is sampled
    generated: list[Token] = field(default_factory=list)
    source: Source = Source.NONE
    cached: int = 0
    reason: str = ""
    parts_at: int | None = None
    leader: RequestId | None = None
    leader_at: int = 0  # the leader's position when it was last seen to move
    wait_until: float = 0.0
    not_again: set[RequestId] = field(default_factory=set)  # leaders that it has waited for in vain
    admitted: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    preemptions: int = 0
    kept: int = 0  # tokens pinned for it by holders at its cuts

    @classmethod
    def of(cls, submit: Submit, max_new: int, now: float) -> Request:
        tokens = np.asarray(submit.tokens, np.int32)
        n = len(tokens)
        return cls(submit.id, submit, tokens, n, max_new, now, cuts=_inside(submit), target=n)

    def move(self, moment: Moment) -> None:
        """Go where the table says. A pair that is not in the table is a bug of ours."""
        self.state = LIFE[self.state, moment]

    @property
    def running(self) -> bool:
        return self.state in (State.PREFILL, State.DECODE)

    @property
    def remaining(self) -> int:
        """Prompt tokens still to compute."""
        return max(0, self.target - self.position)

    @property
    def limit(self) -> int:
        """The longest prefix that can be reused: at least one token is computed, for its logits."""
        return len(self.tokens) - 1

    def push(self, token: Token) -> None:
        """A token was sampled; it will be computed by the next decode."""
        self.generated.append(token)

    def start_over(self) -> None:
        """Its sequence is empty after all: the whole prompt is to be computed, and every cut lies ahead again."""
        self.position, self.cuts = 0, _inside(self.submit)

    def rewind(self) -> None:
        """Its cells are gone: what it has generated becomes part of what it has to prefill."""
        fresh = np.asarray(self.generated[len(self.tokens) - self.n_prompt :], np.int32)
        self.tokens = np.concatenate([self.tokens, fresh])
        self.target = len(self.tokens)
        self.position, self.seq, self.leader = 0, None, None
        self.preemptions += 1

    def timings(self, now: float) -> Timings:
        """llama-server's figures for this request as of ``now``."""
        admitted = self.admitted if self.admitted is not None else now
        first = self.first_token if self.first_token is not None else now
        last = self.last_token if self.last_token is not None else first
        return Timings(
            cache_n=self.cached,
            prompt_n=self.n_prompt - self.cached,
            prompt_ms=max(0.0, first - admitted) * 1e3,
            predicted_n=len(self.generated),
            predicted_ms=max(0.0, last - first) * 1e3,
            queue_ms=max(0.0, admitted - self.arrived) * 1e3,
        )

    def finish_reason(self, end_of_turn: bool) -> FinishReason | None:
        """Whether the token that was just sampled is the last."""
        if end_of_turn:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(self.generated) >= self.max_new else None


def _inside(submit: Submit) -> list[Cut]:
    """The cuts at which something of the prompt is left to compute, ascending."""
    return sorted((c for c in submit.cuts if 0 < c.position < len(submit.tokens)), key=lambda c: c.position)
