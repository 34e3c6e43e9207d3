"""One worker process as the front sees it: started, spoken with, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog
import zmq

from . import recorder
from .channel import FrontEnd
from .config import Config
from .errors import StartupError
from .messages import Command, Fatal, ModelInfo, Ready, Reply, Shutdown

STOP_SECONDS = 10.0
LAST_WORDS_SECONDS = 1.0  # after a process's end, for a message that it has sent
# What Python is to run. A terminal's Ctrl-C is for the front, which says when to stop; a worker that is importing would
# print a traceback. (Not a session of its own: Linux may share the processor between sessions instead of threads.)
_DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
WORKER = ("-c", f"{_DEAF}; from headstart.worker import main; main()")
log = structlog.get_logger("headstart.client")


class ModelReplaced(StartupError):
    """A worker came back with another file than the one whose vocabulary and template the front has read."""

    def __init__(self, config: Config) -> None:
        super().__init__(
            f"{config.model} is not the file any more that this server started with: it would be read with the old "
            "one's vocabulary; start the server again"
        )


def stamp(config: Config) -> tuple[int, int] | None:
    """What tells the model's file from one that has replaced it: size and time of the last change."""
    try:
        found = Path(config.model or "no model").stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


class WorkerProcess:
    """A started worker. ``receive`` gets each of its replies but the first, on the event loop."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        context: zmq.Context[zmq.Socket[bytes]],
        place: Path,
        receive: Callable[[Reply], None],
    ) -> None:
        self._process, self._receive, self._place = process, receive, place
        self._first: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._channel = FrontEnd(context, f"ipc://{place}", self._read, self._garbled)

    @classmethod
    async def start(
        cls, config: Config, context: zmq.Context[zmq.Socket[bytes]], place: Path, receive: Callable[[Reply], None]
    ) -> WorkerProcess:
        """Start a worker for ``config``; it loads the model while this returns. Its socket is at ``place``, a path that
        no worker has had yet."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, *WORKER, str(place), str(os.getpid()), stdin=asyncio.subprocess.PIPE
        )
        worker = cls(process, context, place, receive)
        assert process.stdin is not None
        with contextlib.suppress(OSError, RuntimeError):  # it is gone already: `loaded` will say so
            process.stdin.write(config.model_dump_json().encode())
            process.stdin.close()
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    async def loaded(self) -> ModelInfo:
        """Wait for the model. Raises `StartupError` with the worker's one line, or for a worker that just ended."""
        died = asyncio.create_task(self._process.wait())
        either: set[asyncio.Future[Any]] = {died, self._first}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._first.done():  # it has ended; its last words may still be on their way
                await asyncio.wait({self._first}, timeout=LAST_WORDS_SECONDS)
        finally:
            died.cancel()
        if not self._first.done():
            raise StartupError(f"the worker ended while it was loading the model (exit status {died.result()})")
        match self._first.result():
            case Ready(model):
                return model
            case Fatal(message):
                raise StartupError(message)
            case other:
                raise StartupError(f"the worker began with {type(other).__name__}")

    async def died(self) -> int:
        """Wait for its end; the exit status, negative for a signal."""
        return await self._process.wait()

    def account(self) -> recorder.Account:
        """What it was doing when it died."""
        return recorder.read(recorder.beside(self._place))

    def send(self, command: Command) -> None:
        """Hand over a command; it is obeyed between two steps."""
        self._channel.send(command)

    def _read(self, received: list[Reply]) -> None:
        for reply in received:
            if self._first.done():
                self._receive(reply)
            else:
                self._first.set_result(reply)

    def _garbled(self, error: msgspec.MsgspecError) -> None:
        """A worker that cannot be understood is of no use."""
        log.error("the worker's messages cannot be read; it is ended", error=str(error))
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self) -> None:
        """End the process, by message, and by force where that does not help, and wait for it."""
        if self._process.returncode is None:
            if self._first.done():
                self.send(Shutdown())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
            # One that still loads reads no messages and has nothing to finish.
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self.close()

    def close(self) -> None:
        """Forget a process that has ended."""
        self._channel.close()
