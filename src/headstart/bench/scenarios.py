"""One function for each promise: do the work on our server, measure the library, let `judge` decide."""

from __future__ import annotations

from functools import partial
from statistics import median

from . import drive, judge, stateful
from .judge import Row
from .stage import Stage
from .target import Answer
from .work import Head, make_head, task

_SIBLINGS = 4
# Wakes a server up and leaves nothing in its cache.
_UNKEPT = {
    "messages": [{"role": "user", "content": "Hello."}],
    "max_tokens": 2,
    "prompt_cache_options": {"mode": "explicit"},
}
DECODE_TURN = 0.3  # seconds: a server that hands its tokens over by the clock does so once more in each turn
SMALL_CHUNK = 64  # the server makes none smaller: with flash attention on a CPU that would take longer, not less


async def burst(stage: Stage) -> list[Row]:
    """Four cold siblings at once; then the cells that they take."""
    await stage.fresh()
    head = await make_head(stage.target, "burst", stage.sizes.head)
    bodies = [head.body(task(i), max_tokens=1) for i in range(_SIBLINGS)]
    prompts = [await stage.target.tokens(body) for body in bodies]
    before = await stage.target.metric("headstart_cells_used")
    wall, cold, answers = await stateful.burst(stage, bodies, len(prompts[0]), head)
    await stage.target.idle()
    used = await stage.target.metric("headstart_cells_used") - before
    stage.ours["burst"] = wall
    own = [len(p) - head.tokens for p in prompts]
    return [judge.burst(wall, cold), judge.cells(used, sum(a.uncached for a in answers), head.tokens, own)]


async def third(stage: Stage) -> list[Row]:
    """A third session while two decode."""
    head = await stage.warm()
    yard = stage.yard(head)
    idle: list[float] = []
    busy: list[float] = []

    def library(answer: Answer) -> None:
        own = _own([answer], head)
        with stage.server_stopped():
            idle.extend(yard.attach(own, 0, 1))
            busy.extend(yard.attach(own, 2, 1))

    answers = await drive.third(stage.target, head, 2 * stage.sizes.repeat + 1, library)
    ttfts = [a.first for a in answers]
    stage.ours["third"] = median(ttfts)
    return [judge.third(ttfts, idle[1:], busy[1:], _own(answers, head))]


async def overhead(stage: Stage) -> list[Row]:
    """A warm request with nobody else there, in turn with the library."""
    head = await stage.warm()
    yard = stage.yard(head)
    answers: list[Answer] = []
    bare: list[float] = []
    for i in range(8 * stage.sizes.repeat + 1):  # a pair takes a second, and may scatter by a quarter of one
        answers.append(await stage.target.chat(head.body(task(100 + i), max_tokens=1)))
        bare += yard.attach(_own(answers[-1:], head), 0, 1)
    return [judge.overhead([a.first for a in answers[1:]], bare[1:], answers[-1].prompt_tokens)]


async def decode(stage: Stage) -> list[Row]:
    """Speed of one session and of three on one head, in turns with the library's loop. Server and library are started
    anew several times: two processes can differ by a sixth for as long as they live, whatever they run."""
    speeds: dict[int, tuple[list[float], list[float]]] = {1: ([], []), 3: ([], [])}
    tokens = stage.sizes.decode
    for _ in range(stage.sizes.processes):
        await stage.fresh()  # nothing idle in the cache either: every step scans it, and the library's loop leaves none
        head = await stage.warm()
        own = len(await stage.target.tokens(head.body(task(20)))) - head.tokens
        library = stage.yard(head).decode
        for sessions, (ours, bare) in speeds.items():
            for _ in range(stage.sizes.pairs):
                answers, mine, (began, ended), its = await stage.beside_library(
                    partial(drive.decode, stage.target, head, sessions, tokens),
                    partial(library, sessions, own, tokens),
                    DECODE_TURN,
                )
                ours.append(drive.rate(answers, mine.until))
                bare.append(sessions * tokens / (its.until(ended) - its.until(began)))
    for sessions, (ours, _) in speeds.items():
        stage.ours[f"decode-{sessions}"] = median(ours)
    return [judge.decode(sessions, *both) for sessions, both in speeds.items()]


async def gap(stage: Stage) -> list[Row]:
    """Silences while a cold prompt is read."""
    head = await stage.warm()
    cold = (await make_head(stage.target, "gap", stage.sizes.cold)).body(task(0))
    gaps = await drive.gap(stage.target, head, cold)
    own = len(await stage.target.tokens(head.body(task(3)))) - head.tokens
    chunk, tokens = stage.yard(head).chunk(own, stage.sizes.cold, stage.step_ms, SMALL_CHUNK)
    stage.ours["gap"] = max(gaps)
    return [judge.gap(gaps, chunk, tokens, stage.sizes.cold)]


async def alone(stage: Stage) -> list[Row]:
    """Requests that share nothing with anything, sharing on and off in turns, each on a server just started; then on
    servers that have read another prompt of that length before, which sharing keeps."""
    n, pairs = stage.sizes.alone, stage.sizes.pairs
    what = f"a request that shares nothing ({n:,} tokens), slower than with sharing off by"
    on, off = await _compare(stage, "alone", n, answer_tokens=16, pairs=3 * pairs)
    rows = [judge.alone("alone", what, on, off)]
    on, off = await _compare(stage, "idle", n, answer_tokens=16, pairs=pairs, beside=n)
    return [*rows, judge.alone("alone-idle", f"the same beside {n:,} idle tokens in the cache", on, off, bound=None)]


async def keeping(stage: Stage) -> list[Row]:
    """What it costs a cold prompt to pause at its cuts and keep states there."""
    on, off = await _compare(stage, "keeping", stage.sizes.head, answer_tokens=1, pairs=stage.sizes.pairs)
    return [judge.alone("keeping", "holders and snapshots: a cold prefill takes longer by", on, off)]


async def _compare(
    stage: Stage, name: str, tokens: int, *, answer_tokens: int, pairs: int, beside: int = 0
) -> tuple[list[float], list[float]]:
    """Seconds of a cold prompt, sharing on and off. Its server has read another one of ``beside`` tokens before."""
    times: dict[str, list[float]] = {"--slot-attach": [], "--no-slot-attach": []}
    cells = -(-(tokens + beside + 2048) // 1024) * 1024
    for pair in range(pairs):
        head = await make_head(stage.target, f"{name}{pair}", tokens)
        before = _UNKEPT
        if beside:
            before = (await make_head(stage.target, f"beside{pair}", beside)).body(task(0), max_tokens=2)
        # Whoever comes second finds the processor warmer: take turns at that too.
        flags = sorted(times, reverse=bool(pair % 2))
        body = head.body(task(pair), max_tokens=answer_tokens)
        for flag, seconds in zip(flags, await stage.compare(flags, cells, before, body), strict=True):
            times[flag].append(seconds)
    return times["--slot-attach"], times["--no-slot-attach"]


async def sessions(stage: Stage) -> list[Row]:
    """A coordinator and three siblings, with sharing and without: the plot."""
    head = await make_head(stage.target, "sessions", stage.sizes.head)
    for label, flag in (("headstart", "--slot-attach"), ("sharing off", "--no-slot-attach")):
        with stage.served(flag) as target:
            stage.sessions[label] = await drive.sessions(target, head)
    with_it, without = (median(s.first for s in found[1:]) for found in stage.sessions.values())
    stage.ours["sessions"] = with_it
    what = "three siblings beside a coordinator: median time to first token"
    return [Row("sessions", what, with_it, None, "s", note=f"{without / with_it:.0f} x faster than without sharing")]


def _own(answers: list[Answer], head: Head) -> int:
    """Tokens beyond the head. What the server computes again of the head, it cannot blame on the library."""
    return round(median(a.prompt_tokens for a in answers)) - head.tokens
