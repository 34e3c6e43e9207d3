"""The wire: what happens to messages when the other end is gone."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import zmq

from headstart.channel import FrontEnd, commands, encoder
from headstart.messages import Command, Fatal, Inspect, Reply, Shutdown

PATIENCE = 10.0  # seconds


def test_a_message_to_a_worker_that_has_just_ended_is_no_error() -> None:
    """Its socket closes before its process can be waited for; in between the front may have a request for it."""
    with tempfile.TemporaryDirectory() as directory:
        heard, errors = asyncio.run(_speak_to_nobody(f"ipc://{Path(directory) / 'worker'}"))
    assert heard == [Inspect(2)]
    assert not errors


async def _speak_to_nobody(endpoint: str) -> tuple[list[Command], list[Exception]]:
    """What arrived while there was a worker, and what the front complained about."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    heard: asyncio.Queue[list[Reply]] = asyncio.Queue()
    errors: list[Exception] = []
    front = FrontEnd(context, endpoint, heard.put_nowait, errors.append)
    worker = context.socket(zmq.PAIR)
    try:
        front.send(Inspect(1))  # before there is one at all
        worker.connect(endpoint)
        worker.send(encoder.encode([Fatal("no model")]))
        assert await asyncio.wait_for(heard.get(), PATIENCE) == [Fatal("no model")]
        front.send(Inspect(2))
        assert worker.poll(1000 * PATIENCE)
        received = commands.decode(worker.recv())
        worker.close(linger=0)
        await asyncio.sleep(0.2)  # the front's end notices in a thread of its own
        for _ in range(3):
            front.send(Shutdown())
        return received, errors
    finally:
        front.close()
        worker.close(linger=0)
        context.term()
