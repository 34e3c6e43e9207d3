"""Proof, on a given model and library, that sharing a prefix changes nothing: logits of shared against computed.

Each check resets the cache, does the same computation twice, once from nothing and once by sharing, and compares the
raw logits at *every* position of the tail. Exact checks must agree bit for bit. In the others something else lies in
the cache, which changes where cells lie and with it the rounding. They may differ as much as a neighbour makes a cold
run differ, measured in the same run: by the median over positions, since one expert that is routed otherwise moves a
single position far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..core.plan import Attach, Decode, Drop, Forget, Hold, Prefill, Save, Step
from ..core.rules import RULES, Rules
from ..messages import Sampling
from ..types import SeqId, Token
from .llama import LlamaEngine
from .protocol import Refused

Logits = npt.NDArray[np.float32]  # [positions, vocabulary]
NOISE_MARGIN = 4.0  # one pair of runs samples the noise; pairs differ by about this factor
SMALLEST_NOISE = 1e-4
SEQUENCES = 4  # that the checks use


@dataclass(frozen=True, slots=True)
class Finding:
    """``difference`` is of logits, ``allowed`` its bound; ``same_top`` counts positions with the same top token."""

    check: str
    difference: float
    allowed: float
    same_top: int
    positions: int
    note: str = ""

    @property
    def held(self) -> bool:
        return not self.note and self.difference <= self.allowed


class Parity:
    """The checks for one engine, which must keep logits and have `SEQUENCES`. ``head`` and ``tail`` are token counts;
    all checks fit in twice ``head`` cells. ``chunk`` prompt tokens are computed in one call, as the server would.
    ``begin`` is called with the name of each check when it begins."""

    def __init__(
        self,
        engine: LlamaEngine,
        *,
        head: int = 1500,
        tail: int = 12,
        chunk: int = 512,
        seed: int = 1,
        begin: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._engine, self._chunk, self._begin = engine, chunk, begin
        rng = np.random.default_rng(seed)
        high = engine.info.n_vocab
        self._head: list[Token] = rng.integers(high // 50, high * 4 // 5, head).tolist()
        self._tail: list[Token] = rng.integers(high // 50, high * 4 // 5, tail).tolist()
        self._other: list[Token] = rng.integers(high // 50, high * 4 // 5, max(64, head // 3)).tolist()
        self._rules: Rules = RULES[engine.info.kind]
        self._used: set[SeqId] = set()

    def run(self) -> Iterator[Finding]:
        """Every check that applies to this memory kind, cheapest proof first."""
        head = len(self._head)
        self._begin("cold twice")
        cold = self._cold(head)
        yield _compare("cold twice", self._cold(head), cold, 0.0)
        noise = _typical(self._beside_a_neighbour(head), cold)
        yield self._guard("attach at a holder", lambda: self._at_holder(head), cold, 0.0)
        odd = head - 477
        yield self._guard("attach at a holder, unaligned", lambda: self._at_holder(odd), self._cold(odd), 0.0)
        yield self._guard("donor while others attach and leave", lambda: self._donor(head), cold, 0.0)
        if self._rules.anywhere:
            yield self._guard("attach below a donor's end", lambda: self._below(odd), self._cold(odd), noise)
        if self._rules.state:
            yield self._guard("saved state under borrowed cells", lambda: self._saved(odd), self._cold(odd), noise)
        yield self._guard("holder after its donor moved on", lambda: self._moved_on(head), cold, noise)

    # ---- the runs: each returns the logits of the tail

    def _cold(self, at: int) -> Logits:
        self._clear()
        self._prefill(0, self._head[:at])
        return self._say(0, at)

    def _beside_a_neighbour(self, at: int) -> Logits:
        self._clear()
        self._prefill(3, self._other)
        self._prefill(0, self._head[:at])
        return self._say(0, at)

    def _at_holder(self, at: int) -> Logits:
        self._clear()
        self._prefill(0, self._head[:at])
        self._share(Hold(0, 2, at))
        self._drop(0)
        self._share(Attach("p1", 2, 1, at))
        return self._say(1, at)

    def _below(self, at: int) -> Logits:
        self._clear()
        self._prefill(0, self._head)
        self._share(Attach("p1", 0, 1, at))
        return self._say(1, at)

    def _saved(self, at: int) -> Logits:
        self._clear()
        self._prefill(0, self._head[:at])
        self._engine.perform(Save(0, at, 1))
        self._prefill(0, self._head[at:], at)
        self._share(Attach("p1", 0, 1, at, snapshot=1))
        said = self._say(1, at)
        self._engine.perform(Forget(1))
        return said

    def _moved_on(self, at: int) -> Logits:
        self._clear()
        self._prefill(0, self._head[:at])
        self._share(Hold(0, 2, at))
        self._prefill(0, self._other, at)
        self._prefill(3, self._other)
        self._share(Attach("p1", 2, 1, at))
        return self._say(1, at)

    def _donor(self, at: int) -> Logits:
        self._clear()
        self._prefill(0, self._head[:at])
        self._share(Hold(0, 2, at))
        self._share(Attach("p1", 2, 1, at))
        self._prefill(1, self._other, at)
        self._drop(1)
        return self._say(0, at)

    # ---- the engine's side

    def _prefill(self, seq: SeqId, tokens: list[Token], start: int = 0) -> None:
        self._used.add(seq)
        for at in range(0, len(tokens), self._chunk):
            piece = tuple(tokens[at : at + self._chunk])
            self._engine.run(Step(prefills=(Prefill("", seq, start + at, piece, sample=False),)))

    def _say(self, seq: SeqId, start: int) -> Logits:
        """The tail on ``seq``, a token at a time."""
        self._used.add(seq)
        name = f"p{seq}"
        self._engine.open(name, Sampling(temperature=0.0), [])
        rows = []
        for i, token in enumerate(self._tail):
            self._engine.run(Step(decodes=(Decode(name, seq, start + i, token),)))
            rows.append(self._engine.logits(name))
        self._engine.close(name)
        return np.stack(rows)

    def _share(self, action: Attach | Hold) -> None:
        self._used.add(action.dst)
        self._engine.perform(action)

    def _drop(self, seq: SeqId) -> None:
        self._engine.perform(Drop(seq))
        self._used.discard(seq)

    def _clear(self) -> None:
        for seq in sorted(self._used):
            self._drop(seq)

    def _guard(self, name: str, run: Callable[[], Logits], truth: Logits, noise: float) -> Finding:
        self._begin(name)
        try:
            return _compare(name, run(), truth, noise and max(NOISE_MARGIN * noise, SMALLEST_NOISE))
        except Refused as refusal:
            return Finding(name, float("inf"), 0.0, 0, len(self._tail), f"refused: {refusal}")


def _compare(name: str, got: Logits, truth: Logits, allowed: float) -> Finding:
    same = int((got.argmax(axis=1) == truth.argmax(axis=1)).sum())
    difference = _typical(got, truth) if allowed else float(np.abs(got - truth).max())
    return Finding(name, difference, allowed, same, len(truth))


def _typical(got: Logits, truth: Logits) -> float:
    """The largest difference of a position's logits, at the median position."""
    return float(np.median(np.abs(got - truth).max(axis=1)))
