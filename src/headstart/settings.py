"""Settings from their four places: defaults < TOML file < ``HEADSTART_...`` variables < command line."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .config import ENV_PREFIX, Config, fields
from .errors import StartupError


@dataclass(slots=True)
class _Layers:
    """Values by field name, and for each the key as its author spelled it, for error messages."""

    values: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, value: Any, key: str) -> None:
        # A model named in a stronger place replaces one named the other way in a weaker place.
        other = {"model": "hf_repo", "hf_repo": "model"}.get(name)
        if other is not None and _place(self.keys.get(other, key)) != _place(key):
            self.values.pop(other, None)
        self.values[name], self.keys[name] = value, key


def load_config(flags: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Config:
    """Merge every place that settings come from. ``flags`` go by field name, None means not given.

    Raises `StartupError` with one line that names the key at fault as its author spelled it.
    """
    environ = os.environ if environ is None else environ
    given = {name: value for name, value in flags.items() if value is not None}
    layers = _Layers()
    path = given.get("config") or environ.get(ENV_PREFIX + "CONFIG")
    if path:
        _read_file(Path(path), layers)
    _read_environment(environ, layers)
    for name, value in given.items():
        layers.put(name, value, _flag_name(name))
    try:
        return Config.model_validate(layers.values)
    except ValidationError as error:
        raise StartupError(_one_line(error, layers)) from None


def _read_file(path: Path, layers: _Layers) -> None:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(f"--config {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"--config {path}: not valid TOML: {error}") from None
    spellings = _spellings()
    del spellings["config"]
    for key, value in table.items():
        known = spellings.get(key.replace("-", "_"))
        if known is None:
            raise StartupError(f"{path}: unknown key {key!r}{_did_you_mean(key, spellings)}")
        name, negated = known
        layers.put(name, _negate(value, key) if negated else value, f"{key} in {path}")


def _read_environment(environ: Mapping[str, str], layers: _Layers) -> None:
    """Unknown ``HEADSTART_`` variables are left alone: container platforms invent some for a service of that name."""
    for spelling, (name, negated) in _spellings().items():
        key = ENV_PREFIX + spelling.upper()
        value = environ.get(key, "")
        if value or (name == "api_key" and key in environ):  # empty: the settings say why that will not do
            layers.put(name, _negate(value, key) if negated else value, key)


def _spellings() -> dict[str, tuple[str, bool]]:
    """Every key for files and variables, in snake case: its field, and whether it says the opposite (``no_...``)."""
    found: dict[str, tuple[str, bool]] = {}
    for name, _, flag in fields():
        found[name] = (name, False)
        if flag.off is not None:
            found[flag.off.removeprefix("--").replace("-", "_")] = (name, True)
    return found


def _negate(value: Any, key: str) -> bool:
    text = str(value).lower()
    if text in ("1", "true", "yes", "on"):
        return False
    if text in ("0", "false", "no", "off"):
        return True
    raise StartupError(f"{key}: expected true or false, got {value!r}")


def _flag_name(name: str) -> str:
    return next(flag.names[-1] for field_name, _, flag in fields() if field_name == name)


def _place(key: str) -> str:
    return "flag" if key.startswith("--") else "variable" if key.startswith(ENV_PREFIX) else "file"


def _did_you_mean(key: str, spellings: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key.replace("-", "_"), spellings, n=1)
    return f"; did you mean {near[0].replace('_', '-')!r}?" if near else ""


def _one_line(error: ValidationError, layers: _Layers) -> str:
    """The first fault only: one line that a person can act on."""
    fault = error.errors(include_url=False)[0]
    text = str(fault["msg"]).removeprefix("Value error, ")
    if not fault["loc"]:
        return text
    name = str(fault["loc"][0])
    text = text[:1].lower() + text[1:]
    got = "" if name == "api_key" else f", got {str(fault['input'])[:200]!r}"
    return f"{layers.keys.get(name, _flag_name(name))}: {text}{got}"
