"""Load a model and its one unified context, or say in one line why that cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as C

from ..core.rules import RULES, Rules
from ..errors import StartupError
from ..messages import ModelInfo
from ..types import MemoryKind
from . import budget, lib, memory
from .gguf_header import read_header
from .lib import Handle
from .settings import EngineSettings

# The library's own limit: ids do not slow a step where no state comes with them, each only reserves a row of logits.
ATTENTION_SEQUENCES = 256
MIB = 1 << 20
# From how many tokens on a chunk is computed alike however a prompt is cut, as measured on a CPU: flash attention has
# another kernel for fewer, plain attention for single tokens; a few more are a margin.
EXACT_FLASH, EXACT_PLAIN = 64, 4
FLASH_ATTENTION = {
    "auto": C.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": C.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": C.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Handles of a loaded model and its context; `free` ends both."""

    model: Handle
    ctx: Handle
    mem: Handle
    vocab: Handle
    info: ModelInfo
    rules: Rules

    def free(self) -> None:
        C.llama_free(self.ctx)
        C.llama_model_free(self.model)


def load(settings: EngineSettings) -> Loaded:
    """Load ``settings.model``. Raises `StartupError` with one line."""
    lib.start()
    meta = read_header(settings.model)
    type_k = budget.cache_type(settings.type_k, "--cache-type-k")
    type_v = budget.cache_type(settings.type_v, "--cache-type-v")
    if settings.flash_attn == "off" and settings.type_v not in ("f16", "f32", "bf16"):
        raise StartupError(f"--cache-type-v {settings.type_v} needs flash attention; drop --flash-attn off")
    free = _free_memory(settings, meta)
    model = _load_model(settings)
    try:
        _check_generates(model, settings.model)
        found = memory.detect(model, meta["general.architecture"], swa_full=settings.swa_full)
        n_seq = _sequences(settings, found.kind)
        params = _context_params(settings, n_seq, type_k, type_v)
        per_token = budget.kv_bytes_per_token(meta, settings.type_k, settings.type_v)
        n_ctx_train = int(C.llama_model_n_ctx_train(model))
        params.n_ctx = settings.n_ctx or budget.choose_ctx(n_ctx_train, per_token, free - _weights(model))
        if settings.n_ctx and per_token * settings.n_ctx > free - _weights(model):
            raise StartupError(_too_little(settings.n_ctx, per_token, free - _weights(model)))
        ctx = _init_context(model, params, settings)
    except BaseException:
        C.llama_model_free(model)
        raise
    info = _info(settings, model, ctx, found, n_seq, per_token, on_gpu=_on_gpu(settings, meta))
    return Loaded(model, ctx, C.llama_get_memory(ctx), C.llama_model_get_vocab(model), info, RULES[found.kind])


def _load_model(settings: EngineSettings) -> Handle:
    params = C.llama_model_default_params()
    params.n_gpu_layers = settings.n_gpu_layers
    lib.forget_log()
    model = C.llama_model_load_from_file(settings.model.encode(), params)
    if not model:
        raise StartupError(f"cannot load {settings.model}: {lib.last_error() or 'the library gave no reason'}")
    return model


def _check_generates(model: Handle, path: str) -> None:
    if not C.llama_model_has_decoder(model) or int(C.llama_model_n_cls_out(model)) > 1:
        raise StartupError(f"{Path(path).name} is an encoder model and cannot generate text; pick a causal model")
    if C.llama_model_is_diffusion(model):
        raise StartupError(f"{Path(path).name} is a diffusion model, which is not supported; pick a causal model")


def _on_gpu(settings: EngineSettings, meta: dict[str, Any]) -> bool:
    """Whether every layer lies on a GPU, and with it the cache."""
    layers = int(meta.get(f"{meta['general.architecture']}.block_count", 0))
    asked = settings.n_gpu_layers < 0 or settings.n_gpu_layers >= layers > 0
    return asked and lib.gpu_memory() is not None


def _free_memory(settings: EngineSettings, meta: dict[str, Any]) -> int:
    """Bytes free where the cache will lie, before the weights are loaded."""
    gpu = lib.gpu_memory() if _on_gpu(settings, meta) else None
    return gpu[0] if gpu else budget.free_host_memory()


def _weights(model: Handle) -> int:
    return int(C.llama_model_size(model))


def _sequences(settings: EngineSettings, kind: MemoryKind) -> int:
    limit = int(C.llama_max_parallel_sequences())
    wanted = settings.n_seq
    if wanted is None:
        # Each id costs a recurrent state, or one more window in the sliding layers' cache.
        costly = RULES[kind].state or kind == MemoryKind.SLIDING
        wanted = settings.parallel + settings.state_slots if costly else ATTENTION_SEQUENCES
    if not 1 <= wanted <= limit:
        raise StartupError(f"{wanted} sequences asked for, the library takes 1 to {limit}; lower --parallel")
    return wanted


def _context_params(settings: EngineSettings, n_seq: int, type_k: int, type_v: int) -> Any:
    params = C.llama_context_default_params()
    params.n_seq_max = n_seq
    # The library reserves an output for every sequence and aborts where a batch has no room for them.
    params.n_batch = max(settings.n_batch, n_seq)
    params.n_ubatch = min(settings.n_ubatch, settings.n_batch)
    params.n_threads, params.n_threads_batch = settings.n_threads, settings.n_threads_batch
    params.flash_attn_type = FLASH_ATTENTION[settings.flash_attn]
    params.type_k, params.type_v = type_k, type_v
    params.swa_full, params.kv_unified = settings.swa_full, True
    return params


def _init_context(model: Handle, params: Any, settings: EngineSettings) -> Handle:
    lib.forget_log()
    ctx = C.llama_init_from_model(model, params)
    if not ctx:
        reason = lib.last_error() or "the library gave no reason"
        raise StartupError(f"cannot create a context of {params.n_ctx} cells: {reason}; try a smaller --ctx-size")
    if not C.llama_get_memory(ctx):
        C.llama_free(ctx)
        raise StartupError(f"{Path(settings.model).name} has no cache and cannot generate text; pick a causal model")
    return ctx


def _too_little(n_ctx: int, per_token: int, free: int) -> str:
    fits = max(0, free // per_token // budget.PAD * budget.PAD)
    return (
        f"--ctx-size {n_ctx} needs {n_ctx * per_token // MIB} MiB of cache, about {max(0, free) // MIB} MiB are free; "
        f"use {fits} or less, or a smaller --cache-type-k/-v"
    )


def _info(
    settings: EngineSettings,
    model: Handle,
    ctx: Handle,
    found: memory.Detected,
    n_seq: int,
    per_token: int,
    *,
    on_gpu: bool,
) -> ModelInfo:
    rules = RULES[found.kind]
    n_ctx = int(C.llama_n_ctx(ctx))
    notes = [
        _device(settings.n_gpu_layers),
        f"cache: {n_ctx} cells, {per_token * n_ctx / MIB:.0f} MiB ({settings.type_k}/{settings.type_v})",
    ]
    size = _state_bytes() if rules.state else 0
    if rules.state:
        beside = f"{settings.parallel} for running requests, {n_seq - settings.parallel} beside them (--state-slots)"
        notes.append(f"states: {n_seq} of {size / MIB:.2f} MiB, {n_seq * size / MIB:.1f} MiB on the device: {beside}")
    why_not = "" if settings.sharing else "switched off"
    if not rules.shares:
        why_not = f"{found.reason}: this kind of memory is not proven safe to share"
    return ModelInfo(
        path=settings.model,
        description=_description(model),
        kind=found.kind,
        n_ctx=n_ctx,
        n_ctx_train=int(C.llama_model_n_ctx_train(model)),
        n_seq=n_seq,
        n_vocab=int(C.llama_vocab_n_tokens(C.llama_model_get_vocab(model))),
        n_embd=int(C.llama_model_n_embd(model)),
        n_params=int(C.llama_model_n_params(model)),
        size_bytes=_weights(model),
        kv_bytes_per_token=per_token,
        state_bytes=size,
        on_gpu=on_gpu,
        exact_chunk=EXACT_PLAIN if settings.flash_attn == "off" else EXACT_FLASH,
        sharing=settings.sharing and rules.shares,
        sharing_off_reason=why_not,
        notes=tuple(notes),
    )


def _description(model: Handle) -> str:
    """Architecture, size and quantization, the size counted: the library knows those of some models only."""
    arch, _, *quantization = lib.description(model).split()
    count = int(C.llama_model_n_params(model))
    size = next(
        (f"{count / unit:.3g}{letter}" for letter, unit in (("B", 1e9), ("M", 1e6)) if count >= unit), str(count)
    )
    return " ".join([arch, size, *(word for word in quantization if word != "(guessed)")])


def _device(gpu_layers: int) -> str:
    """Who computes, and whether ``--gpu-layers`` was given in vain."""
    if not C.llama_supports_gpu_offload():  # it asks for a device, not for the code alone
        vain = f"; warning: -ngl {gpu_layers} has no effect" if gpu_layers > 0 else ""
        return f"device: CPU only: this build of llama.cpp has no GPU support or finds no GPU (README: GPU){vain}"
    if gpu_layers == 0:
        return "device: CPU, as -ngl 0 asks"
    return f"device: GPU, {'every layer' if gpu_layers < 0 else f'up to {gpu_layers} layers'}"


def _state_bytes() -> int:
    """Bytes of one sequence's recurrent state, from the library's own account of its buffer, 0 if it gave none."""
    for line in lib.log_lines():
        # "llama_memory_recurrent: size = 1.55 MiB ( 13 cells, ...": the one place where the library says it.
        if "llama_memory_recurrent" in line and "size =" in line and "cells" in line:
            words = line.replace("(", " ").replace(")", " ").replace(",", " ").split()
            return int(float(words[words.index("MiB") - 1]) * MIB / int(words[words.index("cells") - 1]))
    return 0
