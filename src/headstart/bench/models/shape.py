"""Sizes of a generated model, and the architectures by the kind of memory that the library gives them."""

from __future__ import annotations

from dataclasses import dataclass

from ...types import MemoryKind

ARCHITECTURES: dict[str, MemoryKind] = {
    "llama": MemoryKind.ATTENTION,
    "qwen3moe": MemoryKind.ATTENTION,
    "qwen35": MemoryKind.HYBRID,  # Gated DeltaNet on three layers of four, attention on the fourth
    "qwen35moe": MemoryKind.HYBRID,
    "lfm2": MemoryKind.HYBRID,  # short convolutions, attention on every third layer
    "mamba2": MemoryKind.RECURRENT,
    "gemma3": MemoryKind.SLIDING,  # a window of `WINDOW` tokens on five layers of six
}
DELTA_NET = frozenset({"qwen35", "qwen35moe"})
MIXTURE = frozenset({"qwen3moe", "qwen35moe"})
WINDOW = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Layer count, widths and head counts; the fields of kinds that an architecture lacks are ignored."""

    layers: int = 8
    embd: int = 256
    ff: int = 768
    heads: int = 4
    kv_heads: int = 2
    head: int = 64
    ctx: int = 131072
    state: int = 64
    state_heads: int = 4
    state_groups: int = 2
    experts: int = 8
    experts_used: int = 2
    expert_ff: int = 128


def attends(arch: str, layer: int) -> bool:
    """Whether ``layer`` of ``arch`` is an attention layer."""
    if arch in DELTA_NET:
        return (layer + 1) % 4 == 0
    return arch != "lfm2" or layer % 3 == 2
