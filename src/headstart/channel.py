"""The wire between front and worker: one ZeroMQ pair, msgspec values in lists, one list a message."""

from __future__ import annotations

import msgspec

from .messages import Command, Reply

encoder = msgspec.msgpack.Encoder()
commands = msgspec.msgpack.Decoder(list[Command])
replies = msgspec.msgpack.Decoder(list[Reply])
