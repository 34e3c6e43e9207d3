"""Two programs that work in turns of a fraction of a second, so that both see the same machine.

A shared machine's speed wanders by a fifth within seconds: two long prompts read one after the other differ by more
than what is to be measured. So both are read at once, and the processes of whoever has to pause are stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

TURN = 0.15  # seconds: shorter than the machine's moods, long against the millisecond that a change of turns costs

Work = Callable[[], Awaitable[object]]


class Program(Protocol):
    """A process that works when it is asked to, with its children."""

    @property
    def pid(self) -> int: ...


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


async def in_turns(contestants: Iterable[tuple[Program, Work]], turn: float = TURN) -> list[float]:
    """Do each one's work on its program, ``turn`` seconds at a time. Seconds of each one's turns, in order."""
    runs = [_Run(program, work) for program, work in contestants]
    try:
        while waiting := [run for run in runs if not run.over]:
            for run in waiting:
                await run.turn(None if len(waiting) == 1 else turn)
    finally:
        for run in runs:
            await run.end()
    return [run.seconds for run in runs]


class _Run:
    def __init__(self, program: Program, work: Work) -> None:
        self._group = _Group(program)
        self._work = work
        self._task: asyncio.Future[object] | None = None
        self.seconds = 0.0
        self._group.stop()

    @property
    def over(self) -> bool:
        return self._task is not None and self._task.done()

    async def turn(self, seconds: float | None) -> None:
        """Let it work for so long; to its end with None."""
        self._group.go()
        began = time.perf_counter()
        if self._task is None:
            self._task = asyncio.ensure_future(self._work())
        await asyncio.wait({self._task}, timeout=seconds)
        self.seconds += time.perf_counter() - began
        if self._task.done():
            self._task.result()
            return
        self._group.stop()

    async def end(self) -> None:
        """Leave nothing behind that is stopped or goes on asking."""
        self._group.go()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
