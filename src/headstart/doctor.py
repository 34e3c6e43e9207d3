"""`headstart doctor -m MODEL`: prove on this machine, with this model, that shared prefixes change no answer."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from .config import Config
from .core.rules import RULES
from .engine.parity import Finding, Parity
from .engine.protocol import Engine
from .errors import StartupError
from .model_file import find_model

CONTEXT = 8192
CAPTION = "Differences of logits. What is allowed beyond none is what any neighbour in the cache causes."


def main(argv: list[str]) -> int:
    """Run every check that applies to the model. Returns 0 when all held, 1 when one did not."""
    parser = argparse.ArgumentParser(prog="headstart doctor", description=__doc__)
    parser.add_argument("-m", "--model", help="GGUF file; default: the demo model, if installed")
    parser.add_argument("-t", "--threads", type=int, help="default: physical cores")
    parser.add_argument("-ngl", "--n-gpu-layers", type=int, default=-1, help="default: all")
    parser.add_argument("-fa", "--flash-attn", choices=("on", "off", "auto"), default="auto")
    parser.add_argument("--head", type=int, default=1500, help="tokens of the shared prefix (600 to 4000)")
    options = parser.parse_args(argv)
    if not 600 <= options.head <= 4000:
        raise StartupError(f"--head {options.head}: expected 600 to 4000")
    settings = {"model": options.model, "n_gpu_layers": options.n_gpu_layers, "flash_attn": options.flash_attn}
    if options.threads:
        settings["threads"] = options.threads
    config = Config.model_validate({**settings, "ctx_size": CONTEXT})
    return _examine(config.model_copy(update={"model": str(find_model(config))}), options.head)


def _examine(config: Config, head: int) -> int:
    from .engine.load import load_engine

    engine = load_engine(config, keep_logits=True)
    console = Console()
    try:
        console.print(f"[bold]{config.model}[/]: {engine.info.description}")
        console.print(_memory(engine))
        if not RULES[engine.info.kind].shares:
            return 0
        table, held = _report(Parity(engine, head=head).run(), console)
        console.print(table)
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
    state = f", {info.state_bytes / 2**20:.1f} MiB of state for each sequence" if info.state_bytes else ""
    return f"memory: {info.kind}{state}"


def _report(findings: Iterable[Finding], console: Console) -> tuple[Table, bool]:
    """The findings as a table, and whether all held. Says which check is done as it goes."""
    table = Table("check", "difference", "allowed", "same top", "verdict", caption=CAPTION)
    held = True
    for finding in findings:
        console.print(f"  {finding.check} ...", style="dim")
        held &= finding.held
        table.add_row(
            finding.check,
            finding.note or ("none" if finding.difference == 0 else f"{finding.difference:.1e}"),
            "none" if finding.allowed == 0 else f"{finding.allowed:.1e}",
            f"{finding.same_top}/{finding.positions}",
            "[green]held[/]" if finding.held else "[red]NOT held[/]",
        )
    return table, held
