"""The engine on the library: performs what the core planned, one call after another, and reports what came out."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import llama_cpp.llama_cpp as C
import numpy as np

from ..core.plan import Action, Pick, Step
from ..errors import EngineError, RequestError
from ..messages import Failed, ModelInfo, Sampling
from ..types import RequestId, SeqId, Token
from . import lib, model
from .batch import Batch
from .dry import Dry
from .protocol import OutOfCells, StepResult
from .sampler import Candidates, Logits, Sampler, SamplerBroke
from .sequences import Sequences
from .settings import EngineSettings

NO_CELLS = 1


class LlamaEngine:
    """`protocol.Engine` for one GGUF. ``keep_logits`` keeps each sampling entry's raw logits for `logits`.

    Raises `StartupError` where the model cannot be loaded. After `shutdown` nothing else may be called. What is set as
    ``alone`` is entered for each request while its sampler is made and while it chooses: where a client's own settings
    and grammar are at work.
    """

    def __init__(self, settings: EngineSettings, *, keep_logits: bool = False) -> None:
        self._loaded = model.load(settings)
        self._ctx, self._sequences = self._loaded.ctx, Sequences(self._loaded, swa_full=settings.swa_full)
        self._n_vocab = self.info.n_vocab
        self._rows: Logits = np.empty((0, self._n_vocab), np.float32)
        self._rows_at = 0
        self._batch = Batch(int(C.llama_n_batch(self._ctx)))
        self._candidates = Candidates(self._n_vocab)
        self._ends = [t for t in range(self._n_vocab) if C.llama_vocab_is_eog(self._loaded.vocab, t)]
        self._is_end = frozenset(self._ends)
        self._dry = Dry(self._loaded.vocab, self._n_vocab, self.info.n_ctx)
        self._samplers: dict[RequestId, Sampler] = {}
        self.alone: Callable[[RequestId], AbstractContextManager[None]] = lambda _: nullcontext()
        self._kept: dict[RequestId, Logits] | None = {} if keep_logits else None

    @property
    def info(self) -> ModelInfo:
        return self._loaded.info

    # ---- requests

    def open(self, request: RequestId, sampling: Sampling, prompt: list[Token]) -> None:
        tokens = np.asarray(prompt, dtype=np.int64)
        if tokens.size and not (tokens.min() >= 0 and tokens.max() < self._n_vocab):
            raise RequestError(f"the prompt holds token ids outside 0 to {self._n_vocab - 1}", param="prompt")
        self.close(request)
        with self.alone(request):
            self._samplers[request] = Sampler(
                sampling,
                prompt,
                vocab=self._loaded.vocab,
                dry=self._dry,
                candidates=self._candidates,
                n_vocab=self._n_vocab,
                n_ctx=self.info.n_ctx,
                end_tokens=self._ends,
            )

    def close(self, request: RequestId) -> None:
        sampler = self._samplers.pop(request, None)
        if sampler is not None:
            sampler.close()
        if self._kept is not None:
            self._kept.pop(request, None)

    def logits(self, request: RequestId) -> Logits:
        """A copy of the raw logits that the request's last token was sampled from; needs ``keep_logits``."""
        if self._kept is None:
            raise EngineError("this engine keeps no logits")
        return self._kept[request]

    # ---- memory actions and steps

    def perform(self, action: Action) -> int:
        return self._sequences.perform(action)

    def run(self, step: Step) -> StepResult:
        began = time.perf_counter()
        batch = self._batch
        if not 0 < step.n_tokens <= batch.size:
            raise EngineError(f"a step of {step.n_tokens} tokens; the batch holds {batch.size}")
        batch.fill(step)
        for seq, _ in batch.starts:
            self._sequences.known(seq)
        code = int(C.llama_decode(self._ctx, batch.c))
        if code == NO_CELLS:
            self._sequences.take_back(batch.starts)
            raise OutOfCells
        if code:
            raise EngineError(f"the library failed to compute a step (code {code}): {lib.last_error()}")
        picks, failed = self._sample()
        ms = 1e3 * (time.perf_counter() - began)
        return StepResult(tuple(picks), ms, tuple(failed))

    def floors(self) -> dict[SeqId, int]:
        return self._sequences.floors()

    def _sample(self) -> tuple[list[Pick], list[Failed]]:
        picks: list[Pick] = []
        failed: list[Failed] = []
        entries = self._batch.sampling
        if not entries:
            C.llama_synchronize(self._ctx)
            return picks, failed
        rows = self._outputs(len(entries))
        for (request, index), logits in zip(entries, rows, strict=True):
            sampler = self._samplers.get(request)
            if sampler is None:
                failed.append(Failed(id=request, message="the request has no sampler"))
                continue
            if self._kept is not None:
                self._kept[request] = logits.copy()
            try:
                with self.alone(request):
                    token = sampler.sample(self._ctx, index, logits)
            except SamplerBroke as error:
                failed.append(_broken(request, error))
                continue
            logprob, top = sampler.logprobs(logits, token)
            picks.append(Pick(request, token, token in self._is_end, logprob, top))
        return picks, failed

    def _outputs(self, count: int) -> Logits:
        """The step's logits, one row for each sampling entry, in the library's memory until the next step."""
        address = lib.logits_address(self._ctx)
        if not address:
            raise EngineError("the library returned no logits")
        if address != self._rows_at:  # the library moves them only when it wants more room
            floats: Any = (ctypes.c_float * (self._loaded.info.n_seq * self._n_vocab)).from_address(address)
            self._rows = np.frombuffer(floats, np.float32).reshape(-1, self._n_vocab)
            self._rows_at = address
        return self._rows[:count]

    def shutdown(self) -> None:
        """Free everything; the process may load another model afterwards."""
        for request in list(self._samplers):
            self.close(request)
        self._dry.close()
        self._sequences.forget_all()
        self._loaded.free()


def _broken(request: RequestId, error: SamplerBroke) -> Failed:
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    return Failed(id=request, message=error.message, status=error.status, kind=kind)
