"""The results of a run: a table for the terminal, Markdown for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .drive import Session
from .judge import Row
from .peer import Comparison


@dataclass
class ModelResult:
    """All that was measured on one model."""

    name: str
    arch: str
    kind: str
    head: int
    size: int = 0  # bytes of the model's file
    rows: list[Row] = field(default_factory=list)
    sessions: dict[str, list[Session]] = field(default_factory=dict)
    peer: list[Comparison] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # scenario -> why it could not be measured

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "arch": self.arch,
            "memory": self.kind,
            "size_bytes": self.size,
            "head_tokens": self.head,
            "rows": [row.as_json() for row in self.rows],
            "sessions": {who: [asdict(s) for s in found] for who, found in self.sessions.items()},
            "peer": [comparison.as_json() for comparison in self.peer],
            "failures": self.failures,
        }


def verdict(row: Row) -> str:
    """One word on a row."""
    return {True: "met", False: "NOT MET", None: "–"}[row.met]


def amount(value: float | None, unit: str) -> str:
    """A number with its unit, as short as is honest."""
    if value is None:
        return ""
    if unit == "s":
        return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.0f} ms"
    if unit in ("tokens", "cells"):
        return f"{value:,.0f}"
    if unit == "%":
        return f"{value:+.1f} %"
    return f"{value:.1f} {unit}" if unit == "tokens/s" else f"{value:.2f} {unit}"


def bound(row: Row) -> str:
    """The bound with its sign."""
    if row.bound is None:
        return ""
    sign = {"<=": "≤", ">=": "≥"}[row.rule]
    return f"{sign} {amount(row.bound, row.unit).lstrip('+')}"


def line(row: Row) -> str:
    """A row in one line."""
    parts = (f"{row.what}: {amount(row.measured, row.unit)}", bound(row), verdict(row) if row.bound is not None else "")
    return "  ".join(part for part in parts if part)


def show(console: Console, result: ModelResult) -> None:
    """Print one model's rows."""
    title = f"{result.name} ({result.arch}, {result.kind}), head of {result.head:,} tokens"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("promise", max_width=58)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("bound", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("detail", style="dim")
    style = {True: "green", False: "bold red", None: "dim"}
    for row in result.rows:
        mark = Text(verdict(row), style=style[row.met])
        table.add_row(row.what, amount(row.measured, row.unit), bound(row), mark, row.note)
    for scenario, why in result.failures.items():
        table.add_row(scenario, "", "", Text("NOT MET", style="bold red"), f"could not be measured: {why}")
    console.print(table)
    if result.peer:
        console.print(_peer_table(result.peer))


def _peer_table(comparisons: Sequence[Comparison]) -> Table:
    table = Table(title="beside the peer", title_justify="left")
    for name in ("the same work", "headstart", "peer", "times better"):
        table.add_column(name, justify="left" if name == "the same work" else "right")
    for c in comparisons:
        table.add_row(c.what, amount(c.ours, c.unit), amount(c.peer, c.unit), f"{c.times:.2f}")
    return table


def markdown(facts: dict[str, str], results: Sequence[ModelResult], plot: str | None) -> str:
    """The whole run as one page."""
    lines = ["# Headstart bench", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    if plot is not None:
        lines += [f"![Time to first token of four sessions]({plot})", ""]
    for result in results:
        lines += [f"## {result.name}", "", f"{result.arch}, {result.kind} memory, head of {result.head:,} tokens.", ""]
        lines += ["| promise | measured | bound | | detail |", "|---|--:|--:|---|---|"]
        for row in result.rows:
            cells = (row.what, amount(row.measured, row.unit), bound(row), verdict(row), row.note)
            lines.append("| " + " | ".join(cells) + " |")
        lines += [f"| {name} | | | NOT MET | could not be measured: {why} |" for name, why in result.failures.items()]
        lines.append("")
        if result.peer:
            lines += ["| the same work | headstart | peer | times better |", "|---|--:|--:|--:|"]
            for c in result.peer:
                lines.append(f"| {c.what} | {amount(c.ours, c.unit)} | {amount(c.peer, c.unit)} | {c.times:.2f} |")
            lines.append("")
    return "\n".join(lines)


def write(folder: Path, facts: dict[str, str], results: Sequence[ModelResult]) -> list[Path]:
    """Write bench.json, bench.md and, where sessions were measured, bench.png into ``folder``; the paths written."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    plot: Path | None = None
    if any(result.sessions for result in results):
        from .plot import draw

        plot = folder / "bench.png"
        draw(results, facts, plot)
    content = {"facts": facts, "models": [result.as_json() for result in results]}
    for name, text in (
        ("bench.json", json.dumps(content, indent=1) + "\n"),
        ("bench.md", markdown(facts, results, plot.name if plot else None)),
    ):
        (folder / name).write_text(text, encoding="utf-8")
        written.append(folder / name)
    return [*written, *([plot] if plot else [])]
