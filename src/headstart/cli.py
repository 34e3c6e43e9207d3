"""The command line. Every foreseeable failure is one line on stderr and exit code 2."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version as package_version
from typing import Annotated, Any

import typer

from .errors import StartupError
from .flags import SETTINGS_EPILOG, SPELLINGS, drop_needless, fill_bare, flag_names, takes_settings

app = typer.Typer(
    name="headstart",
    help="Serve GGUF models to many agent sessions and compute the prefix they share once.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings=SPELLINGS,
)

# Commands that read their own arguments, in modules that a server never has to import, and what to install for them.
_LAZY = {
    "demo": (
        "headstart.bench.demo",
        "'.[demo]'",
        "Run a coordinator and three agents on the demo model and show what they shared.",
    ),
    "bench": (
        "headstart.bench.main",
        "'.[bench]'",
        "Measure the promises; with --peer URL another server beside this one.",
    ),
    "doctor": (
        "headstart.doctor",
        ".",
        "Prove on this machine that sharing is safe for a model, with the flags that serve it.",
    ),
}


@app.command("serve", epilog=SETTINGS_EPILOG)
@takes_settings
def serve(flags: dict[str, Any]) -> None:
    """Serve a model until told to stop."""
    from .serve import run
    from .settings import load_config, unknown_variables

    for line in unknown_variables(os.environ):
        _print(f"warning: {line}")
    run(load_config(flags))


@app.command("version")
def version() -> None:
    """Print the versions of headstart and of llama-cpp-python."""
    # From the installed packages' papers: importing the library would load it.
    typer.echo(", ".join(f"{name} {package_version(name)}" for name in ("headstart", "llama-cpp-python")))


def _version_first(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version_first, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that need no command."""


def _lazy(name: str, module: str, install: str, text: str) -> None:
    """Add a command whose module has ``main(argv: list[str]) -> int``; it gets its arguments unread, --help too."""

    def command(context: typer.Context) -> None:
        try:
            main_of = importlib.import_module(module).main
        except ModuleNotFoundError as error:
            raise StartupError(f"headstart {name} needs {error.name}; pip install -e {install}") from None
        raise typer.Exit(main_of(list(context.args)))

    passing = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(name, help=text, context_settings=passing)(command)


for _name, (_module, _install, _text) in _LAZY.items():
    _lazy(_name, _module, _install, _text)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 when all went well, 2 with one line when the start failed."""
    arguments, needless = drop_needless(fill_bare(sys.argv[1:] if argv is None else argv))
    if needless:
        _print(f"not needed: {', '.join(needless)}")
    try:
        code = app(arguments, standalone_mode=False, prog_name="headstart")
    except StartupError as error:
        _fail(str(error))
    except typer.Abort:
        sys.exit(130)
    except typer.TyperException as error:
        if not error.format_message():  # no command was given: the help has been printed
            sys.exit(error.exit_code)
        _fail(_unknown_flag(error, arguments) or error.format_message() + _model_hint(error))
    sys.exit(code if isinstance(code, int) else 0)


def _unknown_flag(error: typer.TyperException, arguments: Sequence[str]) -> str:
    """The words for a flag that nobody knows, with the one that may have been meant; "" for any other error."""
    context, flag = getattr(error, "ctx", None), getattr(error, "option_name", "")
    if context is None or not hasattr(error, "possibilities"):
        return ""
    from .settings import nearest

    if not flag.startswith("--"):  # the parser has taken "-ng" for "-n" and "-g"
        flag = next((word for word in arguments if word.startswith(flag)), flag)
    if context.parent is None and flag in flag_names():
        return f"no such flag here: {flag}; it belongs to headstart serve"
    own = [name for option in context.command.params for name in (*option.opts, *option.secondary_opts)]
    near = nearest(flag, [*own, *context.help_option_names])
    return f"no such flag: {flag}" + (f"; did you mean {near}?" if near else "")


def _model_hint(error: typer.TyperException) -> str:
    """How to name a model, for whoever has given its file without a flag."""
    stray = re.search(r"extra argument.* \((\S+\.gguf)\b", error.format_message())
    return f"; a model is named by a flag: -m {stray[1]}" if stray else ""


def _fail(message: str) -> None:
    _print(f"error: {message}")
    sys.exit(2)


def _print(message: str) -> None:
    """One line on stderr, whatever is in ``message``."""
    sys.stderr.write(" ".join(message.split()) + "\n")


if __name__ == "__main__":
    main()
