"""Two servers that take turns: each is stopped while the other works, and only its own time is counted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import psutil
import pytest

from headstart.bench import turns
from headstart.bench.turns import TURN, Turns, in_turns


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    children = [subprocess.Popen(command) for _ in range(2)]
    yield children
    for child in children:
        child.kill()
        child.wait()


def stopped(child: subprocess.Popen[bytes]) -> bool:
    return psutil.Process(child.pid).status() == psutil.STATUS_STOPPED


def soon(true: Callable[[], bool]) -> bool:
    """A signal takes a moment."""
    deadline = time.monotonic() + 5
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def contestant(child: subprocess.Popen[bytes], work):
    return SimpleNamespace(pid=child.pid), work


def test_time_passes_only_in_turns() -> None:
    mine = Turns([(10.0, 11.0), (12.0, 12.5)])
    assert mine.seconds == pytest.approx(1.5)
    moments = (9.0, 10.0, 10.25, 11.0, 11.5, 12.0, 12.25, 12.5, 20.0)
    assert [mine.until(moment) for moment in moments] == pytest.approx([0, 0, 0.25, 1, 1, 1, 1.25, 1.5, 1.5])


def test_one_works_while_the_other_is_stopped(sleepers: list[subprocess.Popen[bytes]]) -> None:
    seen: list[tuple[bool, bool]] = []

    async def watch() -> None:
        for _ in range(30):
            await asyncio.sleep(0.02)
            seen.append((stopped(sleepers[0]), stopped(sleepers[1])))

    began = time.perf_counter()
    seconds = asyncio.run(in_turns(contestant(child, watch) for child in sleepers))
    assert {(True, False), (False, True)} <= set(seen)
    assert sum(turn.seconds for turn in seconds) == pytest.approx(time.perf_counter() - began, abs=TURN)
    assert not any(map(stopped, sleepers))


def test_one_stands_still_for_a_while(sleepers: list[subprocess.Popen[bytes]]) -> None:
    with turns.stopped(SimpleNamespace(pid=sleepers[0].pid)):
        assert soon(lambda: stopped(sleepers[0]))
        assert not stopped(sleepers[1])
    assert soon(lambda: not stopped(sleepers[0]))


def test_a_failure_leaves_nobody_stopped(sleepers: list[subprocess.Popen[bytes]]) -> None:
    async def fail() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        asyncio.run(in_turns(contestant(child, fail) for child in sleepers))
    assert not any(map(stopped, sleepers))
