"""Which kind of memory a model has. What each kind allows is in `core.rules`."""

from __future__ import annotations

from dataclasses import dataclass

import llama_cpp.llama_cpp as C

from ..types import MemoryKind
from .lib import Handle

# Architectures whose caches hold more than keys and values per token (compressed or indexed attention), by the
# prefix of `general.architecture`. Sharing them by tagging cells has no proof yet.
UNPROVEN_ARCHITECTURES = ("deepseek4", "deepseek32", "glm-dsa", "rwkv", "arwkv")


@dataclass(frozen=True, slots=True)
class Detected:
    kind: MemoryKind
    reason: str


def detect(model: Handle, architecture: str, *, swa_full: bool) -> Detected:
    """The kind of memory that the library gives this model, and what it was told by."""
    if C.llama_model_is_diffusion(model):
        return Detected(MemoryKind.UNKNOWN, "a diffusion model")
    if C.llama_model_has_encoder(model):
        return Detected(MemoryKind.UNKNOWN, "an encoder-decoder model")
    if architecture.startswith(UNPROVEN_ARCHITECTURES):
        return Detected(MemoryKind.UNKNOWN, f"architecture {architecture}")
    window = int(C.llama_model_n_swa(model))
    if C.llama_model_is_hybrid(model):
        return Detected(MemoryKind.HYBRID, "attention and recurrent layers")
    if C.llama_model_is_recurrent(model):
        return Detected(MemoryKind.RECURRENT, "recurrent layers only")
    if window > 0 and not swa_full:
        return Detected(MemoryKind.SLIDING, f"attention with a sliding window of {window} tokens")
    if window > 0:
        return Detected(MemoryKind.ATTENTION, f"sliding window of {window} tokens, full cache (swa_full)")
    return Detected(MemoryKind.ATTENTION, "attention only")
