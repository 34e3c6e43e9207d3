"""The engine on the library: performs what the core planned, one call after another, and reports what came out."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import llama_cpp.llama_cpp as C
import numpy as np

from ..core.plan import Action, Attach, Drop, Forget, Hold, Pick, Save, Step, Truncate
from ..errors import EngineError, RequestError
from ..messages import Failed, ModelInfo, Sampling
from ..types import RequestId, SeqId, Token
from . import lib, model
from .batch import Batch
from .protocol import OutOfCells, Refused, StepResult
from .sampler import Candidates, Logits, Sampler, SamplerBroke
from .settings import EngineSettings

NO_CELLS = 1


class LlamaEngine:
    """`protocol.Engine` for one GGUF. ``keep_logits`` keeps each sampling entry's raw logits for `logits`.

    Raises `StartupError` where the model cannot be loaded. After `shutdown` nothing else may be called.
    """

    def __init__(self, settings: EngineSettings, *, keep_logits: bool = False) -> None:
        self._loaded = model.load(settings)
        self._ctx, self._mem, self._rules = self._loaded.ctx, self._loaded.mem, self._loaded.rules
        self._n_vocab = self.info.n_vocab
        self._window = int(C.llama_model_n_swa(self._loaded.model)) if not settings.swa_full else 0
        self._batch = Batch(int(C.llama_n_batch(self._ctx)))
        self._candidates = Candidates(self._n_vocab)
        self._ends = [t for t in range(self._n_vocab) if C.llama_vocab_is_eog(self._loaded.vocab, t)]
        self._is_end = frozenset(self._ends)
        self._samplers: dict[RequestId, Sampler] = {}
        self._snapshots: dict[int, tuple[Any, int]] = {}
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
        self._samplers[request] = Sampler(
            sampling,
            prompt,
            vocab=self._loaded.vocab,
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

    # ---- memory actions

    def perform(self, action: Action) -> int:
        match action:
            case Attach():
                self._attach(action)
            case Hold():
                self._share(action.src, action.dst, action.position)
            case Drop():
                lib.remove_seq(self._mem, self._seq(action.seq))
            case Truncate():
                if not lib.remove_seq(self._mem, self._seq(action.seq), action.position):
                    self._refuse(action.seq, f"the library cannot cut a {self.info.kind} sequence")
            case Save():
                return self._save(action)
            case Forget():
                self._snapshots.pop(action.snapshot, None)
        return 0

    def _attach(self, a: Attach) -> None:
        if a.snapshot is None:
            self._share(a.src, a.dst, a.position)
            return
        self._empty(a.dst)
        blob, position = self._snapshots.get(a.snapshot, (None, -1))
        if blob is None or position != a.position:
            raise Refused(f"no saved state {a.snapshot} at position {a.position}")
        if self.info.kind != "recurrent":
            if lib.last_position(self._mem, self._seq(a.src)) + 1 < a.position:
                raise Refused(f"sequence {a.src} ends before position {a.position}")
            lib.copy_seq(self._mem, a.src, a.dst, a.position)
        if not lib.import_state(self._ctx, a.dst, blob):
            self._refuse(a.dst, "the saved state was not taken whole")
        self._verify(a.dst, a.position)

    def _share(self, src: SeqId, dst: SeqId, position: int) -> None:
        """Tag [0, position) of ``src`` for ``dst``; a recurrent state is shared as it stands, so ``src`` must too."""
        self._empty(dst)
        end = lib.last_position(self._mem, self._seq(src)) + 1
        if end < position or (end != position and self._rules.state):
            raise Refused(f"sequence {src} stands at {end}, not at {position}")
        lib.copy_seq(self._mem, src, dst, -1 if end == position else position)
        self._verify(dst, position)

    def _verify(self, seq: SeqId, position: int) -> None:
        end = lib.last_position(self._mem, seq) + 1
        if end != position:
            self._refuse(seq, f"the sequence stands at {end} instead of {position}")
        if self._window and not self._rules.state:
            first = lib.first_position(self._mem, seq)
            if first > max(0, position - self._window):
                self._refuse(seq, f"the window before {position} is gone: it starts at {first}")

    def _save(self, action: Save) -> int:
        if not self._rules.state:
            # On an attention cache the same call would write every cell once more.
            raise Refused(f"a {self.info.kind} model has no state to save")
        end = lib.last_position(self._mem, self._seq(action.seq)) + 1
        if end != action.position:
            raise Refused(f"sequence {action.seq} stands at {end}, not at {action.position}")
        blob = lib.export_state(self._ctx, action.seq)
        if blob is None:
            raise Refused("the library gave no state")
        self._snapshots[action.snapshot] = (blob, action.position)
        return len(blob)

    def _refuse(self, seq: SeqId, why: str) -> None:
        lib.remove_seq(self._mem, seq)
        raise Refused(why)

    def _empty(self, seq: SeqId) -> None:
        if lib.last_position(self._mem, self._seq(seq)) >= 0:
            raise EngineError(f"sequence {seq} is not empty")

    def _seq(self, seq: SeqId) -> SeqId:
        if not 0 <= seq < self.info.n_seq:
            raise EngineError(f"no sequence {seq}; the context has {self.info.n_seq}")
        return seq

    # ---- steps

    def run(self, step: Step) -> StepResult:
        began = time.perf_counter()
        batch = self._batch
        if not 0 < step.n_tokens <= batch.size:
            raise EngineError(f"a step of {step.n_tokens} tokens; the batch holds {batch.size}")
        batch.fill(step)
        for seq, _ in batch.starts:
            self._seq(seq)
        code = int(C.llama_decode(self._ctx, batch.c))
        if code == NO_CELLS:
            self._undo()
            raise OutOfCells
        if code:
            raise EngineError(f"the library failed to compute a step (code {code}): {lib.last_error()}")
        picks, failed = self._sample()
        return StepResult(tuple(picks), 1e3 * (time.perf_counter() - began), tuple(failed), self._floors())

    def _floors(self) -> dict[SeqId, int]:
        """Where the windows still reach down to. Any step may have taken masked cells of any sequence."""
        if not self._window or self._rules.state:
            return {}
        firsts = {seq: lib.first_position(self._mem, seq) for seq in range(self.info.n_seq)}
        return {seq: first and first + self._window for seq, first in firsts.items() if first >= 0}

    def _undo(self) -> None:
        """Take back what micro-batches before the failed one left of the step."""
        for seq, start in self._batch.starts:
            if lib.last_position(self._mem, seq) < start:
                continue
            if not lib.remove_seq(self._mem, seq, start):
                lib.remove_seq(self._mem, seq)
                raise EngineError(f"cells ran out inside a step and sequence {seq} could not go back to {start}")

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
                token = sampler.sample(self._ctx, index, logits)
            except SamplerBroke as error:
                failed.append(_broken(request, error))
                continue
            logprob, top = sampler.logprobs(logits, token)
            picks.append(Pick(request, token, token in self._is_end, logprob, top))
        return picks, failed

    def _outputs(self, count: int) -> Logits:
        """The step's logits, one row for each sampling entry, in the library's memory until the next step."""
        address = ctypes.cast(C.llama_get_logits(self._ctx), ctypes.c_void_p).value
        if not address:
            raise EngineError("the library returned no logits")
        floats: Any = (ctypes.c_float * (count * self._n_vocab)).from_address(address)
        rows: Logits = np.frombuffer(floats, np.float32).reshape(count, self._n_vocab)
        return rows

    def shutdown(self) -> None:
        """Free everything; the process may load another model afterwards."""
        for request in list(self._samplers):
            self.close(request)
        self._snapshots.clear()
        self._loaded.free()


def _broken(request: RequestId, error: SamplerBroke) -> Failed:
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    return Failed(id=request, message=error.message, status=error.status, kind=kind)
