"""The one batch that an engine reuses: numpy arrays that the library reads in place."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as C
import numpy as np

from ..core.plan import Step
from ..types import RequestId, SeqId


class Batch:
    """Room for ``size`` tokens, each of exactly one sequence.

    After `fill`, ``sampling`` lists (request, batch index) of the entries that want logits, in output order, and
    ``starts`` the first position written on each sequence.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._token = np.zeros(size, np.int32)
        self._pos = np.zeros(size, np.int32)
        self._seq = np.zeros(size, np.int32)
        self._one = np.ones(size, np.int32)
        self._logits = np.zeros(size, np.int8)
        # The same memory for single values: an index into an array costs more than one into a view.
        self._views = [array.data for array in (self._token, self._pos, self._seq, self._logits)]
        address = self._seq.ctypes.data
        self._seq_at = address + np.arange(size, dtype=np.uint64) * self._seq.itemsize
        self.sampling: list[tuple[RequestId, int]] = []
        self.starts: list[tuple[SeqId, int]] = []
        self.c: Any = C.llama_batch()
        self.c.token = _as(self._token, ctypes.c_int32)
        self.c.pos = _as(self._pos, ctypes.c_int32)
        self.c.n_seq_id = _as(self._one, ctypes.c_int32)
        rows: Any = ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))
        self.c.seq_id = ctypes.cast(self._seq_at.ctypes.data, rows)
        self.c.logits = _as(self._logits, ctypes.c_int8)

    def fill(self, step: Step) -> None:
        """Write the step: decodes first, then prefills, in the step's order."""
        self.sampling, self.starts = [], []
        self._logits[: step.n_tokens] = 0
        token, pos, seq, logits = self._views
        at = 0
        for d in step.decodes:
            token[at], pos[at], seq[at], logits[at] = d.token, d.position, d.seq, 1
            self.sampling.append((d.request, at))
            self.starts.append((d.seq, d.position))
            at += 1
        for p in step.prefills:
            at = self._fill_run(at, p.seq, p.start, p.tokens)
            self.starts.append((p.seq, p.start))
            if p.sample:
                self._logits[at - 1] = 1
                self.sampling.append((p.request, at - 1))
        self.c.n_tokens = at

    def _fill_run(self, at: int, seq: SeqId, start: int, tokens: Sequence[int]) -> int:
        end = at + len(tokens)
        self._token[at:end] = tokens
        self._pos[at:end] = np.arange(start, start + len(tokens), dtype=np.int32)
        self._seq[at:end] = seq
        return end


def _as(array: np.ndarray[Any, Any], kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
