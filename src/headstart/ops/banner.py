"""What a person wants to know when the server is up: model, memory, budgets, what is off and why, addresses."""

from __future__ import annotations

import ipaddress
import textwrap
from typing import TextIO

from rich.console import Console
from rich.text import Text

from ..config import Config
from ..messages import ModelInfo
from ..types import MemoryKind

Facts = list[tuple[str, str]]  # name, text; in reading order; a name may come twice

_CUTS = {
    MemoryKind.ATTENTION: "a prefix can be shared up to any token",
    MemoryKind.SLIDING: "a prefix can be shared where it was kept",
    MemoryKind.HYBRID: "a prefix can be shared where its state was kept",
    MemoryKind.RECURRENT: "a prefix can be shared where its state was kept",
    MemoryKind.UNKNOWN: "not known well enough to share",
}
_DEVICE, _STATES = "device: ", "states: "  # begin the engine's lines on who computes, and on states on the device
# Hosts that stand for every address, and the one to use from here.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def facts(config: Config, model: ModelInfo, notes: tuple[str, ...] = ()) -> Facts:
    """Every line of the banner. ``notes`` are further lines, beside the model's own."""
    lines = [
        ("model", f"{model.path} ({model.description}, {_size(model.size_bytes)})"),
        *_notes(model, _DEVICE),
        ("memory", f"{model.kind.value}: {_CUTS[model.kind]}"),
        ("context", _context(model)),
        *_cache(config, model),
        ("sharing", _sharing(config, model)),
        ("requests", f"{config.parallel} at a time, {config.max_queue} may wait"),
        ("threads", f"{config.threads} for generation, {config.threads_batch} for prompts"),
    ]
    if model.state_bytes:
        lines += [*_notes(model, _STATES), ("", f"up to {config.cache_states} MiB of saved ones in host memory")]
    # The engine's own line about the cache is for who has no banner; "cache" has said it.
    lines += [("note", note) for note in (*model.notes, *notes) if not note.startswith((_DEVICE, _STATES, "cache:"))]
    lines += [("access", _access(config)), ("address", address(config)), ("agents", f"base URL {address(config)}/v1")]
    return lines


def _notes(model: ModelInfo, kind: str) -> Facts:
    return [(kind.removesuffix(": "), note.removeprefix(kind)) for note in model.notes if note.startswith(kind)]


def address(config: Config) -> str:
    """A URL that reaches the server from this machine."""
    host = _EVERYWHERE.get(config.host, config.host)
    return f"http://[{host}]:{config.port}" if ":" in host else f"http://{host}:{config.port}"


def show(lines: Facts, out: TextIO) -> None:
    """Print ``lines``: aligned, with colour on a terminal, plain elsewhere."""
    if not out.isatty():
        out.write("".join(f"{name:<10}{text}\n" for name, text in lines))
        out.flush()
        return
    console = Console(file=out)
    for name, text in lines:
        # Between words only: a path or an address that is too long for the line can still be copied whole.
        parts = textwrap.wrap(text, max(40, console.width - 10), break_long_words=False, break_on_hyphens=False)
        console.print(Text.assemble((f"{name:<10}", "bold cyan"), ("\n" + " " * 10).join(parts)), soft_wrap=True)


def _context(model: ModelInfo) -> str:
    cells = f"{model.n_ctx:,} tokens for all sessions together"
    if model.n_ctx == model.n_ctx_train:
        return f"{cells}, as many as the model was trained on"
    return f"{cells}; the model was trained on {model.n_ctx_train:,}"


def _cache(config: Config, model: ModelInfo) -> Facts:
    if not model.kv_bytes_per_token:
        return []
    sizes = f"{_size(model.kv_bytes_per_token * model.n_ctx)}, {_size(model.kv_bytes_per_token)} a token"
    return [("cache", f"{sizes} (keys {config.cache_type_k}, values {config.cache_type_v})")]


def _sharing(config: Config, model: ModelInfo) -> str:
    if not config.slot_attach:
        return "off: --no-slot-attach"
    if not model.sharing:
        return f"off: {model.sharing_off_reason or 'this model does not allow it'}"
    heads = (
        f"heads of {config.prefix_min_tokens} tokens and more are kept" if config.auto_prefix else "--no-auto-prefix"
    )
    return f"on; {heads}"


def _access(config: Config) -> str:
    where = "this machine" if config.host in _EVERYWHERE else config.host
    who = "this machine only" if _local(config.host) else f"everyone who reaches {where}"
    if not config.api_key:
        return f"{who}, without an API key"
    return f"{who}, with {'the API key' if len(config.api_key) == 1 else f'one of {len(config.api_key)} API keys'}"


def _local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _size(n_bytes: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes} B"
