"""What the core decides, as small frozen values. The engine performs them in order and reports facts back.

Memory actions cost no computation (`Attach` and `Hold` only tag cells); `Step` is the one that runs the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..types import RequestId, SeqId, Token


@dataclass(frozen=True, slots=True)
class Attach:
    """Let ``dst`` (empty) share cells [0, position) of ``src``; on stateful models ``src`` stands exactly there.

    With ``snapshot`` the recurrent state comes from that saved one, taken at ``position``, instead of from ``src``.
    Where tokens take no cells that is all there is to it, and ``src`` may be None.
    """

    request: RequestId
    src: SeqId | None
    dst: SeqId
    position: int
    snapshot: int | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Pin [0, position) of ``src`` under the empty sequence ``dst``."""

    src: SeqId
    dst: SeqId
    position: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove everything of ``seq``."""

    seq: SeqId


@dataclass(frozen=True, slots=True)
class Save:
    """Copy the recurrent state of ``seq``, which stands at ``position``, to host memory as ``snapshot``."""

    seq: SeqId
    position: int
    snapshot: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Free the saved state ``snapshot``."""

    snapshot: int


Action = Attach | Hold | Drop | Save | Forget


@dataclass(frozen=True, slots=True)
class Prefill:
    """Compute ``tokens`` at positions start.. on ``seq``; ``sample`` when the last of them ends the prompt."""

    request: RequestId
    seq: SeqId
    start: int
    tokens: tuple[Token, ...]
    sample: bool


@dataclass(frozen=True, slots=True)
class Decode:
    """Compute the one ``token`` at ``position`` on ``seq`` and sample the next."""

    request: RequestId
    seq: SeqId
    position: int
    token: Token


@dataclass(frozen=True, slots=True)
class Step:
    """One ``llama_decode`` call. Never empty, never more tokens than the batch holds."""

    decodes: tuple[Decode, ...] = ()
    prefills: tuple[Prefill, ...] = ()

    @property
    def entries(self) -> tuple[Decode | Prefill, ...]:
        """All of it, in batch order."""
        return (*self.decodes, *self.prefills)

    @property
    def n_tokens(self) -> int:
        return len(self.decodes) + sum(len(p.tokens) for p in self.prefills)


@dataclass(frozen=True, slots=True)
class Plan:
    """Perform ``actions`` in order, then run ``step``, if there is one."""

    actions: tuple[Action, ...]
    step: Step | None


@dataclass(frozen=True, slots=True)
class Pick:
    """A fact that comes back: the token sampled for ``request``. ``end`` marks one that ends the turn and is not part
    of the answer; ``logprob`` and ``top`` (best first) are there when the sampling asked for them."""

    request: RequestId
    token: Token
    end: bool = False
    logprob: float | None = None
    top: tuple[tuple[Token, float], ...] = ()
