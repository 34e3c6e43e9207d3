"""What each memory kind allows, as a table, and which kind a model is."""

from __future__ import annotations

from dataclasses import dataclass

import llama_cpp.llama_cpp as C

from ..types import MemoryKind
from .lib import Handle


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be done to a sequence of a kind.

    ``cut_anywhere``: another sequence may attach at any position below the source's end, else only where a holder or
    a saved state stands. ``truncates``: positions may be removed from the end. ``has_state``: a recurrent state
    comes with each sequence id. ``shares``: prefixes are shared by default; ``why_not`` is the line that says why not.
    """

    cut_anywhere: bool
    truncates: bool
    has_state: bool
    shares: bool
    why_not: str = ""


RULES: dict[MemoryKind, Rules] = {
    MemoryKind.ATTENTION: Rules(True, True, False, True),
    # Below a holder's end the window of its sliding layers may be gone; the engine checks it at each attach.
    MemoryKind.SLIDING: Rules(False, True, False, False, "its sliding window is kept only at exact positions"),
    MemoryKind.HYBRID: Rules(False, False, True, False, "its recurrent state exists only at exact positions"),
    MemoryKind.RECURRENT: Rules(False, False, True, False, "its recurrent state exists only at exact positions"),
    MemoryKind.UNKNOWN: Rules(False, False, False, False, "this kind of memory is not proven safe to share"),
}

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
