"""How many cells fit: bytes per cached token from a model's metadata, and the memory that is free."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as C

from ..errors import StartupError

# (values, bytes) of one block of each cache type that the library takes.
CACHE_TYPES: dict[str, tuple[int, int, int]] = {
    "f32": (C.GGML_TYPE_F32, 1, 4),
    "f16": (C.GGML_TYPE_F16, 1, 2),
    "bf16": (30, 1, 2),
    "q8_0": (C.GGML_TYPE_Q8_0, 32, 34),
    "q4_0": (C.GGML_TYPE_Q4_0, 32, 18),
    "q4_1": (C.GGML_TYPE_Q4_1, 32, 20),
    "iq4_nl": (20, 32, 18),
    "q5_0": (C.GGML_TYPE_Q5_0, 32, 22),
    "q5_1": (C.GGML_TYPE_Q5_1, 32, 24),
}
FREE_SHARE = 0.6  # of the memory left after the weights; the rest is for compute buffers and other programs
MIN_CTX = 512
PAD = 256  # the library rounds contexts up to this many cells


def cache_type(name: str, key: str) -> int:
    """The library's number for a cache type; ``key`` is the flag to name in the error."""
    if name not in CACHE_TYPES:
        raise StartupError(f"{key} {name!r} is unknown; use one of {', '.join(CACHE_TYPES)}")
    return CACHE_TYPES[name][0]


def kv_bytes_per_token(meta: dict[str, Any], type_k: str, type_v: str) -> int:
    """Bytes that one token takes over all attention layers, 0 where there are none. An upper bound for windows."""
    arch = meta["general.architecture"]

    def per_layer(key: str, default: Any) -> list[Any]:
        value = meta.get(f"{arch}.{key}", default)
        return list(value) if isinstance(value, list) else [value] * layers

    layers = int(meta.get(f"{arch}.block_count", 0))
    heads = per_layer("attention.head_count", 0)
    kv_heads = per_layer("attention.head_count_kv", heads)
    width = int(meta.get(f"{arch}.embedding_length", 0))
    interval = int(meta.get(f"{arch}.full_attention_interval", 1) or 1)
    total = 0.0
    for layer, (n_heads, n_kv) in enumerate(zip(heads, kv_heads, strict=False)):
        if not n_kv or (layer + 1) % interval:
            continue
        head = width // n_heads if n_heads else 0
        for key, name in (("attention.key_length", type_k), ("attention.value_length", type_v)):
            _, values, size = CACHE_TYPES[name]
            total += n_kv * int(meta.get(f"{arch}.{key}", head)) * size / values
    return int(total)


def free_host_memory() -> int:
    """Bytes a process can still take, as far as the system tells."""
    free = _available()
    limit, used = _cgroup("memory.max"), _cgroup("memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free


def _available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    # No such file on macOS: half of what is built in is a cautious guess.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _cgroup(name: str) -> int | None:
    try:
        text = Path(f"/sys/fs/cgroup/{name}").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def choose_ctx(n_ctx_train: int, bytes_per_token: int, free: int) -> int:
    """Cells for a context whose size nobody asked for: the training context, or what fits in the free memory."""
    wanted = n_ctx_train or 4096
    if bytes_per_token:
        wanted = min(wanted, int(free * FREE_SHARE) // bytes_per_token)
    return max(MIN_CTX, wanted // PAD * PAD)
