"""Which scenarios a run goes through, in which order, and which rows each reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ..types import MemoryKind
from . import scenarios, stateful
from .judge import Row
from .stage import Stage


@dataclass(frozen=True)
class Scenario:
    """``rows`` are the ids that it reports, and what each is; ``stateful`` ones are for models whose prefixes cannot be
    cut anywhere."""

    run: Callable[[Stage], Awaitable[list[Row]]]
    rows: Mapping[str, str]
    stateful: bool = False


# In this order: the first leaves a warm head, those that fill the cache with other things come late.
SCENARIOS = (
    Scenario(
        scenarios.burst,
        {
            "burst": "four cold siblings at once: wall time against one cold prefill",
            "cells": "cache cells that these four take: head + their own",
        },
    ),
    Scenario(
        scenarios.third,
        {
            "third": "first token of a third session, while two decode",
        },
    ),
    Scenario(
        scenarios.overhead,
        {
            "overhead": "what front and worker add to a warm first token",
        },
    ),
    Scenario(
        scenarios.decode,
        {
            "decode-1": "decoding speed of one session, against the library",
            "decode-3": "the same of three sessions on one head",
        },
    ),
    Scenario(
        stateful.turns,
        {
            "turn": "uncached tokens of a conversation's turn, beyond the new ones",
        },
        stateful=True,
    ),
    Scenario(
        stateful.tool_loop,
        {
            "tool-loop": "uncached tokens of a tool loop's dearest round: flat",
            "tool-loop-head": "uncached tokens of a sibling of that loop, afterwards",
        },
        stateful=True,
    ),
    Scenario(
        scenarios.gap,
        {
            "gap": "longest silence of a session while a cold prompt is read",
        },
    ),
    Scenario(
        stateful.burst_unmarked,
        {
            "burst-unmarked": "siblings that part at a token that nothing marks",
        },
        stateful=True,
    ),
    Scenario(
        stateful.new_day,
        {
            "new-day-first": "uncached tokens when the date in the head changes",
            "new-day-second": "the same for the second session of that day",
            "new-day-later": "the same for the first session of the day after",
            "new-day-deep": "how near prompts resume that part further up",
        },
        stateful=True,
    ),
    Scenario(
        scenarios.alone,
        {
            "alone": "what sharing costs a request that shares nothing",
            "alone-idle": "the same beside idle tokens in the cache",
        },
    ),
    Scenario(
        scenarios.keeping,
        {
            "keeping": "what it costs a cold prompt to keep states",
        },
        stateful=True,
    ),
    Scenario(
        scenarios.sessions,
        {
            "sessions": "coordinator and three siblings: the plot",
        },
    ),
)


def chosen(kind: MemoryKind, only: frozenset[str]) -> list[Scenario]:
    """The scenarios for a kind of memory, in order; ``only`` names rows, empty for all."""
    fitting = [s for s in SCENARIOS if not s.stateful or kind is not MemoryKind.ATTENTION]
    return [s for s in fitting if not only or only & s.rows.keys()]


def row_ids() -> list[str]:
    """Every id that ``only`` may name."""
    return [row for scenario in SCENARIOS for row in scenario.rows]
