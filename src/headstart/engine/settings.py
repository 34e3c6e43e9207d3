"""How to load a model: everything the library is told, under the names of llama-server's flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of one engine.

    ``n_ctx`` cells are shared by all sequences; None takes the model's training context, bounded by free memory.
    ``n_seq`` None chooses by memory kind: attention models get `model.ATTENTION_SEQUENCES` ids, models with a
    recurrent state get ``parallel + state_slots``, since the library allocates a state for each id.
    ``flash_attn`` on a CPU computes chunks of 64 tokens and more with another kernel than shorter ones, so a prompt's
    last bits depend on where its chunks end; "off" makes them the same for every way to cut it, and prefill slower.
    ``sharing`` False keeps `ModelInfo.sharing` off whatever the kind allows.
    """

    model: str
    n_ctx: int | None = None
    n_seq: int | None = None
    parallel: int = 4
    state_slots: int = 8
    n_batch: int = 2048
    n_ubatch: int = 512
    n_threads: int = 2
    n_threads_batch: int = 2
    n_gpu_layers: int = -1
    flash_attn: Literal["auto", "on", "off"] = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    swa_full: bool = False
    sharing: bool = True
