"""Every setting, declared once: type, bounds, default, flags and help text.

The command line, the environment variables and the keys of the TOML file are all derived from these fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUseDefault

from .machine import physical_cores

ENV_PREFIX = "HEADSTART_"

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
_FLOAT_CACHES = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class Flag:
    """How a field is spelled on the command line.

    ``off`` is the flag that makes a boolean False, ``bare`` the value of a flag that stands without one. ``hint`` is
    what to know besides type and bounds, for whoever gave a bad value.
    """

    names: tuple[str, ...]
    group: str
    metavar: str = ""
    off: str | None = None
    bare: str | None = None
    hint: str = ""


def _flag(*names: str, group: str, **more: str) -> Flag:
    return Flag(names, group, **more)


def _auto(value: Any) -> Any:
    """llama-server's spellings of "choose for me"."""
    if value in (-1, 0, "-1", "0", "auto"):
        raise PydanticUseDefault
    return value


def _layers(value: Any) -> Any:
    return -1 if value in ("auto", "all") else value


def _switch(value: Any) -> Any:
    spellings = {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off", "-1": "auto"}
    text = str(value).lower()
    return spellings.get(text, text)


def _keys(value: Any) -> Any:
    """One string holds one key or several with commas between; a list holds one key per item."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(key, str) for key in value):
        raise ValueError("expected a string or a list of strings")
    keys = tuple(key.strip() for key in value)
    if not all(keys):
        # Dropping it would leave a server open whose owner believes that it is closed.
        raise ValueError("a key must not be empty")
    return keys


def _repository(value: Any) -> Any:
    if value is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+(:[\w.-]+)?", str(value)):
        raise ValueError("expected user/repository or user/repository:quantization")
    return value


def _same_as_threads(values: dict[str, Any]) -> int:
    threads: int = values.get("threads", 1)
    return threads


_SERVER, _MODEL, _COMPUTE, _SHARING = "Server", "Model", "Computation", "Sharing and scheduling"
_CELLS = "all sessions share these cells: 1024 hold a short chat, agents want 16384 and more; 0 chooses"
_CHOOSES = "0 chooses"


class Config(BaseModel):
    """All settings of one server, frozen. It travels to the worker as JSON (`model_dump_json`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, protected_namespaces=())

    config: Annotated[Path | None, _flag("--config", group=_SERVER, metavar="FILE")] = Field(
        None, description="Read settings from this TOML file; variables and flags override it"
    )
    host: Annotated[str, _flag("--host", group=_SERVER, metavar="HOST")] = Field(
        "127.0.0.1", min_length=1, description="Address to listen on"
    )
    port: Annotated[int, _flag("--port", group=_SERVER, metavar="N")] = Field(
        8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one"
    )
    api_key: Annotated[tuple[str, ...], BeforeValidator(_keys), _flag("--api-key", group=_SERVER, metavar="KEY")] = (
        Field((), repr=False, description="Accept only requests with this key; repeatable")
    )
    strict_model: Annotated[bool, _flag("--strict-model", group=_SERVER, off="--no-strict-model")] = Field(
        False, description="Answer 404 to a request for a model of another name"
    )
    max_body: Annotated[int, _flag("--max-body", group=_SERVER, metavar="MIB")] = Field(
        64, ge=1, le=4096, description="Largest request body, MiB"
    )
    shutdown_grace: Annotated[float, _flag("--shutdown-grace", group=_SERVER, metavar="S")] = Field(
        10.0, ge=0, le=3600, allow_inf_nan=False, description="Seconds that open streams get to finish on shutdown"
    )
    log_format: Annotated[Literal["pretty", "json"], _flag("--log-format", group=_SERVER)] = Field(
        "pretty", description="Log lines for people or for machines"
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _flag("--log-level", group=_SERVER)] = Field(
        "info", description="Least severe log lines to print; debug has one per step"
    )

    model: Annotated[str | None, _flag("-m", "--model", group=_MODEL, metavar="FILE")] = Field(
        None, description="GGUF file to serve; without it the demo model, if installed"
    )
    hf_repo: Annotated[
        str | None,
        BeforeValidator(_repository),
        _flag("-hf", "-hfr", "--hf-repo", group=_MODEL, metavar="USER/REPO[:QUANT]"),
    ] = Field(None, description="Fetch the model from Hugging Face, once")
    alias: Annotated[str | None, _flag("-a", "--alias", group=_MODEL, metavar="NAME")] = Field(
        None, min_length=1, description="Name of the model for clients; default: the file's"
    )
    chat_template_file: Annotated[Path | None, _flag("--chat-template-file", group=_MODEL, metavar="FILE")] = Field(
        None, description="Jinja chat template to use instead of the model's own"
    )

    ctx_size: Annotated[
        int | None, BeforeValidator(_auto), _flag("-c", "--ctx-size", group=_COMPUTE, metavar="N", hint=_CELLS)
    ] = Field(
        # The library aborts where a context has fewer cells than sequence ids, and attention models take 256 of those.
        None,
        ge=256,
        le=2**31 - 1,
        description="Cells that all sessions share; 0: from the model and the memory",
    )
    parallel: Annotated[int, _flag("-np", "--parallel", group=_COMPUTE, metavar="N")] = Field(
        4, ge=1, le=128, description="Requests that run at the same time"
    )
    batch_size: Annotated[int, _flag("-b", "--batch-size", group=_COMPUTE, metavar="N")] = Field(
        2048, ge=32, le=2**20, description="Most tokens in one call of the library"
    )
    ubatch_size: Annotated[int, _flag("-ub", "--ubatch-size", group=_COMPUTE, metavar="N")] = Field(
        512, ge=32, le=2**20, description="Most tokens computed at once, hence in one step; at most -b"
    )
    threads: Annotated[
        int, BeforeValidator(_auto), _flag("-t", "--threads", group=_COMPUTE, metavar="N", hint=_CHOOSES)
    ] = Field(
        default_factory=physical_cores, ge=1, le=1024, description="Threads for generation; default: physical cores"
    )
    threads_batch: Annotated[
        int, BeforeValidator(_auto), _flag("-tb", "--threads-batch", group=_COMPUTE, metavar="N", hint=_CHOOSES)
    ] = Field(default_factory=_same_as_threads, ge=1, le=1024, description="Threads for prompts; default: as -t")
    n_gpu_layers: Annotated[
        int,
        BeforeValidator(_layers),
        _flag("-ngl", "--gpu-layers", "--n-gpu-layers", group=_COMPUTE, metavar="N|all", hint="-1 or all: every layer"),
    ] = Field(-1, ge=-1, le=10_000, description="Layers on the GPU, if there is one; -1 or all: all of them")
    flash_attn: Annotated[
        Literal["on", "off", "auto"],
        BeforeValidator(_switch),
        _flag("-fa", "--flash-attn", group=_COMPUTE, bare="on"),
    ] = Field("auto", description="Flash attention")
    cache_type_k: Annotated[CacheType, _flag("-ctk", "--cache-type-k", group=_COMPUTE, metavar="TYPE")] = Field(
        "f16", description="Type of the cached keys"
    )
    cache_type_v: Annotated[CacheType, _flag("-ctv", "--cache-type-v", group=_COMPUTE, metavar="TYPE")] = Field(
        "f16", description="Type of the cached values; a quantized one needs flash attention"
    )
    swa_full: Annotated[bool, _flag("--swa-full", group=_COMPUTE, off="--no-swa-full")] = Field(
        False, description="Keep the whole context of sliding-window layers"
    )

    slot_attach: Annotated[bool, _flag("--slot-attach", group=_SHARING, off="--no-slot-attach")] = Field(
        True, description="Let a session use the prefix of another one"
    )
    auto_prefix: Annotated[bool, _flag("--auto-prefix", group=_SHARING, off="--no-auto-prefix")] = Field(
        True, description="Find the end of tools and instructions and keep that prefix"
    )
    prefix_min_tokens: Annotated[int, _flag("--prefix-min-tokens", group=_SHARING, metavar="N")] = Field(
        256, ge=1, le=2**31 - 1, description="Keep no automatic prefix that is shorter"
    )
    step_ms: Annotated[float, _flag("--step-ms", group=_SHARING, metavar="MS")] = Field(
        100.0, ge=1, le=60_000, allow_inf_nan=False, description="Target for one step while a session decodes"
    )
    max_queue: Annotated[int, _flag("--max-queue", group=_SHARING, metavar="N")] = Field(
        512, ge=0, le=1_000_000, description="Requests that may wait; one more is answered 429"
    )
    state_slots: Annotated[
        int | None, BeforeValidator(_auto), _flag("--state-slots", group=_SHARING, metavar="N", hint=_CHOOSES)
    ] = Field(None, ge=1, le=250, description="Device states beside the running ones, hybrid models; 0: twice -np")
    cache_states: Annotated[int, _flag("--cache-states", group=_SHARING, metavar="MIB")] = Field(
        1024, ge=0, le=2**24, description="Host memory for saved recurrent states, MiB"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        # Whichever is smaller bounds a step: a micro-batch above --batch-size is clamped, as in llama.cpp.
        step, flag = min((self.ubatch_size, "--ubatch-size"), (self.batch_size, "--batch-size"))
        if self.parallel >= step:
            raise ValueError(f"--parallel {self.parallel} needs a {flag} above it, not {step}")
        if self.cache_type_v not in _FLOAT_CACHES and self.flash_attn == "off":
            raise ValueError(f"--cache-type-v {self.cache_type_v} needs flash attention; drop --flash-attn off")
        if self.model is not None and self.hf_repo is not None:
            raise ValueError("--model and --hf-repo both name a model; give one")
        return self


def fields() -> Iterator[tuple[str, FieldInfo, Flag]]:
    """Name, declaration and flag of every setting, in the order of the help text."""
    for name, info in Config.model_fields.items():
        yield name, info, next(item for item in info.metadata if isinstance(item, Flag))
