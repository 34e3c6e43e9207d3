"""What the core decides, as small frozen values (msgspec's: several are made for each token, and made in C). The engine
performs them in order and reports facts back.

Memory actions cost no computation (`Attach` and `Hold` only tag cells); `Step` is the one that runs the model.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..types import RequestId, SeqId, Token


class Attach(Struct, frozen=True):
    """Let ``dst`` (empty) share cells [0, position) of ``src``; on stateful models ``src`` stands exactly there.

    With ``snapshot`` the recurrent state comes from that saved one, taken at ``position``, instead of from ``src``.
    Where tokens take no cells that is all there is to it, and ``src`` may be None.
    """

    request: RequestId
    src: SeqId | None
    dst: SeqId
    position: int
    snapshot: int | None = None


class Hold(Struct, frozen=True):
    """Pin [0, position) of ``src`` under the empty sequence ``dst``."""

    src: SeqId
    dst: SeqId
    position: int


class Drop(Struct, frozen=True):
    """Remove everything of ``seq``."""

    seq: SeqId


class Save(Struct, frozen=True):
    """Copy the recurrent state of ``seq``, which stands at ``position``, to host memory as ``snapshot``."""

    seq: SeqId
    position: int
    snapshot: int


class Forget(Struct, frozen=True):
    """Free the saved state ``snapshot``."""

    snapshot: int


Action = Attach | Hold | Drop | Save | Forget


class Prefill(Struct, frozen=True):
    """Compute ``tokens`` at positions start.. on ``seq``; ``sample`` when the last of them ends the prompt."""

    request: RequestId
    seq: SeqId
    start: int
    tokens: tuple[Token, ...]
    sample: bool


class Decode(Struct, frozen=True):
    """Compute the one ``token`` at ``position`` on ``seq`` and sample the next."""

    request: RequestId
    seq: SeqId
    position: int
    token: Token


class Step(Struct, frozen=True):
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

    def next(self, picks: Sequence[Pick]) -> Step:
        """Of a step that only decodes: the same with the tokens that it has sampled, one for each decode."""
        pairs = zip(self.decodes, picks, strict=True)
        return Step(tuple(Decode(d.request, d.seq, d.position + 1, pick.token) for d, pick in pairs))


class Plan(Struct, frozen=True):
    """Perform ``actions`` in order, then run ``step``, if there is one, and after it up to ``rounds`` - 1 times the
    `Step.next` of the one before: nothing is to be decided between them, unless an answer ends or fails. Whoever runs
    them may stop after any."""

    actions: tuple[Action, ...]
    step: Step | None
    rounds: int = 1


class Pick(Struct, frozen=True):
    """A fact that comes back: the token sampled for ``request``. ``end`` marks one that ends the turn and is not part
    of the answer; ``logprob`` and ``top`` (best first) are there when the sampling asked for them."""

    request: RequestId
    token: Token
    end: bool = False
    logprob: float | None = None
    top: tuple[tuple[Token, float], ...] = ()
