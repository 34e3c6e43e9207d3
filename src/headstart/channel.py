"""The wire between front and worker: one ZeroMQ pair, msgspec values in lists, one list a message."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec
import zmq

from .messages import Command, Reply

encoder = msgspec.msgpack.Encoder()
commands = msgspec.msgpack.Decoder(list[Command])
replies = msgspec.msgpack.Decoder(list[Reply])


def inbox(socket: zmq.Socket[bytes]) -> zmq.Poller:
    """``poll(ms)`` of it says whether a message is there to be taken. Asking so is cheaper than the exception of taking
    none, and takes half as long as asking the socket for its events."""
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    return poller


class FrontEnd:
    """The front's end, on the running event loop. ``receive`` is called with every list of replies, in order, and
    ``garbled`` with the error of one that is no such list.

    pyzmq's own asyncio sockets make several futures for each message, which costs twice what the rest of a token does.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        receive: Callable[[list[Reply]], None],
        garbled: Callable[[msgspec.MsgspecError], None],
    ) -> None:
        self._receive, self._garbled = receive, garbled
        self._loop = asyncio.get_running_loop()
        self._socket = context.socket(zmq.PAIR)
        self._socket.set_hwm(0)
        self._socket.bind(endpoint)
        self._inbox = inbox(self._socket)
        self._descriptor = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._drain)

    def send(self, command: Command) -> None:
        """Never blocks: the queue has no limit, and the worker reads between any two steps.

        A worker that has just ended gets nothing; whoever waits for its process will know soon.
        """
        if not self._socket.closed:
            with contextlib.suppress(zmq.Again):  # without a limit it means one thing only: there is no other end
                self._socket.send(encoder.encode([command]), zmq.NOBLOCK)
            # The descriptor tells of changes only, and sending may have taken one that meant "there is a message".
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        while not self._socket.closed and self._inbox.poll(0):
            try:
                received = replies.decode(self._socket.recv())
            except msgspec.MsgspecError as error:
                self._garbled(error)
                return
            self._receive(received)

    def close(self) -> None:
        """What is still unread is lost."""
        if not self._socket.closed:
            self._loop.remove_reader(self._descriptor)
            self._socket.close(linger=0)
