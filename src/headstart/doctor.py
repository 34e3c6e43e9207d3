"""`headstart doctor`: prove on this machine that sharing is safe for a model, with the flags that serve it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .config import Config, fields
from .core.rules import RULES
from .engine.parity import NOISE_MARGIN, SEQUENCES, SMALLEST_NOISE, Finding, Parity
from .engine.protocol import Engine
from .errors import StartupError
from .flags import SETTINGS_EPILOG, SPELLINGS, takes_settings
from .model_file import find_model
from .settings import load_config

# What decides which model is loaded and how it computes. Files and variables may name all the rest as well.
FLAGS = {"config", "model", "hf_repo", "state_slots"} | {n for n, _, flag in fields() if flag.group == "Computation"}
CONTEXT = 8192
CAPTION = (
    "Differences of logits. Allowed: none, where both runs must agree to the bit; else "
    f"{NOISE_MARGIN:.0f} x the median difference that a mere neighbour in the cache caused in this run, "
    f"at least {SMALLEST_NOISE:.0e}."
)

Head = Annotated[
    int, typer.Option("--head", min=600, max=CONTEXT // 2, metavar="N", help="Tokens of the shared prefix")
]


def main(argv: list[str]) -> int:
    """Run every check that applies to the model. Returns 0 when all held, 1 when one did not."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=SPELLINGS)
    app.command(epilog=SETTINGS_EPILOG)(takes_settings(_doctor, only=FLAGS))
    code: int = app(argv, standalone_mode=False, prog_name="headstart doctor")
    return code


def _doctor(flags: dict[str, Any], *, head: Head = 1500) -> None:
    """Prove on this machine that sharing is safe for a model, with the flags that serve it.

    Each check computes the same tokens twice, from nothing and by sharing, and compares the logits.

    Without --ctx-size it takes 8,192 cells.
    """
    raise typer.Exit(_examine(_settled(load_config(flags), head), head))


def _settled(config: Config, head: int) -> Config:
    """``config`` with what the checks need: a file, cells and sequences."""
    if config.ctx_size is not None and config.ctx_size < 2 * head:
        raise StartupError(f"--ctx-size {config.ctx_size}: the checks take {2 * head} cells with --head {head}")
    slots = max(config.state_slots or 2 * config.parallel, SEQUENCES - config.parallel)
    here = {"model": str(find_model(config)), "ctx_size": config.ctx_size or CONTEXT, "state_slots": slots}
    return config.model_copy(update=here)


def _examine(config: Config, head: int) -> int:
    from .engine.load import load_engine

    engine = load_engine(config, keep_logits=True)
    console = Console()
    try:
        # Never broken: a path in it can be copied, and a pipe gets whole lines.
        console.print(f"[bold]{escape(str(config.model))}[/]: {engine.info.description}", soft_wrap=True)
        console.print(_memory(engine), soft_wrap=True)
        if not RULES[engine.info.kind].shares:
            return 0
        chunk = min(config.batch_size, config.ubatch_size)
        parity = Parity(engine, head=head, chunk=chunk, begin=_beginning(console))
        table, held = _report(parity.run())
        console.print(table)
        console.print(CAPTION, style="dim", soft_wrap=True)
    finally:
        engine.shutdown()
    console.print(
        "[green]Sharing is safe for this model here.[/]" if held else "[red]Serve it with --no-slot-attach.[/]"
    )
    return 0 if held else 1


def _memory(engine: Engine) -> str:
    info = engine.info
    if not RULES[info.kind].shares:
        return f"memory: {info.kind}; {info.sharing_off_reason}. It is served without sharing."
    return "\n".join([f"memory: {info.kind}", *info.notes])


def _beginning(console: Console) -> Callable[[str], None]:
    """Says which check is being done: on a large model each takes minutes."""
    return lambda check: console.print(f"  {check} ...", style="dim", soft_wrap=True)


def _report(findings: Iterable[Finding]) -> tuple[Table, bool]:
    """The findings as a table, and whether all held."""
    table = Table("check", "difference", "allowed", "same top", "verdict")
    held = True
    for finding in findings:
        held &= finding.held
        table.add_row(
            finding.check,
            finding.note or ("none" if finding.difference == 0 else f"{finding.difference:.1e}"),
            "none" if finding.allowed == 0 else f"{finding.allowed:.1e}",
            f"{finding.same_top}/{finding.positions}",
            "[green]held[/]" if finding.held else "[red]NOT held[/]",
        )
    return table, held
