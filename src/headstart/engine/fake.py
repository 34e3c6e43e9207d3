"""An engine without a model: keeps real books of who holds which token at which position, and fails on any misuse.

Its "model" answers with the checksum of everything a sequence has been told, so an answer shows whether the sequence
really held the right prefix. Time is simulated: `now` advances with the work that each step does.
"""

from __future__ import annotations

import zlib

import numpy as np

from ..core.plan import Action, Attach, Drop, Forget, Hold, Pick, Save, Step
from ..core.rules import RULES
from ..messages import ModelInfo, Sampling
from ..types import MemoryKind, RequestId, SeqId, Token
from .protocol import OutOfCells, Refused, StepResult

VOCAB = 1000
END: Token = 0


def answer(tokens: list[Token], end_every: int = 0) -> Token:
    """The token that this model says after ``tokens``; `END` when the checksum is a multiple of ``end_every``."""
    checksum = zlib.crc32(np.asarray(tokens, np.int32).tobytes())
    return END if end_every and checksum % end_every == 0 else 1 + checksum % (VOCAB - 1)


class FakeEngine:
    """``kind`` decides what it refuses; ``token_ms`` and ``step_ms`` are what a step costs on its simulated clock. With
    sliding windows a sequence can be cut up to ``slack`` tokens before its end; each step takes masked cells of all."""

    def __init__(
        self,
        kind: MemoryKind = MemoryKind.ATTENTION,
        *,
        n_ctx: int = 4096,
        n_seq: int = 16,
        token_ms: float = 1.0,
        step_ms: float = 5.0,
        end_every: int = 0,
        slack: int = 0,
    ) -> None:
        self.slack = slack
        self.rules = RULES[kind]
        self.n_ctx, self.n_seq, self.end_every = n_ctx, n_seq, end_every
        self.token_ms, self.step_ms = token_ms, step_ms
        self.now = 0.0
        self.computed = 0  # tokens that the model has run on
        self.refuse: set[type] = set()  # action types to refuse, to test faults
        self._cells: dict[SeqId, list[tuple[int, Token]]] = {}  # (cell id, token) by position
        self._floors: dict[SeqId, int] = {}
        self._saved: dict[int, list[Token]] = {}
        self._next_cell = 0
        self._open: set[RequestId] = set()
        self.info = ModelInfo(
            path="fake",
            description="fake",
            kind=kind,
            n_ctx=n_ctx,
            n_ctx_train=n_ctx,
            n_seq=n_seq,
            n_vocab=VOCAB,
            n_embd=1,
            n_params=0,
            size_bytes=0,
            kv_bytes_per_token=1,
            state_bytes=100 if self.rules.state else 0,
            sharing=self.rules.shares,
        )

    @property
    def used_cells(self) -> int:
        """Distinct cells in use, the way the library counts them."""
        return len({cell for cells in self._cells.values() for cell, _ in cells}) if self.rules.cells else 0

    def told(self, seq: SeqId) -> list[Token]:
        return [token for _, token in self._cells.get(seq, [])]

    def open(self, request: RequestId, sampling: Sampling, prompt: list[Token]) -> None:
        self._open.add(request)

    def close(self, request: RequestId) -> None:
        self._open.discard(request)

    def perform(self, action: Action) -> int:
        if type(action) in self.refuse:
            raise Refused(f"{action} refused on request")
        match action:
            case Attach(_, src, dst, position, snapshot):
                self._share(src, dst, position, snapshot)
            case Hold(src, dst, position):
                self._share(src, dst, position, None)
            case Drop(seq):
                del self._cells[seq]
                self._floors.pop(seq, None)
            case Save(seq, position, snapshot):
                assert self.rules.state and len(self._cells[seq]) == position
                self._saved[snapshot] = self.told(seq)
                return self.info.state_bytes
            case Forget(snapshot):
                self._saved.pop(snapshot, None)  # its Save may have been refused
        return 0

    def _share(self, src: SeqId | None, dst: SeqId, position: int, snapshot: int | None) -> None:
        assert not self._cells.get(dst) and 0 <= dst < self.n_seq, f"{dst} is not empty"
        if src is None:
            assert snapshot is not None and not self.rules.cells, "cells come from nowhere"
            source = [(self._next_cell + i, token) for i, token in enumerate(self._saved.get(snapshot, []))]
            self._next_cell += len(source)
        else:
            source = self._cells[src]
        if snapshot is not None and snapshot not in self._saved:
            raise Refused(f"no saved state {snapshot}")
        assert 0 < position <= len(source)
        if snapshot is not None:
            assert self._saved[snapshot] == [t for _, t in source[:position]], "a foreign state"
        else:
            floor = len(source) if src is None else self._floors.get(src, len(source))
            assert self.rules.anywhere or position >= floor, "no state at this position"
            if src in self._floors:
                self._floors[dst] = floor
        self._cells[dst] = source[:position]

    def run(self, step: Step) -> StepResult:
        assert step.n_tokens > 0
        if self.rules.cells and self.used_cells + step.n_tokens > self.n_ctx:
            raise OutOfCells
        picks = []
        for decode in step.decodes:
            self._compute(decode.seq, decode.position, (decode.token,))
            picks.append(self._pick(decode.request, decode.seq))
        for prefill in step.prefills:
            self._compute(prefill.seq, prefill.start, prefill.tokens)
            if prefill.sample:
                picks.append(self._pick(prefill.request, prefill.seq))
        self._slide()
        ms = self.step_ms + self.token_ms * step.n_tokens
        self.now += ms / 1e3
        return StepResult(tuple(picks), ms)

    def floors(self) -> dict[SeqId, int]:
        return dict(self._floors)

    def _slide(self) -> None:
        """Every sequence loses what lies before its slack."""
        if self.info.kind is MemoryKind.SLIDING:
            for seq, cells in self._cells.items():
                self._floors[seq] = max(self._floors.get(seq, 0), len(cells) - self.slack)

    def _compute(self, seq: SeqId, start: int, tokens: tuple[Token, ...]) -> None:
        cells = self._cells.setdefault(seq, [])
        assert tokens and len(cells) == start, f"sequence {seq} stands at {len(cells)}, not at {start}"
        for token in tokens:
            cells.append((self._next_cell, token))
            self._next_cell += 1
        self.computed += len(tokens)

    def _pick(self, request: RequestId, seq: SeqId) -> Pick:
        assert request in self._open
        token = answer(self.told(seq), self.end_every)
        return Pick(request, token, end=token == END)

    def shutdown(self) -> None:
        self._cells.clear()
