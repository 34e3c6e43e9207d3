"""A worker process as the front sees it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from headstart.channel import encoder
from headstart.errors import StartupError
from headstart.messages import Fatal
from headstart.process import WorkerProcess


def test_last_words_that_come_after_the_end_are_heard() -> None:
    """The process may be waited for before its last message has come through the socket."""
    with tempfile.TemporaryDirectory() as directory, pytest.raises(StartupError, match=r"^no model$"):
        asyncio.run(_die(Path(directory) / "worker", says="no model"))


def test_an_end_without_a_word_has_its_status() -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.raises(StartupError, match="exit status 3"):
        asyncio.run(_die(Path(directory) / "worker", says=None))


async def _die(place: Path, says: str | None) -> None:
    """A worker that has ended; what it had to say arrives a moment later."""

    async def wait() -> int:
        return 3

    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    worker = WorkerProcess(SimpleNamespace(wait=wait), context, place, lambda _: None)
    other = context.socket(zmq.PAIR)
    try:
        loading = asyncio.create_task(worker.loaded())
        await asyncio.sleep(0.1)
        if says is not None:
            other.connect(f"ipc://{place}")
            other.send(encoder.encode([Fatal(says)]))
        await loading
    finally:
        other.close(linger=0)
        worker.close()
        context.term()
