"""What the front and the worker say to each other: msgspec structs, tagged by class name, packed with MessagePack.

The front sends a `Command`, the worker answers with `Reply` values. Tokens are plain lists of ids; times are
seconds of the worker's monotonic clock unless a name ends in ``_ms``.
"""

from __future__ import annotations

import msgspec

from .events import Event
from .types import Cut, FinishReason, MemoryKind, RequestId, Source, Token


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampler settings under llama-server's names and defaults; a value that switches a sampler off leaves it out."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: tuple[tuple[Token, float], ...] = ()
    seed: int | None = None  # None draws one
    ignore_eos: bool = False
    grammar: str | None = None  # GBNF, root rule "root"
    n_probs: int | None = None  # None: no logprobs; k: the chosen token's and the top k


# ---- front -> worker


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Generate from ``tokens`` (never empty). ``max_tokens`` None means up to the context's end.

    ``reuse`` False is llama-server's ``cache_prompt: false``: neither attach nor wait. ``write`` False keeps nothing
    but the prefixes at ``cuts`` once the request is over. ``cuts`` are ascending, inside (0, len(tokens)).
    Requests share prefixes only with those of the same ``salt``. ``arrived`` is on the system's monotonic clock, which
    both processes read; None: when the worker reads it, which is after the step that it is in.
    """

    id: RequestId
    tokens: list[Token]
    cuts: list[Cut] = []
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    reuse: bool = True
    write: bool = True
    salt: str = ""
    arrived: float | None = None


class Abort(msgspec.Struct, frozen=True, tag=True):
    """``reason``: ABORT where the client has left, STOP where the front has seen a stop string."""

    id: RequestId
    reason: FinishReason = FinishReason.ABORT


class Inspect(msgspec.Struct, frozen=True, tag=True):
    """Ask for one `Snapshot` of the worker's state, echoing ``nonce``."""

    nonce: int


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """Stop after the running step; the front has already ended its streams."""


Command = Submit | Abort | Inspect | Shutdown

# ---- worker -> front


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker loaded. ``n_ctx`` is the number of cells that all sessions share."""

    path: str
    description: str
    kind: MemoryKind
    n_ctx: int
    n_ctx_train: int
    n_seq: int
    n_vocab: int
    n_embd: int
    n_params: int
    size_bytes: int
    kv_bytes_per_token: int
    state_bytes: int = 0  # of one sequence's recurrent state; 0 without one
    on_gpu: bool = False  # every layer, so that the CPU is free
    exact_chunk: int = 64  # chunks of at least so many tokens are computed alike however a prompt is cut
    sharing: bool
    sharing_off_reason: str = ""
    notes: tuple[str, ...] = ()  # lines for the start-up banner: budgets, what is off and why


class Ready(msgspec.Struct, frozen=True, tag=True):
    model: ModelInfo
    pid: int


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """llama-server's ``timings`` without the derived rates. cache_n + prompt_n == tokens of the prompt."""

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0  # from admission to the first sampled token
    predicted_n: int = 0
    predicted_ms: float = 0.0
    queue_ms: float = 0.0  # from arrival to admission, waiting for a leader included


class Started(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The request got its sequence. ``reason`` says why no more was reused ("" where all that could be was),
    ``parts_at`` from which token on the prompt differs from everything that is in the cache (None: from nowhere)."""

    id: RequestId
    source: Source
    cached_tokens: int
    source_tokens: int  # length of the sequence that the prefix came from
    reason: str = ""
    parts_at: int | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Prefill has reached ``processed`` of ``total`` prompt tokens, ``cached`` of them reused."""

    id: RequestId
    total: int
    cached: int
    processed: int
    time_ms: float


class Sampled(msgspec.Struct, frozen=True, tag=True):
    """One generated token. ``top`` is (token, logprob) of the most likely ones, best first."""

    id: RequestId
    token: Token
    logprob: float | None = None
    top: tuple[tuple[Token, float], ...] = ()


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The last message of a request that ended well. ``written`` prompt tokens were computed and kept."""

    id: RequestId
    reason: FinishReason
    timings: Timings
    written: int = 0


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The last message of a request that could not be served; ``status`` is the HTTP status for it."""

    id: RequestId
    message: str
    status: int = 500
    kind: str = "server_error"
    code: str | None = None
    retry_after: int | None = None


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """One live request or holder, for /slots."""

    seq: int
    state: str  # queued, waiting, prefill, decode, holder
    id: RequestId | None
    n_tokens: int  # tokens in the cache for it
    n_prompt: int
    n_cached: int
    n_decoded: int
    own_cells: int  # cells that nobody else shares
    hits: int = 0
    reason: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    nonce: int
    slots: list[SlotView]
    cells_used: int
    cells_total: int
    running: int
    queued: int
    waiting: int


class Happened(msgspec.Struct, frozen=True, tag=True):
    """Facts since the last message, for whoever subscribes."""

    events: list[Event]


class Fatal(msgspec.Struct, frozen=True, tag=True):
    """The worker cannot start. ``message`` is one line that says what to do."""

    message: str


Reply = Ready | Started | Progress | Sampled | Finished | Failed | Snapshot | Happened | Fatal
