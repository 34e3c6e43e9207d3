"""From the server's settings to a loaded engine."""

from __future__ import annotations

from ..config import Config
from .llama import LlamaEngine
from .settings import EngineSettings


def load_engine(config: Config, *, keep_logits: bool = False) -> LlamaEngine:
    """Load ``config.model``, which is a file by now. Raises `StartupError`."""
    assert config.model is not None
    return LlamaEngine(
        EngineSettings(
            model=config.model,
            n_ctx=config.ctx_size,
            parallel=config.parallel,
            state_slots=config.state_slots or 2 * config.parallel,
            n_batch=config.batch_size,
            n_ubatch=config.ubatch_size,
            n_threads=config.threads,
            n_threads_batch=config.threads_batch,
            n_gpu_layers=config.n_gpu_layers,
            flash_attn=config.flash_attn,
            type_k=config.cache_type_k,
            type_v=config.cache_type_v,
            swa_full=config.swa_full,
            sharing=config.slot_attach,
        ),
        keep_logits=keep_logits,
    )
