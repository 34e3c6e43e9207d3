"""The promises for models with a recurrent state or a sliding window, whose prefixes cannot be cut anywhere."""

from __future__ import annotations

import json
from functools import partial
from statistics import median

from . import drive, judge
from .judge import Row
from .stage import Stage
from .target import Answer, Body
from .work import Head, common, make_head, task

TURNS = 5
_TAIL = 300  # tokens between an early difference and the head's end
_SIBLINGS = 4


async def burst_unmarked(stage: Stage) -> list[Row]:
    """Four cold siblings that part in the middle of their user messages, where nothing is marked."""
    await stage.fresh()
    head = await make_head(stage.target, "unmarked", stage.sizes.head)
    shared = task(0, words=150)
    bodies = [head.body(f"{shared} {task(i)}", max_tokens=1) for i in range(_SIBLINGS)]
    tokens = len(await stage.target.tokens(bodies[0]))
    wall, cold, _ = await burst(stage, bodies, tokens, head)
    return [judge.burst(wall, cold, unmarked=True)]


async def burst(stage: Stage, bodies: list[Body], tokens: int, head: Head) -> tuple[float, float, list[Answer]]:
    """Siblings on a cold head, in turns with the library's prefill of one of them; seconds of both, and the answers."""
    siblings = partial(drive.burst, stage.target, bodies)
    answers, ours, _, library = await stage.beside_library(siblings, partial(stage.cold, tokens, head.tokens))
    stage.warmed(head)
    return ours.seconds, library.seconds, answers


async def turns(stage: Stage) -> list[Row]:
    """A conversation that only grows: what each turn has to compute beyond what is new in it."""
    head = await stage.warm()
    talk: list[str | Body] = [task(50)]
    before = await stage.target.chat(head.body(*talk, max_tokens=24))
    uncached: list[int] = []
    new: list[int] = []
    for i in range(TURNS):
        talk += [{"role": "assistant", "content": before.text}, task(51 + i, words=10 * i)]
        answer = await stage.target.chat(head.body(*talk, max_tokens=24))
        uncached.append(answer.uncached)
        new.append(answer.prompt_tokens - before.prompt_tokens - before.generated)
        before = answer
    return [judge.turns(uncached, new)]


async def tool_loop(stage: Stage) -> list[Row]:
    """Tool calls and their results, one round after another; then a sibling of the loop's first prompt."""
    head = await stage.warm()
    name = head.tools[0]["function"]["name"]
    talk: list[str | Body] = [task(60)]
    uncached: list[int] = []
    for number in range(stage.sizes.rounds):
        uncached.append((await stage.target.chat(head.body(*talk, max_tokens=1))).uncached)
        talk += _round(name, number)
    sibling = await stage.target.chat(head.body(task(61), max_tokens=1))
    return judge.tool_loop(uncached, sibling.uncached, sibling.prompt_tokens - head.tokens)


def _round(tool: str, number: int) -> list[str | Body]:
    id = f"call_{number:04d}"
    arguments = json.dumps({"page": 100 + number})
    call = {"id": id, "type": "function", "function": {"name": tool, "arguments": arguments}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": f"Page {100 + number}: all is well behind the gate."},
    ]


async def new_day(stage: Stage) -> list[Row]:
    """Heads that end in an id and a date. First the date changes, then again, then the id."""
    base = await make_head(stage.target, "day", stage.sizes.head - _TAIL - 60, tools=False)
    filler = (await make_head(stage.target, "tail", _TAIL, tools=False)).system

    def head(day: int, team: str = "north") -> Head:
        date = f"Today is the {day}th of November 2026. Answer in the language of the user."
        return Head([], f"{base.system}\nTeam on duty: {team}.\n{filler}\n{date}")

    async def ask(head: Head, number: int) -> Answer:
        return await stage.target.chat(head.body(task(number), max_tokens=1))

    async def parting(a: Head, b: Head) -> tuple[int, int]:
        one, two = [await stage.target.tokens(h.body(task(2))) for h in (a, b)]
        return common(one, two), len(two)

    await ask(head(11), 0)
    await ask(head(11), 1)
    first, second = await ask(head(12), 2), await ask(head(12), 3)
    later = await ask(head(13), 2)
    position, length = await parting(head(11), head(12))
    own = round(median(a.prompt_tokens for a in (first, second))) - await _head_tokens(stage, head(12))
    rows = judge.new_day(first.uncached, second.uncached, later.uncached, length - position, own)
    deep, _ = await parting(head(13), head(13, "south"))
    away = await ask(head(13, "south"), 2)
    return [*rows, judge.resumed_before(deep - away.cached, away.prompt_tokens - deep)]


async def _head_tokens(stage: Stage, head: Head) -> int:
    one, two = [await stage.target.tokens(head.body(text)) for text in ("Apples", "12")]
    return common(one, two)
