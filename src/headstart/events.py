"""Facts that the core reports. Metrics, the log and explanations subscribe; no logic reads them back."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .types import CutReason, FinishReason, RequestId, SeqId, Source


class Queued(msgspec.Struct, frozen=True, tag=True):
    id: RequestId
    prompt_tokens: int


class Waited(msgspec.Struct, frozen=True, tag=True):
    """``id`` waits until ``leader`` has computed ``tokens`` of the prefix that both share."""

    id: RequestId
    leader: RequestId
    tokens: int


class Attached(msgspec.Struct, frozen=True, tag=True):
    id: RequestId
    source: Source
    donor: SeqId | None  # None: a saved state alone
    tokens: int


class Miss(StrEnum):
    """Why no more of a prompt was reused, in a word that can be counted."""

    SHARING_OFF = "sharing_off"
    BYPASS = "bypass"  # the request asked for no reuse
    NO_MATCH = "no_match"  # nothing in the cache begins like it
    EXACT = "exact"  # computed again in a chunk of the size class that a cold run uses
    NO_STATE = "no_state"  # more agrees, but the model can resume only where a state was kept
    DIFFERS = "differs"


class Missed(msgspec.Struct, frozen=True, tag=True):
    """Something in the cache agrees with the prompt up to ``position``; ``tokens`` have to be computed because of
    ``code``, which ``reason`` says in a sentence."""

    id: RequestId
    code: Miss
    reason: str
    position: int
    tokens: int


class Held(msgspec.Struct, frozen=True, tag=True):
    seq: SeqId
    tokens: int
    why: CutReason | None  # None: a session ended and its sequence stays


class Evicted(msgspec.Struct, frozen=True, tag=True):
    seq: SeqId
    tokens: int
    cells: int  # cells that became free
    why: str  # one of the keeper's few words


class Preempted(msgspec.Struct, frozen=True, tag=True):
    """A running request gave up its cells and went back to the queue; its tokens are kept."""

    id: RequestId
    tokens: int


class Stepped(msgspec.Struct, frozen=True, tag=True):
    prefill_tokens: int
    decode_tokens: int
    ms: float


class FirstToken(msgspec.Struct, frozen=True, tag=True):
    id: RequestId
    queue_ms: float
    prompt_ms: float
    cached: int
    computed: int


class Done(msgspec.Struct, frozen=True, tag=True):
    id: RequestId
    reason: FinishReason | None  # None: it failed
    prompt_tokens: int
    generated: int
    predicted_ms: float


class Usage(msgspec.Struct, frozen=True, tag=True):
    """Gauges, sent when they changed. ``seqs`` are the library's sequence ids, with a state each on stateful models;
    ``saved_states`` lie in host memory."""

    cells_used: int
    cells_total: int
    running: int
    queued: int
    waiting: int
    holders: int
    seqs_free: int = 0
    seqs_total: int = 0
    saved_states: int = 0
    saved_bytes: int = 0
    saved_budget: int = 0


class TierFailed(msgspec.Struct, frozen=True, tag=True):
    """A copy of a prefix could not be used; the request went on by prefill."""

    id: RequestId
    what: str


Event = (
    Queued | Waited | Attached | Missed | Held | Evicted | Preempted | Stepped | FirstToken | Done | Usage | TierFailed
)
