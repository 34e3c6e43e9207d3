"""What the library works on, noted where it can be read after the worker's death, and the watchdog over it.

A file mapped into memory: a note costs a copy of some bytes, and it stays whatever ends the process.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .errors import StartupError
from .types import RequestId

_STUCK = 1024  # bytes for the one request that the watchdog names; the others follow
_SIZE = 1 << 16
STUCK_STATUS = 70  # the exit status of a worker that its watchdog has ended
STUCK_SECONDS = 10  # for one token, or for the making of one sampler


@dataclass(frozen=True, slots=True)
class Account:
    """What a dead worker was doing: ``working`` names the requests in the library's hands, ``stuck`` the one that
    the watchdog ended it for. ``working`` None: nobody knows."""

    working: frozenset[RequestId] | None = None
    stuck: RequestId | None = None


class Recorder:
    """The worker's end of ``path``, which it writes anew. Raises `StartupError` where there is no room for that."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("w+b") as file:
                # Zeros rather than a hole: a full disk would end the process when the hole is first written to.
                file.write(bytes(_SIZE))
                file.flush()
                self._memory = mmap.mmap(file.fileno(), _SIZE)
        except OSError as error:
            raise StartupError(f"cannot write to {path.parent}: {error.strerror or error}; see TMPDIR") from None
        self._noted: tuple[RequestId, ...] = ()
        self._turns = 0
        self._inside = Alone(self)
        self.alone_with: tuple[RequestId, int] | None = None  # the request of `alone`, and a number of this very time

    def note(self, requests: tuple[RequestId, ...]) -> None:
        """From now on the library works on these."""
        if requests != self._noted:
            self._noted = requests
            self._write(_STUCK, _SIZE, "\n".join(requests))

    def alone(self, request: RequestId) -> Alone:
        """Inside, the library works on this request and on no other, and may not take long."""
        self.note((request,))
        self._turns += 1
        self.alone_with = request, self._turns
        return self._inside

    def accuse(self, request: RequestId) -> None:
        """The library does not come back from this request."""
        self._write(0, _STUCK, request)

    def _write(self, start: int, end: int, text: str) -> None:
        data = text.encode("utf-8", "replace")[: end - start - 1] + b"\0"
        self._memory[start : start + len(data)] = data


class Alone:
    """The inside of `Recorder.alone`. A generator would do, at several times the cost for each token."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._recorder.alone_with = None


def beside(place: Path) -> Path:
    """Where the worker whose socket is at ``place`` keeps its record."""
    return place.with_suffix(".record")


def read(path: Path) -> Account:
    """The account that a worker has left at ``path``."""
    try:
        data = path.read_bytes()
    except OSError:
        return Account()
    if len(data) != _SIZE:
        return Account()
    stuck, working = (part.partition(b"\0")[0].decode("utf-8", "replace") for part in (data[:_STUCK], data[_STUCK:]))
    return Account(frozenset(working.split("\n")) - {""}, stuck or None)


class Watchdog:
    """Ends the process when the library is alone with one request for ``ticks`` ticks: nothing else can stop a call.

    Ticks are counted rather than seconds, so that a process that was stopped or starved is not taken for stuck.
    """

    def __init__(self, recorder: Recorder, ticks: int = STUCK_SECONDS, end: Callable[[int], object] = os._exit) -> None:
        self._recorder, self._ticks, self._end = recorder, ticks, end
        self._seen: tuple[RequestId, int] | None = None
        self._count = 0

    def start(self) -> None:
        """Tick once a second, in a thread of its own: the library's calls leave Python's lock to others."""
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(1)
            self.tick()

    def tick(self) -> None:
        """Another second has passed."""
        now = self._recorder.alone_with
        self._count = self._count + 1 if now is not None and now == self._seen else 0
        self._seen = now
        if now is not None and self._count >= self._ticks:
            self._recorder.accuse(now[0])
            self._end(STUCK_STATUS)
