"""What a worker leaves behind, however it dies, and when its watchdog ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headstart.errors import StartupError
from headstart.recorder import STUCK_STATUS, Account, Recorder, Watchdog, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "1.record"


def test_the_latest_note_is_read(path: Path) -> None:
    recorder = Recorder(path)
    assert read(path) == Account(frozenset())
    recorder.note(("long-name/1", "é", "b"))
    assert read(path) == Account(frozenset({"long-name/1", "é", "b"}))
    recorder.note(("c",))
    assert read(path) == Account(frozenset({"c"}))
    recorder.note(())
    assert read(path) == Account(frozenset())


def test_what_does_not_fit_is_cut(path: Path) -> None:
    recorder = Recorder(path)
    recorder.note(tuple(f"{i:0100}" for i in range(1000)))
    recorder.accuse("x" * 5000)
    account = read(path)
    assert account.working is not None and f"{0:0100}" in account.working
    assert account.stuck == "x" * 1023
    assert path.stat().st_size == 1 << 16


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_is_told_at_the_start() -> None:
    with pytest.raises(StartupError, match="No space left"):
        Recorder(Path("/dev/full"))


@pytest.mark.parametrize("content", [None, b"", b"x" * 100])
def test_without_a_record_nobody_knows(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    assert read(path) == Account(None, None)


def watched(path: Path) -> tuple[Recorder, Watchdog, list[int]]:
    ended: list[int] = []
    recorder = Recorder(path)
    return recorder, Watchdog(recorder, ticks=3, end=ended.append), ended


def test_who_stays_alone_for_too_long_is_named(path: Path) -> None:
    recorder, watchdog, ended = watched(path)
    with recorder.alone("a"):
        for _ in range(3):
            watchdog.tick()
            assert not ended
        watchdog.tick()
    assert ended == [STUCK_STATUS]
    assert read(path) == Account(frozenset({"a"}), "a")


def test_many_tokens_of_one_request_and_steps_of_any_length_are_fine(path: Path) -> None:
    recorder, watchdog, ended = watched(path)
    for _ in range(20):
        with recorder.alone("a"):
            watchdog.tick()
    recorder.note(("a",))
    for _ in range(20):
        watchdog.tick()
    assert not ended and read(path).stuck is None


HANGS = """
import sys, threading
from pathlib import Path
from headstart.recorder import Recorder, Watchdog
recorder = Recorder(Path(sys.argv[1]))
Watchdog(recorder, ticks=1).start()
with recorder.alone("hangs"):
    print("in", flush=True)
    import ctypes
    ctypes.CDLL(None).pause()  # a call into a library that never comes back
"""


def hanging(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HANGS, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "in\n"
    return process


def test_a_process_stuck_in_a_library_is_ended(path: Path) -> None:
    with hanging(path) as process:
        assert process.wait(timeout=20) == STUCK_STATUS
    assert read(path) == Account(frozenset({"hangs"}), "hangs")


def test_the_record_survives_a_kill(path: Path) -> None:
    with hanging(path) as process:
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(timeout=20) == -signal.SIGKILL
    assert read(path) == Account(frozenset({"hangs"}), None)
