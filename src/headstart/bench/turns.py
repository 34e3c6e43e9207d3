"""Two programs that work in turns of a fraction of a second, so that both see the same machine.

A shared machine's speed wanders by a fifth within seconds: two long prompts read one after the other differ by more
than what is to be measured. So both are read at once, and the processes of whoever has to pause are stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

TURN = 0.15  # seconds: shorter than the machine's moods, long against the millisecond that a change of turns costs

Work = Callable[[], Awaitable[object]]


class Program(Protocol):
    """A process that works when it is asked to, with its children."""

    @property
    def pid(self) -> int: ...


@dataclass
class Turns:
    """One program's time at the machine: moments on the clock of `time.perf_counter`, ascending."""

    spans: list[tuple[float, float]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.until(inf)

    def until(self, moment: float) -> float:
        """Seconds of it before ``moment``; what happens while the program stands still happens at its last turn's
        end."""
        return sum(min(end, moment) - begin for begin, end in self.spans if begin < moment)


class _Group:
    """A program's processes, stopped and let go together."""

    def __init__(self, program: Program) -> None:
        import psutil  # here: `headstart bench --help` works without it

        front = psutil.Process(program.pid)
        self._processes = [front, *front.children(recursive=True)]

    def stop(self) -> None:
        for process in self._processes:
            process.suspend()

    def go(self) -> None:
        for process in self._processes:
            if process.is_running():
                process.resume()


@contextmanager
def stopped(program: Program) -> Iterator[None]:
    """``program`` stands still inside, whatever it is in the middle of."""
    group = _Group(program)
    group.stop()
    try:
        yield
    finally:
        group.go()


async def in_turns(contestants: Iterable[tuple[Program, Work]], turn: float = TURN) -> list[Turns]:
    """Do each one's work on its program, ``turn`` seconds at a time. Each one's turns, in order."""
    runs = [_Run(program, work) for program, work in contestants]
    try:
        while waiting := [run for run in runs if not run.over]:
            for run in waiting:
                await run.turn(None if len(waiting) == 1 else turn)
    finally:
        for run in runs:
            await run.end()
    return [run.turns for run in runs]


class _Run:
    def __init__(self, program: Program, work: Work) -> None:
        self._group = _Group(program)
        self._work = work
        self._task: asyncio.Future[object] | None = None
        self.turns = Turns()
        self._group.stop()

    @property
    def over(self) -> bool:
        return self._task is not None and self._task.done()

    async def turn(self, seconds: float | None) -> None:
        """Let it work for so long; to its end with None."""
        began = time.perf_counter()
        self._group.go()
        if self._task is None:
            self._task = asyncio.ensure_future(self._work())
        await asyncio.wait({self._task}, timeout=seconds)
        if not self._task.done():
            self._group.stop()
        self.turns.spans.append((began, time.perf_counter()))
        if self._task.done():
            self._task.result()

    async def end(self) -> None:
        """Leave nothing behind that is stopped or goes on asking."""
        self._group.go()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
