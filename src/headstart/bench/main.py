"""`headstart bench`: every promise measured on generated models, the library itself as the yardstick."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import aiohttp
from rich.console import Console

from ..errors import HeadstartError, StartupError
from ..machine import physical_cores
from . import catalogue, report
from .facts import facts
from .peer import compare
from .programme import SCENARIOS, Scenario, chosen, row_ids
from .report import ModelResult
from .stage import QUICK, Sizes, Stage

NOT_MET = 1  # exit code of a run in which a promise was not kept


def main(argv: Sequence[str]) -> int:
    """Run the bench. 0: all promises met; 1: some were not; 2 with one line on stderr: it could not run."""
    options = _parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything that was started ends
    try:
        if options.write_models:
            for name in options.models:
                print(f"{name}: {catalogue.model(name, quick=options.quick).path}")
            return 0
        if options.out:
            _check_out(options.out)
        return asyncio.run(run(options))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        print(f"error: headstart bench needs {error.name}; pip install -e '.[bench]'", file=sys.stderr)
        return 2
    except (HeadstartError, aiohttp.ClientError) as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        return 2


def _check_out(folder: Path) -> None:
    """Fail now rather than after the measuring."""
    import_module("matplotlib")  # for the plot
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(f"--out {folder}: {error.strerror or error}") from None


async def run(options: argparse.Namespace) -> int:
    """Measure what ``options`` name, print and write it."""
    console, progress = Console(), Console(stderr=True)
    about = facts(options.threads)
    results: list[ModelResult] = []
    for name in options.models:
        model = catalogue.model(name, quick=options.quick)
        size = model.path.stat().st_size
        result = ModelResult(name, model.arch, model.kind.value, options.sizes.head, size)
        results.append(result)
        await _measure(model, result, options, progress)
        report.show(console, result)
        if options.out:
            # After each model: a run that is cut short keeps what it has.
            written = report.write(options.out, about, results)
    if options.out:
        console.print("written: " + ", ".join(map(str, written)))
    missed = [row for result in results for row in result.rows if row.met is False]
    return NOT_MET if missed or any(result.failures for result in results) else 0


async def _measure(model: catalogue.Model, result: ModelResult, options: argparse.Namespace, progress: Console) -> None:
    only = frozenset(options.only)
    async with Stage(model, options.sizes, options.threads) as stage:
        for scenario in chosen(model.kind, only):
            progress.print(f"[dim]{model.name}: {', '.join(scenario.rows)} ...[/dim]")
            try:
                await _run(scenario, stage, result, only, progress)
            except (HeadstartError, aiohttp.ClientError) as error:
                # One promise that cannot be measured must not hide the others.
                result.failures[next(iter(scenario.rows))] = " ".join(str(error).split()) or type(error).__name__
                progress.print(f"[red]{model.name}: not measured. The server's last lines:[/red]")
                progress.print(stage.last_words(), markup=False)
                await stage.fresh()
        if options.peer:
            result.peer = await compare(stage, options.peer, options.peer_model, lambda text: progress.print(text))
        result.sessions = stage.sessions


async def _run(scenario: Scenario, stage: Stage, result: ModelResult, only: frozenset[str], progress: Console) -> None:
    rows = [row for row in await scenario.run(stage) if not only or row.id in only]
    result.rows += rows
    for row in rows:
        # At once: the table comes minutes later.
        progress.print(f"  {report.line(row)}", highlight=False, markup=False, soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="headstart bench",
        description="Measure every promise on generated models, the library itself as the yardstick.",
        epilog=_about_rows(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = list(catalogue.NAMES)
    p.add_argument(
        "--models",
        type=_Words(known),
        default=list(catalogue.DEFAULT_NAMES),
        metavar="NAMES",
        help=f"of {','.join(known)} (default: all but swa)",
    )
    p.add_argument(
        "--only",
        type=_Words(row_ids()),
        default=[],
        metavar="ROWS",
        help="which of the rows below, with commas between them (default: all)",
    )
    p.add_argument(
        "--head", type=_tokens, metavar="TOKENS", help=f"length of the shared head (default: {Sizes().head})"
    )
    p.add_argument(
        "--quick",
        action="store_true",
        help=f"tiny models and a head of {QUICK.head:,} tokens: shows that it works, its numbers mean little",
    )
    p.add_argument(
        "-t",
        "--threads",
        type=int,
        default=physical_cores(),
        metavar="N",
        help="threads of server and library (default: physical cores)",
    )
    p.add_argument("--out", type=Path, metavar="DIR", help="write bench.json, bench.md and bench.png there")
    p.add_argument("--peer", metavar="URL", help="drive this OpenAI-compatible server, on the same model, as well")
    p.add_argument("--peer-model", default="default", metavar="NAME", help="the model's name at the peer")
    p.add_argument("--write-models", action="store_true", help="write the models, print their paths (for a peer), end")
    return p


def _about_rows() -> str:
    """What each row is, for the help; a star where dense and moe have none."""
    lines = ["rows:"]
    for scenario in SCENARIOS:
        star = "*" if scenario.stateful else " "
        lines += [f" {star}{row:<15} {text}" for row, text in scenario.rows.items()]
    return "\n".join([*lines, "", "* only for models with a state or a window: hybrid, hybrid-moe, swa"])


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(argv)
    if options.peer and len(options.models) != 1:
        parser.error("--peer serves one model: name it with --models, start the peer on what --write-models prints")
    sizes = QUICK if options.quick else Sizes()
    options.sizes = replace(sizes, head=options.head) if options.head else sizes
    return options


def _tokens(text: str) -> int:
    value = int(text)
    if not 600 <= value <= 60_000:
        raise argparse.ArgumentTypeError("from 600 to 60000")
    return value


class _Words:
    """A comma-separated list of known words."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def __call__(self, text: str) -> list[str]:
        words = [word.strip() for word in text.split(",") if word.strip()]
        for word in words:
            if word not in self._known:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(self._known)}")
        return words


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
