"""One picture of a run: how long each of four sessions waits for its first token, with sharing and without."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .drive import Session

if TYPE_CHECKING:
    from .report import ModelResult

OURS = "headstart"
_COLOURS = {OURS: "#0b6e99", "sharing off": "#c2410c", "peer": "#7c3aed"}
_LABELS = {OURS: "Headstart", "sharing off": "sharing off", "peer": "peer"}
_NEAR = 1.35  # nearer than this, as a ratio, dots lie on one another
_INK, _MUTED, _FAINT = "#1f2933", "#52606d", "#d7dde3"


def draw(results: Sequence[ModelResult], facts: dict[str, str], path: Path) -> None:
    """Write a PNG with one panel for each model whose sessions were measured. ``facts`` are those of the report."""
    shown = [result for result in results if result.sessions]
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    style: Any = {
        "font.family": "DejaVu Sans",
        "font.size": 11,
        "text.color": _INK,
        "xtick.labelcolor": _MUTED,
        "ytick.labelcolor": _INK,
    }
    with plt.rc_context(style):
        figure, axes = plt.subplots(
            rows, columns, figsize=((8.4, 11.0)[columns - 1], 2.55 * rows + 1.35), squeeze=False, sharex=True
        )
        flat = list(axes.flat)
        for axis, result in zip(flat, shown, strict=False):
            _panel(axis, result)
        for axis in flat[len(shown) :]:
            axis.set_visible(False)
        _x_axis(flat[: len(shown)], shown)
        _frame(figure, shown, facts)
        figure.savefig(path, dpi=160, facecolor="white")
        plt.close(figure)


def _panel(axis: Any, result: ModelResult) -> None:
    others = [who for who in result.sessions if who != OURS]
    names = [session.name for session in next(iter(result.sessions.values()))]
    for y in range(len(names)):
        at = {who: found[y] for who, found in result.sessions.items()}
        rows = _rows(y, at)
        if len(set(rows.values())) == 1:
            ends = [session.first for session in at.values()]
            axis.plot([min(ends), max(ends)], [y, y], color=_FAINT, linewidth=5, solid_capstyle="round", zorder=1)
        for who in [*others, OURS]:
            axis.plot(at[who].first, rows[who], "o", markersize=10, color=_COLOURS[who], markeredgecolor="white",
                      zorder=3)  # fmt: skip
        _values(axis, rows, at)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.45, -0.55)
    axis.set_xscale("log")
    axis.set_title(_panel_title(result), loc="left", fontsize=12, fontweight="bold", pad=8)
    axis.tick_params(axis="y", length=0, pad=6)
    axis.tick_params(axis="x", which="both", color=_FAINT)
    axis.grid(axis="x", which="major", color=_FAINT, linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(_FAINT)


def _rows(y: int, at: dict[str, Session]) -> dict[str, float]:
    """At which height each one's dot goes: one above the other where two would lie on one another, ours on top."""
    ordered = sorted(session.first for session in at.values())
    if all(b / a >= _NEAR for a, b in pairwise(ordered)):
        return dict.fromkeys(at, float(y))
    names = sorted(at, key=list(_COLOURS).index)
    return {who: y + 0.36 * (place - (len(names) - 1) / 2) for place, who in enumerate(names)}


def _values(axis: Any, rows: dict[str, float], at: dict[str, Session]) -> None:
    """The numbers beside the dots: outside of the outer ones where all lie on one line, else right of each."""
    ordered = sorted(at.items(), key=lambda item: item[1].first)
    if len(set(rows.values())) > 1 or len(at) == 1:
        for who, session in ordered:
            _value(axis, rows[who], (who, session), "left", 10)
        return
    first, *_, last = ordered
    y = rows[first[0]]
    _value(axis, y, first, "right", -10)
    _value(axis, y, last, "left", 10)
    for who, session in ordered[1:-1]:
        axis.annotate(seconds(session.first), (session.first, y), (0, 9), textcoords="offset points", fontsize=9.5,
                      ha="center", color=_COLOURS[who])  # fmt: skip
    if first[0] == OURS:
        middle = (first[1].first * ordered[1][1].first) ** 0.5
        axis.annotate(f"{ordered[1][1].first / first[1].first:,.0f} ×", (middle, y), (0, 5), textcoords="offset points",
                      ha="center", fontsize=9, color=_MUTED)  # fmt: skip


def _value(axis: Any, y: float, item: tuple[str, Session], side: str, offset: int) -> None:
    who, session = item
    axis.annotate(
        seconds(session.first),
        (session.first, y),
        (offset, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=10,
        color=_COLOURS[who],
        fontweight="bold" if who == OURS else "normal",
    )


def _panel_title(result: ModelResult) -> str:
    kinds = {
        "dense": "Dense",
        "moe": "Mixture of experts",
        "hybrid": "Hybrid",
        "hybrid-moe": "Hybrid mixture of experts",
        "swa": "Sliding window",
    }
    size = f", {result.size / 1e6:,.0f} MB" if result.size else ""
    return kinds.get(result.name, f"{result.arch} ({result.kind})") + size


def _x_axis(axes: Sequence[Any], shown: Sequence[ModelResult]) -> None:
    every = [s.first for result in shown for found in result.sessions.values() for s in found]
    # For the numbers, whose width is a part of the panel's: a tenth of a wide one, a sixth of a narrow one.
    room = max(1.5, (max(every) / min(every)) ** (0.125 if len(shown) == 1 else 0.26))
    for axis in axes:
        axis.set_xlim(min(every) / room, max(every) * room)
        axis.xaxis.set_major_locator(LogLocator(base=10))
        axis.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:g} s" if value >= 0.1 else f"{1e3 * value:g} ms")
        )
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.tick_params(axis="x", labelbottom=True)


def _frame(figure: Any, shown: Sequence[ModelResult], facts: dict[str, str]) -> None:
    height = figure.get_figheight()
    who = [name for name in _COLOURS if any(name in result.sessions for result in shown)]
    handles = [Line2D([], [], marker="o", linestyle="", markersize=9, color=_COLOURS[name]) for name in who]
    # No suptitle: the layout would set room aside for it a second time.
    figure.text(0.02, 1 - 0.16 / height, "Time to first token, log scale", ha="left", va="top", fontsize=15,
                fontweight="bold")  # fmt: skip
    figure.text(0.02, 1 - 0.55 / height, _subtitle(shown), ha="left", va="top", fontsize=10.5, color=_MUTED)
    figure.legend(
        handles, [_LABELS[name] for name in who], loc="upper right", ncols=len(who), frameon=False,
        bbox_to_anchor=(0.99, 1 - 0.1 / height), handletextpad=0.2, columnspacing=1.4,
    )  # fmt: skip
    foot = f"{facts['machine']}, -t {facts['threads']} · headstart {facts['commit']} · {facts['date'][:10]}"
    figure.text(0.02, 0.1 / height, foot, ha="left", va="bottom", fontsize=8.5, color="#7b8794")
    figure.tight_layout(rect=(0.005, 0.28 / height, 0.995, 1 - 0.72 / height), w_pad=2.0, h_pad=1.6)


def _subtitle(shown: Sequence[ModelResult]) -> str:
    heads = {result.head for result in shown}
    length = f"head of {heads.pop():,} tokens" if len(heads) == 1 else "long head"
    return f"A cold coordinator, then three siblings at once beside it, all on one {length}"


def seconds(value: float) -> str:
    """Short text for a time."""
    if value < 0.0995:
        return f"{1e3 * value:.0f} ms"
    if value < 0.995:
        return f"{value:.2f} s"
    return f"{value:.1f} s" if value < 9.95 else f"{value:.0f} s"
