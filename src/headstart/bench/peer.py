"""The same work on somebody else's OpenAI-compatible server, in the same run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from . import drive
from .stage import Stage
from .target import Target
from .work import Head, make_head, task


@dataclass(frozen=True)
class Comparison:
    """One measurement on both. ``times`` is how many times better ours is, whatever better means there."""

    id: str
    what: str
    ours: float
    peer: float
    unit: str
    more_is_better: bool = False

    @property
    def times(self) -> float:
        best, other = (self.ours, self.peer) if self.more_is_better else (self.peer, self.ours)
        return best / other if other else 0.0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "times": self.times}


async def compare(stage: Stage, url: str, name: str, say: Callable[[str], None]) -> list[Comparison]:
    """Drive the server at ``url`` through what ours has been through in this run (`Stage.ours`)."""
    peer = Target(url, {**stage.common, "model": name}, stage.http)
    made: list[Comparison] = []
    warm: Head | None = None
    for id, what, unit, more, measure in _WORK:
        if id not in stage.ours:
            continue
        say(f"peer: {what}")
        if id != "sessions" and warm is None:
            warm = await make_head(stage.target, "burst" if "burst" in stage.ours else "warm", stage.sizes.head)
            if "burst" not in stage.ours:
                await peer.chat(warm.body("Hello.", max_tokens=1))
        made.append(Comparison(id, what, stage.ours[id], await measure(stage, peer, warm), unit, more))
        await asyncio.sleep(0.5)  # it may still be clearing up after sessions that hung up
    return made


async def _burst(stage: Stage, peer: Target, head: Head | None) -> float:
    assert head is not None
    return drive.wall(await drive.burst(peer, [head.body(task(i), max_tokens=1) for i in range(4)]))


async def _third(stage: Stage, peer: Target, head: Head | None) -> float:
    assert head is not None
    return median(a.first for a in await drive.third(peer, head, stage.sizes.repeat))


async def _decode_one(stage: Stage, peer: Target, head: Head | None) -> float:
    assert head is not None
    return drive.rate(await drive.decode(peer, head, 1, stage.sizes.decode))


async def _decode_three(stage: Stage, peer: Target, head: Head | None) -> float:
    assert head is not None
    return drive.rate(await drive.decode(peer, head, 3, stage.sizes.decode))


async def _gap(stage: Stage, peer: Target, head: Head | None) -> float:
    assert head is not None
    cold = (await make_head(stage.target, "gap", stage.sizes.cold)).body(task(0))
    return max(await drive.gap(peer, head, cold))


async def _sessions(stage: Stage, peer: Target, _head: Head | None) -> float:
    found = await drive.sessions(peer, await make_head(stage.target, "sessions", stage.sizes.head))
    stage.sessions["peer"] = found
    return median(s.first for s in found[1:])


_Measure = Callable[[Stage, Target, Head | None], Awaitable[float]]
_WORK: tuple[tuple[str, str, str, bool, _Measure], ...] = (
    ("burst", "burst of 4 cold siblings, wall", "s", False, _burst),
    ("third", "third session's first token, while two decode", "s", False, _third),
    ("decode-1", "decode, one session", "tokens/s", True, _decode_one),
    ("decode-3", "decode, 3 sessions on one head", "tokens/s", True, _decode_three),
    ("gap", "longest gap of a decoding session beside a cold prompt", "s", False, _gap),
    ("sessions", "siblings beside a coordinator, median first token", "s", False, _sessions),
)
