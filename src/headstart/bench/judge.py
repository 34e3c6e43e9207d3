"""What was promised against what was measured: pure functions from measurements to rows. Times are seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

Unit = Literal["s", "ms", "x", "tokens", "cells", "%"]

WIRE = 0.060  # front and wire, seconds
ATTACH_FACTOR = 2.0
BURST_FACTOR = 1.15
GAP_CHUNKS = 3.0
DECODE_ONE, DECODE_THREE = 0.95, 0.93
ALONE_PERCENT = 3.0
NEW_DAY_TOKENS, SAME_DAY_TOKENS = 512, 32
TURN_TOKENS = 16
CLOSEST_CUTS = 64  # tokens; states are never kept closer to one another
FLAT_TOKENS = 32  # what a round may cost beyond its neighbours: a batch border, an id with one digit more


@dataclass(frozen=True)
class Row:
    """One promise. ``rule`` says how ``measured`` must stand to ``bound``; a row without a bound only informs."""

    id: str
    what: str
    measured: float
    bound: float | None
    unit: Unit
    rule: Literal["<=", ">="] = "<="
    note: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """None for a row that only informs."""
        if self.bound is None:
            return None
        return self.measured <= self.bound if self.rule == "<=" else self.measured >= self.bound

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


def third(ttfts: Sequence[float], idle: Sequence[float], busy: Sequence[float], own: int) -> Row:
    """A session that joins two that decode. ``idle`` and ``busy``: the library's attach + ``own`` tokens, alone and in
    one step with two decodes; the bound is made from the stricter. Of pairs, taken in turns, the middle one counts."""
    pairs = sorted(zip(ttfts, idle, strict=True), key=lambda pair: pair[0] - ATTACH_FACTOR * pair[1])
    ttft, bare = pairs[len(pairs) // 2]
    note = f"{own} own tokens; library {ms(bare)}, beside two decodes {ms(median(busy))}"
    return Row(
        "third",
        "third session's first token, while two decode",
        ttft,
        ATTACH_FACTOR * bare + WIRE,
        "s",
        note=note,
        samples={"ttft": list(ttfts), "idle": list(idle), "busy": list(busy)},
    )


def burst(wall: float, cold: float, *, unmarked: bool = False) -> Row:
    """Cold siblings that arrive together, until the last one's answer, against one cold prefill of the library."""
    where = ", parting at an unmarked token" if unmarked else ""
    return Row(
        "burst-unmarked" if unmarked else "burst",
        f"burst of 4 cold siblings{where}, wall",
        wall,
        BURST_FACTOR * cold,
        "s",
        note=f"{wall / cold:.2f} x one cold prefill ({cold:.2f} s)",
        samples={"wall": [wall], "cold": [cold]},
    )


def cells(used: float, computed: int, head: int, own: Sequence[int]) -> Row:
    """Cells that sessions on one head take: the head once + each one's own. The larger counts of what the server's
    books say and of the tokens that were computed by its answers. Fewer are needed where own tokens agree as well."""
    note = f"head {head:,} + own {sum(own)}; one copy each would take {sum(own) + len(own) * head:,}"
    return Row("cells", "cells of 4 sessions on one head", max(used, computed), head + sum(own), "cells", note=note)


def gap(gaps: Sequence[float], chunk: float, chunk_tokens: int, reading: int) -> Row:
    """The longest silence of a session that decodes while another one's cold prompt is read."""
    return Row(
        "gap",
        f"longest gap of a decoding session, {reading:,} cold tokens being read",
        max(gaps),
        GAP_CHUNKS * chunk,
        "s",
        note=f"one small chunk ({chunk_tokens} tokens) {ms(chunk)}; median gap {ms(median(gaps))}",
        samples={"gap": list(gaps), "chunk": [chunk]},
    )


def decode(sessions: int, ours: Sequence[float], bare: Sequence[float]) -> Row:
    """Tokens per second of all sessions, ours against the library's loop, as a ratio; pairs, taken in turns."""
    ratio = median(a / b for a, b in zip(ours, bare, strict=True))
    who = "one session" if sessions == 1 else f"{sessions} sessions on one head"
    return Row(
        f"decode-{sessions}",
        f"decode, {who}, against the library",
        ratio,
        DECODE_ONE if sessions == 1 else DECODE_THREE,
        "x",
        ">=",
        note=f"{median(ours):.1f} against {median(bare):.1f} tokens/s",
        samples={"ours": list(ours), "bare": list(bare)},
    )


def overhead(ttfts: Sequence[float], bare: Sequence[float], prompt: int) -> Row:
    """What front, wire and books add to the first token of a warm request; pairs, taken in turns."""
    added = median(a - b for a, b in zip(ttfts, bare, strict=True))
    return Row(
        "overhead",
        f"overhead on a warm first token, {prompt:,}-token request",
        added,
        WIRE,
        "s",
        note=f"{ms(median(ttfts))} at the client, library {ms(median(bare))}",
        samples={"ttft": list(ttfts), "bare": list(bare)},
    )


def alone(id: str, what: str, on: Sequence[float], off: Sequence[float], bound: float | None = ALONE_PERCENT) -> Row:
    """Percent that sharing costs a request that gains nothing by it; ``on`` and ``off`` are pairs, taken in turns."""
    ratio = median(a / b for a, b in zip(on, off, strict=True))
    return Row(
        id,
        what,
        100 * (ratio - 1),
        bound,
        "%",
        note=f"{median(on):.3f} s, with sharing off {median(off):.3f} s",
        samples={"on": list(on), "off": list(off)},
    )


def new_day(first: int, second: int, later: int, behind: int, own: int) -> list[Row]:
    """Uncached tokens of sessions whose head differs ``behind`` tokens before their ends, ``own`` of them their own:
    a new day's first and second, and the first of the day after, which may resume a cut's least distance before."""
    where = f"the prompts part {behind} tokens before the end, {own} of these are the task"
    return [
        Row("new-day-first", "new day's first session, uncached", first, NEW_DAY_TOKENS, "tokens", note=where),
        Row("new-day-second", "new day's second session, uncached", second, SAME_DAY_TOKENS, "tokens"),
        Row("new-day-later", "later day's first session, uncached", later, behind + CLOSEST_CUTS, "tokens", note=where),
    ]


def resumed_before(distance: int, behind: int) -> Row:
    """How far before the token where two prompts part, ``behind`` tokens before their ends, the second one resumed."""
    what = "prompts that part further up: resumed before the parting by"
    return Row(
        "new-day-deep", what, distance, NEW_DAY_TOKENS, "tokens", note=f"they part {behind} tokens before the end"
    )


def turns(uncached: Sequence[int], new: Sequence[int]) -> Row:
    """Turns of a conversation that only grows: uncached tokens beyond the new ones, of the dearest turn."""
    beyond = [u - n for u, n in zip(uncached, new, strict=True)]
    return Row(
        "turn",
        "turn of an appending conversation, uncached beyond its new tokens",
        max(beyond),
        TURN_TOKENS,
        "tokens",
        note=f"{len(beyond)} turns, {round(median(new))} new tokens each",
        samples={"uncached": list(map(float, uncached)), "new": list(map(float, new))},
    )


def tool_loop(uncached: Sequence[int], sibling: int, own: int) -> list[Row]:
    """Rounds of a tool loop, the first aside: the dearest against the typical one. Then a sibling on its head."""
    rounds = uncached[1:]
    return [
        Row(
            "tool-loop",
            f"{len(uncached)}-round tool loop, dearest round's uncached tokens",
            max(rounds),
            median(rounds) + FLAT_TOKENS,
            "tokens",
            note=f"first rounds {list(rounds[:3])}, last rounds {list(rounds[-3:])}",
            samples={"uncached": list(map(float, uncached))},
        ),
        Row("tool-loop-head", "its head afterwards: uncached for a sibling", sibling, own + TURN_TOKENS, "tokens"),
    ]


def ms(seconds: float) -> str:
    """Milliseconds for people."""
    return f"{1e3 * seconds:.0f} ms" if seconds >= 0.01 else f"{1e3 * seconds:.1f} ms"
