"""The library as a typed module: initialised once, its log kept, its C calls named as the engine uses them.

Handles are opaque (`Handle`). Every call that takes an index the library would assert on is checked by our callers:
an assertion in the library ends the process.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import Any

import llama_cpp.llama_cpp as C

Handle = Any
"""A pointer of the library: model, vocabulary, context, memory or sampler."""

logits_address: Any = C._lib["llama_get_logits"]
"""The address of the last step's logits, or None. The binding's own function makes a pointer object for each call."""
logits_address.argtypes, logits_address.restype = [ctypes.c_void_p], ctypes.c_void_p

PARTIAL_ONLY: int = C.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
ERROR_LEVEL, CONTINUED = 4, 5

_lock = threading.Lock()
_started = False
_recent: deque[tuple[int, str]] = deque(maxlen=400)


def _keep_log(level: int, text: bytes | None, _data: object) -> None:
    line = (text or b"").decode("utf-8", "replace")
    if level == CONTINUED and _recent:
        last_level, last = _recent.pop()
        _recent.append((last_level, (last + line)[:2000]))
    else:
        _recent.append((level, line[:2000]))


_on_log: Any = C.llama_log_callback(_keep_log)  # the library calls it for as long as the process lives


def start() -> None:
    """Initialise the library; later calls do nothing. Its log goes to memory only."""
    global _started
    with _lock:
        if not _started:
            C.llama_log_set(_on_log, ctypes.c_void_p(0))
            C.llama_backend_init()
            _started = True


def forget_log() -> None:
    """Start a new stretch of the log, before a call whose failure `last_error` should explain."""
    _recent.clear()


def last_error() -> str:
    """The first error line since `forget_log`, without the function name that logged it, or "" ."""
    for level, line in list(_recent):
        text = line.strip()
        if level == ERROR_LEVEL and text:
            head, _, rest = text.partition(": ")
            return rest if rest and " " not in head else text
    return ""


def log_lines() -> list[str]:
    """What the library said since `forget_log`, oldest first."""
    return [line.rstrip() for _, line in list(_recent)]


def version() -> str:
    """Of the bindings; with it the library's behaviour is fixed."""
    import llama_cpp

    return str(llama_cpp.__version__)


# ---- model facts


def metadata(model: Handle) -> dict[str, str]:
    """All scalar metadata of the GGUF as text; arrays come shortened by the library."""
    found: dict[str, str] = {}
    for i in range(C.llama_model_meta_count(model)):
        key = _text(C.llama_model_meta_key_by_index, model, i)
        if key is not None:
            found[key] = _text(C.llama_model_meta_val_str_by_index, model, i) or ""
    return found


def description(model: Handle) -> str:
    """Architecture, size and quantization in the library's words."""
    return _text(C.llama_model_desc, model) or "unknown model"


def _text(call: Any, *args: object) -> str | None:
    size = 256
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = int(call(*args, buffer, size))
        if needed < 0:
            return None
        if needed < size:
            return buffer.raw[:needed].decode("utf-8", "replace")
        size = needed + 1


# ---- devices


def gpu_memory() -> tuple[int, int] | None:
    """(free, total) bytes over all GPUs that the library would offload to, or None where there is none."""
    if not C.llama_supports_gpu_offload():
        return None
    from llama_cpp._ggml import libggml

    base = ctypes.CDLL(libggml._name.replace("libggml", "libggml-base"))
    libggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    libggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    libggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    base.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    base.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    free = total = 0
    for i in range(libggml.ggml_backend_dev_count()):
        device = libggml.ggml_backend_dev_get(i)
        if base.ggml_backend_dev_type(device) != 1:
            continue
        one_free, one_total = ctypes.c_size_t(), ctypes.c_size_t()
        base.ggml_backend_dev_memory(device, ctypes.byref(one_free), ctypes.byref(one_total))
        free, total = free + one_free.value, total + one_total.value
    return (free, total) if total else None


# ---- memory of sequences


def copy_seq(mem: Handle, src: int, dst: int, end: int) -> None:
    """Tag cells [0, end) of ``src`` as ``dst``'s too (-1: all); a recurrent state comes along as it stands."""
    C.llama_memory_seq_cp(mem, src, dst, 0, end)


def remove_seq(mem: Handle, seq: int, start: int = -1) -> bool:
    """Remove positions from ``start`` on (-1: all); False means that the library refused and changed nothing."""
    return bool(C.llama_memory_seq_rm(mem, seq, start, -1))


def first_position(mem: Handle, seq: int) -> int:
    """The lowest position that every layer still has, -1 on an empty sequence."""
    return int(C.llama_memory_seq_pos_min(mem, seq))


def last_position(mem: Handle, seq: int) -> int:
    """The highest position of the sequence, -1 on an empty one."""
    return int(C.llama_memory_seq_pos_max(mem, seq))


def export_state(ctx: Handle, seq: int) -> Any | None:
    """The recurrent state alone as bytes, or None where the library wrote another size than it announced."""
    size = int(C.llama_state_seq_get_size_ext(ctx, seq, PARTIAL_ONLY))
    if size <= 0:
        return None
    blob = (ctypes.c_uint8 * size)()
    written = int(C.llama_state_seq_get_data_ext(ctx, blob, size, seq, PARTIAL_ONLY))
    return blob if written == size else None


def import_state(ctx: Handle, seq: int, blob: Any) -> bool:
    """Put an exported state on ``seq``; False means that it was not taken whole and the sequence must be wiped."""
    return int(C.llama_state_seq_set_data_ext(ctx, blob, len(blob), seq, PARTIAL_ONLY)) == len(blob)
