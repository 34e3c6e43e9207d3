"""What the demo shows: each session while it runs, and the table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

# The API's words for where a prefix came from.
WHERE = {
    "attach": "a running session",
    "wait": "one that was still reading it",
    "holder": "an idle session",
    "snapshot": "a saved state",
    "none": "nowhere, it was computed",
}
_COUNTS = ("none", "one", "two", "three", "four")


@dataclass
class Seen:
    """One session as its client saw it. Times are seconds from when it was sent."""

    name: str
    first: float | None = None
    total: float | None = None
    prompt: int = 0
    cached: int = 0
    source: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    _began: float | None = None

    def begin(self, now: float) -> None:
        self._began = now

    def note(self, text: str, now: float) -> bool:
        """Add a piece of the answer; True for the first."""
        self.text += text
        if self.first is not None or self._began is None:
            return False
        self.first = now - self._began
        return True

    def finish(self, now: float) -> None:
        if self._began is not None:
            self.total = now - self._began

    def waited(self, now: float) -> float:
        """Seconds until the first token, or so far."""
        return self.first if self.first is not None else now - self._began if self._began is not None else 0.0

    @property
    def origin(self) -> str:
        """In the API's word."""
        return str(self.source.get("source", "none"))

    @property
    def shared(self) -> bool:
        """Whether most of its prompt was there already; a few tokens in common are no head."""
        return self.cached > self.prompt / 2


class Board:
    """Progress: a table that redraws itself on a terminal, a line for each fact elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: Sequence[Seen] = ()

    @contextmanager
    def watch(self, seen: Sequence[Seen]) -> Iterator[None]:
        """Show ``seen`` while the block runs."""
        self._seen = seen
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, get_renderable=self._picture, refresh_per_second=8):
            yield

    def tell(self, seen: Seen, fact: str) -> None:
        """Something happened to a session. Without a terminal it becomes a line."""
        if self._console.is_terminal or not fact:
            return
        words = {
            "sent": "sent",
            "first token": f"first token after {seen.waited(0):.2f} s",
            "done": f"done after {seen.total or 0:.2f} s, {seen.cached:,} of {seen.prompt:,} cached",
        }
        self._console.print(f"  {seen.name:<12} {words[fact]}", highlight=False)

    def _picture(self) -> Table:
        now = time.perf_counter()
        grid = Table.grid(padding=(0, 2))
        for _ in range(3):
            grid.add_column(no_wrap=True)
        for seen in self._seen:
            state = "waiting for its turn" if seen.waited(now) == 0 else "reading" if seen.first is None else "writing"
            if seen.total is not None:
                state = "done"
            style = {"reading": "yellow", "writing": "cyan", "done": "green"}.get(state, "dim")
            # The one column that gives way on a narrow terminal.
            answer = Text(" ".join(seen.text.split()), style="dim", no_wrap=True, overflow="ellipsis")
            answer.truncate(48, overflow="ellipsis")
            grid.add_row(f"  {seen.name}", Text(state, style=style), f"{seen.waited(now):6.2f} s", answer)
        return grid


def table(on: Sequence[Seen], off: Sequence[Seen], wall_on: float, wall_off: float) -> Table:
    """Every session with sharing beside the same without it; walls are seconds for all of them. At most 60 wide."""
    made = Table(
        title="Time to first token",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_footer=True,
        footer_style="dim",
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    made.add_column("\nsession", "all answers", no_wrap=True)
    made.add_column("sharing\non", seconds(wall_on), justify="right", no_wrap=True)
    made.add_column("sharing\noff", seconds(wall_off), justify="right", no_wrap=True)
    made.add_column("\nfaster", ratio(wall_off, wall_on), justify="right", no_wrap=True)
    made.add_column("\ncached", justify="right", no_wrap=True)
    made.add_column("prefix\nfrom", no_wrap=True)
    for a, b in zip(on, off, strict=True):
        # Who computed the head gained nothing by sharing, whatever the clock says.
        faster = Text(ratio(b.first, a.first), style="bold green") if a.shared else Text("–")
        made.add_row(a.name, seconds(a.first), seconds(b.first), faster, f"{a.cached:,}/{a.prompt:,}", a.origin)
    return made


def legend(seen: Sequence[Seen]) -> str:
    """What the words in the column "prefix from" mean, those that came up."""
    came_up = {one.origin for one in seen}
    return "prefix from: " + "; ".join(f"{word} = {text}" for word, text in WHERE.items() if word in came_up)


def closing(on: Sequence[Seen], off: Sequence[Seen]) -> str:
    """What was seen, in one sentence."""
    gains = [b.first / a.first for a, b in zip(on, off, strict=True) if a.shared and a.first and b.first]
    if not gains:
        return (
            f"No session used another one's prefix: the head was computed {_times(on)}, without sharing {_times(off)}."
        )
    heads = f"the head was computed {_times(on)} instead of {_times(off)}."
    few = len(gains) == 1
    who = "One sibling had its" if few else f"{_COUNTS[len(gains)].capitalize()} siblings had their"
    if median(gains) <= 1:
        return f"{who} first token no sooner, though {heads}"
    return f"{who} first token {ratio(median(gains), 1)} sooner{'' if few else ' (median)'}; {heads}"


def _times(seen: Sequence[Seen]) -> str:
    """How often these sessions computed the head."""
    count = sum(not one.shared for one in seen)
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{_COUNTS[count]} times")


def seconds(value: float | None) -> str:
    """A time; a dash where no token came."""
    return "–" if value is None else f"{value:.2f} s" if value < 99.995 else f"{value:.0f} s"


def ratio(slow: float | None, fast: float | None) -> str:
    """How many times faster."""
    if not slow or not fast:
        return "–"
    times = slow / fast
    return f"{times:.0f} x" if times >= 9.95 else f"{times:.1f} x"
