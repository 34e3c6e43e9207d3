"""Command-line options made from the settings' declarations, so that flags and settings cannot disagree."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Sequence
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from rich.markup import escape

from .config import ENV_PREFIX, Flag, fields


def takes_settings(command: Callable[..., None], only: Container[str] | None = None) -> Callable[..., None]:
    """Give ``command`` one option per setting, or per setting named in ``only``, before the options of its own. Its
    first argument is the values by field name, None where not given.

    Values arrive as text: only `settings.load_config` decides what is valid, whatever place a value comes from.
    """
    settings = {name: _parameter(name, info, flag) for name, info, flag in fields() if only is None or name in only}
    parameters = [*settings.values(), *list(inspect.signature(command, eval_str=True).parameters.values())[1:]]

    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in settings}
        # An option that may be repeated is an empty list where it was not given.
        command({name: None if value == [] else value for name, value in given.items()}, **values)

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it, no stub has it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def fill_bare(argv: Sequence[str]) -> list[str]:
    """Write out the value of flags that may stand without one: ``-fa -np 4`` becomes ``-fa on -np 4``."""
    bare = {name: flag.bare for _, _, flag in fields() if flag.bare is not None for name in flag.names}
    filled: list[str] = []
    for position, word in enumerate(argv):
        filled.append(word)
        value = bare.get(word)
        following = argv[position + 1] if position + 1 < len(argv) else "-"
        if value is not None and following.startswith("-"):
            filled.append(value)
    return filled


# Flags of llama-server that a command line may hold and that change nothing here, and why.
_ALWAYS = "always on"
_NEEDLESS = {
    "--jinja": _ALWAYS,
    "--metrics": _ALWAYS,
    "--slots": _ALWAYS,
    "-cb": _ALWAYS,
    "--cont-batching": _ALWAYS,
    "-kvu": _ALWAYS,
    "--kv-unified": _ALWAYS,
    "--no-webui": "there is none",
}


def drop_needless(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """``argv`` of ``serve`` without llama-server's flags that nothing here needs, and those with the reason."""
    if not argv or argv[0] != "serve":
        return list(argv), []
    plain = {word: word.replace("_", "-") for word in argv}
    kept = [word for word in argv if plain[word] not in _NEEDLESS]
    dropped = dict.fromkeys(plain[word] for word in argv if plain[word] in _NEEDLESS)
    return kept, [f"{name} ({_NEEDLESS[name]})" for name in dropped]


def flag_names() -> set[str]:
    """Every spelling of every setting on the command line."""
    return {name for _, _, flag in fields() for name in (*flag.names, flag.off) if name is not None}


def _parameter(name: str, info: FieldInfo, flag: Flag) -> inspect.Parameter:
    spelling = list(flag.names)
    kind: Any = str | None
    if flag.off is not None:
        kind = bool | None
        spelling[-1] = f"{spelling[-1]}/{flag.off}"
    elif get_origin(info.annotation) is tuple:
        kind = list[str] | None
    option = typer.Option(
        *spelling,
        help=_help(info, flag),
        metavar=_metavar(info, flag) if flag.off is None else None,
        show_default=False,
        rich_help_panel=flag.group,
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _help(info: FieldInfo, flag: Flag) -> str:
    text = info.description or ""
    if info.default in (None, (), PydanticUndefined):
        return escape(text)
    default = info.default
    if flag.off is not None:
        default = "on" if default else "off"
    return escape(f"{text} (default: {default:g})" if isinstance(default, float) else f"{text} (default: {default})")


def _metavar(info: FieldInfo, flag: Flag) -> str:
    return flag.metavar or "|".join(str(choice) for choice in get_args(info.annotation))


SETTINGS_EPILOG = (
    f"Each option is also a variable ({ENV_PREFIX}CTX_SIZE) and a key of the file that --config names (ctx-size)."
)
# For every command with settings. llama-server takes --ctx_size for --ctx-size too.
SPELLINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": lambda name: name.replace("_", "-"),
}
