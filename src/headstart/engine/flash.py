"""Flash attention or not, where the user leaves it to us.

On a CPU the library's flash attention computes fewer than 64 tokens at a time with a kernel that takes two to three
times as long as plain attention: 25 against 10 ms for a decode step at 9,000 tokens on the generated dense model
(llama-cpp-python 0.3.36). Prefill is about equal. Plain attention needs room for a micro-batch's scores over the whole
context, so with large contexts flash attention it is.
"""

from __future__ import annotations

from .settings import EngineSettings

SHARE = 0.1  # of the free memory that attention scores may take
LONG = 64  # tokens from which flash attention on a CPU computes a chunk with its fast kernel
PLAIN = 4  # plain attention computes single tokens by another kernel; a few more are a margin


def choose(settings: EngineSettings, *, on_gpu: bool, heads: int, n_ctx: int, free: int) -> str:
    """ "on", "off" or "auto" for the library. ``free`` is in bytes, after weights and cache."""
    if settings.flash_attn != "auto":
        return settings.flash_attn
    if on_gpu or settings.type_v not in ("f16", "f32", "bf16"):
        return "auto"
    return "off" if scores_bytes(settings, heads, n_ctx) <= SHARE * free else "auto"


def scores_bytes(settings: EngineSettings, heads: int, n_ctx: int) -> int:
    """What plain attention keeps for one micro-batch: a float for each token, head and cell."""
    return 4 * heads * n_ctx * min(settings.n_ubatch, settings.n_batch)


def exact_chunk(flash: str) -> int:
    """From how many tokens on a chunk is computed alike however a prompt is cut."""
    return PLAIN if flash == "off" else LONG
