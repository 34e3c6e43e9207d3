"""Settings from their four places: defaults < TOML file < ``HEADSTART_...`` variables < command line."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from .config import ENV_PREFIX, Config, Flag, fields
from .errors import StartupError

_NEAR = 0.75  # "prot" is near "port"; "threads-http", a flag of llama-server that is none here, is not near "threads"
_TEXTS = {"FILE": "the path of a file", "HOST": "a host name or an IP address", "NAME": "a name"}
_UNITS = {"MIB": "of MiB ", "S": "of seconds ", "MS": "of milliseconds "}
# What Kubernetes and Docker set for a service that is named headstart, or headstart-something.
_PLATFORM = re.compile(r"\w+_SERVICE_(HOST|PORT)|\w+_PORT_\d+_(TCP|UDP|SCTP)")
_PLATFORM_VALUE = re.compile(r"(tcp|udp|sctp)://")


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

    Raises `StartupError` with one line that names the key at fault as its author spelled it, and what it takes.
    """
    environ = os.environ if environ is None else environ
    given = {name: value for name, value in flags.items() if value is not None}
    layers = _Layers()
    variable = ENV_PREFIX + "CONFIG"
    if "config" in given:
        _read_file("--config", given["config"], layers)
    elif environ.get(variable):
        _read_file(variable, environ[variable], layers)
    _read_environment(environ, layers)
    for name, value in given.items():
        layers.put(name, value, _flag_name(name))
    return _checked(layers)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A line for each ``HEADSTART_`` variable that is no setting, with the one that may have been meant.

    None for those that container platforms invent for a service of that name: nobody has misspelled them.
    """
    spellings = _spellings()
    lines: list[str] = []
    for key, value in sorted(environ.items()):
        name = key.removeprefix(ENV_PREFIX)
        if name == key or (name == name.upper() and name.lower() in spellings):
            continue
        if _PLATFORM.match(key) or _PLATFORM_VALUE.match(value):
            continue
        near = nearest(name, spellings)
        hint = f"did you mean {ENV_PREFIX}{near.upper()}?" if near else "headstart serve --help lists all settings"
        lines.append(f"{key} is no setting and has no effect; {hint}")
    return lines


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that ``word`` is a slip or a shortening of, or None. Dashes and case do not count."""
    plain = word.strip("-").replace("_", "-").lower()
    names = {name.strip("-").replace("_", "-"): name for name in known}
    # Nobody wants the opposite of what he wrote.
    names = {name: given for name, given in names.items() if name.startswith("no-") == plain.startswith("no-")}
    near = difflib.get_close_matches(plain, names, n=1, cutoff=_NEAR)
    if not near and len(plain) > 2:
        near = [name for name in names if name.startswith(plain + "-")]
    return names[near[0]] if len(near) == 1 else None


def _read_file(source: str, name: str, layers: _Layers) -> None:
    """The keys of a TOML file; ``source`` is the flag or variable that names it."""
    path = Path(name)
    try:
        if not name:
            raise StartupError(f"{source}: expected the path of a file, got ''")
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(f"{source} {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, a number or a nesting beyond all measure
        raise StartupError(f"{source} {path}: not valid TOML: {error}") from None
    spellings = _spellings()
    del spellings["config"]
    first: dict[str, str] = {}
    for key, value in table.items():
        known = spellings.get(key.replace("-", "_"))
        if known is None:
            raise StartupError(f"{path}: unknown key {key!r}{_why_unknown(key, value, spellings)}")
        field_name, negated = known
        if first.setdefault(field_name, key) != key:
            raise StartupError(f"{path}: {first[field_name]!r} and {key!r} are the same setting; keep one")
        where = f"{key} in {path}"
        layers.put(field_name, _negate(value, where) if negated else value, where)


def _read_environment(environ: Mapping[str, str], layers: _Layers) -> None:
    for spelling, (name, negated) in _spellings().items():
        key = ENV_PREFIX + spelling.upper()
        value = environ.get(key, "")
        if value or (name == "api_key" and key in environ):  # empty: the settings say why that will not do
            layers.put(name, _negate(value, key) if negated else value, key)


def _spellings() -> dict[str, tuple[str, bool]]:
    """Every key for files and variables, in snake case: its field, and whether it says the opposite (``no_...``)."""
    found: dict[str, tuple[str, bool]] = {}
    for name, _, flag in fields():
        found |= {n[2:].replace("-", "_"): (name, False) for n in flag.names if n.startswith("--")}
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
    raise StartupError(f"{key}: expected true or false, got {_shown(value)}")


def _flag_name(name: str) -> str:
    return next(flag.names[-1] for field_name, _, flag in fields() if field_name == name)


def _place(key: str) -> str:
    return "flag" if key.startswith("--") else "variable" if key.startswith(ENV_PREFIX) else "file"


def _why_unknown(key: str, value: Any, spellings: Mapping[str, object]) -> str:
    if isinstance(value, dict):
        return "; settings stand at the top level, not in tables"
    near = nearest(key, spellings)
    return f"; did you mean {near.replace('_', '-')!r}?" if near else ""


def _checked(layers: _Layers) -> Config:
    """The settings; the first fault only, as one line that a person can act on."""
    for name, info, flag in fields():
        if name in layers.values and _mistaken(info, flag, layers.values[name]):
            raise StartupError(_fault(name, layers))
    try:
        return Config.model_validate(layers.values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        ours = str(fault["msg"]).removeprefix("Value error, ") if fault["type"] == "value_error" else ""
        text = _fault(str(fault["loc"][0]), layers, ours) if fault["loc"] else ours
        raise StartupError(text) from None


def _mistaken(info: FieldInfo, flag: Flag, value: Any) -> bool:
    """Whether ``value`` is one that pydantic takes and no person means: ``true`` for a number, a file without name."""
    if isinstance(value, bool):
        return bool({int, float} & {info.annotation, *get_args(info.annotation)})
    if not isinstance(value, str):
        return False
    # No system call takes a zero byte.
    return "\0" in value or (flag.metavar == "FILE" and _nowhere(value))


def _nowhere(path: str) -> bool:
    """Whether it can be no file's: empty, or in the home of nobody (``~nobody/x``)."""
    try:
        Path(path).expanduser()
    except RuntimeError:
        return True
    return not path


def _fault(name: str, layers: _Layers, text: str = "") -> str:
    """What is wrong with a value: ``text``, else what was expected."""
    _, info, flag = next(each for each in fields() if each[0] == name)
    got = "" if name == "api_key" else f", got {_shown(layers.values[name])}"
    hint = f"; {flag.hint}" if flag.hint else ""
    return f"{layers.keys[name]}: {text or 'expected ' + _expected(info, flag)}{got}{hint}"


def _expected(info: FieldInfo, flag: Flag) -> str:
    """What a setting takes, from its declaration."""
    choices = get_args(info.annotation)
    if get_origin(info.annotation) is Literal:
        return "one of " + ", ".join(choices)
    if flag.off is not None:
        return "true or false"
    kinds = {info.annotation, *choices}
    if not {int, float} & kinds:
        return _TEXTS.get(flag.metavar, "text")
    low = next(bound.ge for bound in info.metadata if hasattr(bound, "ge"))
    high = next(bound.le for bound in info.metadata if hasattr(bound, "le"))
    kind, unit = "whole number" if int in kinds else "number", _UNITS.get(flag.metavar, "")
    return f"a {kind} {unit}from {low} to {high}"


def _shown(value: Any) -> str:
    """A value as a person would write it, cut to a line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a far larger number"  # Python refuses to print what has thousands of digits
    return repr(value[:200]) if isinstance(value, str) else str(value)
