"""The command line. Every foreseeable failure is one line on stderr and exit code 2."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import version as package_version
from typing import Any

import typer

from .errors import StartupError
from .flags import SETTINGS_EPILOG, fill_bare, takes_settings

app = typer.Typer(
    name="headstart",
    help="Serve GGUF models to many agent sessions and compute the prefix they share once.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    # llama-server takes --ctx_size for --ctx-size too.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("_", "-"),
    },
)

# Commands that read their own arguments, in modules that a server never has to import.
_LAZY = {
    "demo": ("headstart.bench.demo", "Run a coordinator and three agents on the demo model and show what they shared."),
    "bench": ("headstart.bench.main", "Measure the promises; with --peer URL another server beside this one."),
    "doctor": ("headstart.doctor", "Say what this machine and this model allow."),
}


@app.command("serve", epilog=SETTINGS_EPILOG)
@takes_settings
def serve(flags: dict[str, Any]) -> None:
    """Serve a model until told to stop."""
    from .serve import run
    from .settings import load_config

    run(load_config(flags))


@app.command("version")
def version() -> None:
    """Print the version."""
    typer.echo(package_version("headstart"))


def _lazy(name: str, module: str, text: str) -> None:
    """Add a command whose module has ``main(argv: list[str]) -> int``; it gets its arguments unread, --help too."""

    def command(context: typer.Context) -> None:
        try:
            main_of = importlib.import_module(module).main
        except ModuleNotFoundError as error:
            raise StartupError(f"headstart {name} needs {error.name}; pip install -e '.[dev]'") from None
        raise typer.Exit(main_of(list(context.args)))

    passing = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(name, help=text, context_settings=passing)(command)


for _name, (_module, _text) in _LAZY.items():
    _lazy(_name, _module, _text)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 when all went well, 2 with one line when the start failed."""
    arguments = fill_bare(sys.argv[1:] if argv is None else argv)
    try:
        code = app(arguments, standalone_mode=False, prog_name="headstart")
    except StartupError as error:
        _fail(str(error))
    except typer.Abort:
        sys.exit(130)
    except typer.TyperException as error:
        if not error.format_message():  # no command was given: the help has been printed
            sys.exit(error.exit_code)
        _fail(error.format_message())
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    print("error: " + " ".join(message.split()), file=sys.stderr)  # noqa: T201
    sys.exit(2)


if __name__ == "__main__":
    main()
