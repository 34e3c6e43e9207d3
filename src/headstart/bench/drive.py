"""The work of each scenario, driven against any server: only requests and clocks, no judgement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

from ..errors import HeadstartError
from .target import Answer, Body, Target
from .work import Head, task

LONG = 4000  # tokens; longer than anything that a scenario waits for
PATIENCE = 600.0  # seconds
SKEW = 0.005  # seconds between the arrivals, on several connections, of what a server sent in one go


class Talking:
    """A session that goes on decoding in the background."""

    def __init__(self, target: Target, body: Body, tokens: int) -> None:
        self.answer = Answer(0.0)
        self._event = asyncio.Event()
        self._wanted = 1
        self.task = asyncio.create_task(target.chat({**body, "max_tokens": tokens}, on_text=self._heard))

    def _heard(self, answer: Answer) -> None:
        self.answer = answer
        if len(answer.times) >= self._wanted:
            self._event.set()

    async def says(self, pieces: int) -> None:
        """Wait until ``pieces`` more pieces of text have come. Raises what ended the session before that."""
        self._wanted = len(self.answer.times) + pieces
        self._event.clear()
        heard = asyncio.create_task(self._event.wait())
        await asyncio.wait({heard, self.task}, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        heard.cancel()
        if self.task.done():
            self.task.result()
            raise HeadstartError("a session ended while it should have gone on decoding")
        if not self._event.is_set():
            raise HeadstartError(f"a session was silent for {PATIENCE:.0f} s")

    def ended(self) -> bool:
        return self.task.done()

    async def stop(self) -> None:
        """Hang up."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def talking(target: Target, bodies: Sequence[Body], tokens: int = LONG) -> AsyncIterator[list[Talking]]:
    """Sessions that decode inside the block, started one after another; hung up at its end."""
    sessions: list[Talking] = []
    try:
        for body in bodies:
            sessions.append(Talking(target, body, tokens))
            await sessions[-1].says(2)
        yield sessions
    finally:
        for session in sessions:
            await session.stop()


async def third(
    target: Target, head: Head, repeat: int, between: Callable[[Answer], object] = lambda _: None
) -> list[Answer]:
    """Sessions that join while two others decode, one at a time. ``between`` is called with each one's answer."""
    answers = []
    async with talking(target, [head.body(task(1)), head.body(task(2))]) as others:
        for i in range(repeat + 1):
            for other in others:
                await other.says(3)
            answers.append(await target.chat(head.body(task(10 + i), max_tokens=2)))
            between(answers[-1])
    # The first finds the server in a shape that it had not computed before; the library's first is dropped as well.
    return answers[1:]


async def burst(target: Target, bodies: Sequence[Body]) -> list[Answer]:
    """Everything at once."""
    return await asyncio.gather(*(target.chat(body) for body in bodies))


def wall(answers: Sequence[Answer]) -> float:
    """Seconds from the first request to the last first token."""
    return max(a.times[0] for a in answers) - min(a.sent for a in answers)


async def gap(target: Target, head: Head, cold: Body) -> list[float]:
    """Silences of a decoding session from the arrival of a cold prompt to that prompt's first token."""
    async with talking(target, [head.body(task(3))]) as (session,):
        await session.says(5)
        reader = await target.chat({**cold, "max_tokens": 1})
        await session.says(1)
        times = session.answer.times
        until = reader.times[0]
        return [b - a for a, b in pairwise(times) if b > reader.sent and a < until]


async def decode(target: Target, head: Head, sessions: int, tokens: int) -> list[Answer]:
    """``sessions`` warm sessions that decode at the same time; see `rate`."""
    bodies = [head.body(task(20 + i), seed=i) for i in range(sessions)]
    # Their own tokens first, so that they begin together.
    await asyncio.gather(*(target.chat({**body, "max_tokens": 1}) for body in bodies))
    return await asyncio.gather(*(target.chat({**body, "max_tokens": tokens}) for body in bodies))


def rate(answers: Sequence[Answer], clock: Callable[[float], float] = lambda moment: moment) -> float:
    """Tokens per second of all answers together, counted while all of them were being written. ``clock`` says how late
    it was at a moment, for a server that does not work all the time."""
    begin, end = max(a.times[0] for a in answers), min(a.times[-1] for a in answers)
    if end <= begin:
        raise HeadstartError("the sessions did not decode at the same time")
    skew = SKEW if len(answers) > 1 else 0.0  # a session's own first token is no message to another one
    total = 0.0
    for a in answers:
        # A server may put several tokens into one piece; the first one it tells at once.
        total += sum(begin < t - skew <= end for t in a.times) * (a.generated - 1) / (len(a.times) - 1)
    return total / (clock(end) - clock(begin))


@dataclass(frozen=True)
class Session:
    """One session of `sessions`, for the plot."""

    name: str
    first: float  # seconds to the first token
    prompt_tokens: int
    cached: int
    source: str


SESSION_NAMES = ("coordinator", "sibling 1", "sibling 2", "sibling 3")


async def sessions(target: Target, head: Head) -> list[Session]:
    """A cold coordinator; three siblings at once while it still decodes."""
    async with talking(target, [head.body(task(0))]) as (coordinator,):
        siblings = await asyncio.gather(*(target.chat(head.body(task(i), max_tokens=8)) for i in (1, 2, 3)))
        lead = coordinator.answer
    rows = [Session(SESSION_NAMES[0], lead.first, siblings[0].prompt_tokens, 0, "none")]
    for name, a in zip(SESSION_NAMES[1:], siblings, strict=True):
        rows.append(Session(name, a.first, a.prompt_tokens, a.cached, a.source))
    return rows
