"""The worker process: owns the model, reads commands, takes turns, sends replies. The one place that owns time.

Started by `client.Client` as ``python -m headstart.worker SOCKET PID_OF_THE_FRONT`` with the settings as JSON on
standard input. It ends when it is told to, or when the front is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path

import zmq

from .channel import commands, encoder, inbox
from .config import Config
from .core.admission import Limits
from .core.device import Device
from .core.pace import SMALLEST_CHUNK, Pace
from .core.rules import rules_for
from .core.scheduler import Scheduler
from .core.snapshots import Snapshots
from .driver import Driver
from .engine.protocol import Engine
from .errors import StartupError
from .events import Event, Stepped, Usage
from .machine import physical_cores, settle_memory
from .messages import Abort, Command, Fatal, Happened, Inspect, Ready, Reply, Sampled, Shutdown, Submit
from .recorder import Recorder, Watchdog, beside

IDLE_MS = 500  # how often an idle worker looks whether the front is still there
GAUGES_S = 1.0  # how often a busy one tells what changes with every step
TOKENS_S, CROWDED_TOKENS_S = 0.03, 0.1  # how often it hands over tokens, see `tokens_s`
log = logging.getLogger(__name__)


def build_driver(engine: Engine, config: Config, recorder: Recorder) -> Driver:
    """Core and engine for these settings."""
    info = engine.info
    rules = rules_for(info.kind, sharing=info.sharing)
    limits = Limits(
        n_ctx=info.n_ctx,
        parallel=config.parallel,
        max_queue=config.max_queue,
        reserve=max(256, info.n_ctx // (4 * config.parallel)),
        exact_chunk=info.exact_chunk,
    )
    device = Device(info.n_seq, info.n_ctx, counts_cells=rules.cells)
    snapshots = Snapshots(config.cache_states << 20, info.state_bytes)
    # A chunk that the library computes with its slow kernel takes longer than a larger one would.
    smallest = max(SMALLEST_CHUNK, info.exact_chunk)
    pace = Pace(min(config.batch_size, config.ubatch_size), config.step_ms, smallest)
    return Driver(engine, Scheduler(limits, rules, device, snapshots, pace), recorder.note)


def tokens_s(threads: int, cores: int, *, on_gpu: bool) -> float:
    """Seconds between two messages with nothing but tokens. Where every core computes, whatever the front and a client
    on the same machine do about a message takes its time from the next steps: a fortieth of them at twenty a second."""
    return TOKENS_S if on_gpu or threads < cores else CROWDED_TOKENS_S


class Worker:
    """The loop: inbox, turn, outbox. It hands over tokens every ``tokens_s`` seconds."""

    def __init__(self, socket: zmq.Socket[bytes], driver: Driver, front: int, tokens_s: float) -> None:
        self._socket, self._driver, self._front, self._tokens_s = socket, driver, front, tokens_s
        self._stopping = False
        self._outbox: list[Reply] = []
        self._events: list[Event] = []
        self._usage: Usage | None = None
        self._told = self._sent = 0.0

    def run(self) -> None:
        """Work until told to stop or left alone."""
        busy, messages = False, inbox(self._socket)

        def interrupted() -> bool:
            return time.monotonic() - self._sent >= self._tokens_s or bool(messages.poll(0))

        while not self._stopping and os.getppid() == self._front:
            self._read(messages, 0 if busy else IDLE_MS)
            busy = not self._stopping and self._driver.turn(time.monotonic(), interrupted)
            self._send(time.monotonic(), idle=not busy)

    def _read(self, messages: zmq.Poller, patience_ms: int) -> None:
        while messages.poll(patience_ms):
            for command in commands.decode(self._socket.recv()):
                self._obey(command)
            patience_ms = 0

    def _obey(self, command: Command) -> None:
        match command:
            case Submit():
                now = time.monotonic()
                self._driver.submit(command, now if command.arrived is None else min(command.arrived, now))
            case Abort(request, reason):
                self._driver.abort(request, time.monotonic(), reason)
            case Inspect(nonce):
                self._outbox.append(self._driver.view(nonce))
            case Shutdown():
                self._stopping = True

    def _send(self, now: float, *, idle: bool) -> None:
        """Everything at once, but for what comes with every step: on a machine whose cores all compute, the front's
        work for it takes its time from the next step. The first token of an answer comes with events of its own."""
        replies, events = self._driver.take()
        self._outbox += replies
        self._events += events
        urgent = idle or any(not isinstance(event, Stepped) for event in events)
        if urgent or now - self._told >= GAUGES_S:
            urgent = self._tell(now) or urgent
        few = all(isinstance(reply, Sampled) for reply in self._outbox)
        if self._outbox and (urgent or not few or now - self._sent >= self._tokens_s):
            self._socket.send(encoder.encode(self._outbox))
            self._outbox, self._sent = [], now

    def _tell(self, now: float) -> bool:
        """Put what has happened into the outbox. False when nothing has."""
        usage = self._driver.usage()
        if usage != self._usage:
            self._usage = usage
            self._events.append(usage)
        if not self._events:
            return False
        self._outbox.append(Happened(self._events))
        self._events, self._told = [], now
        return True


def main() -> None:
    """Load the model, say so or why not, and work."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # A terminal and a service manager signal the whole group; the front says when to stop.
        signal.signal(number, signal.SIG_IGN)
    front = int(sys.argv[2])  # not the parent as of now: the front may have died since
    settings = sys.stdin.buffer.read()
    if not settings:
        return  # the front died before it could say what to do
    config = Config.model_validate_json(settings)
    context = zmq.Context()
    socket = context.socket(zmq.PAIR)
    socket.set_hwm(0)
    place = Path(sys.argv[1])
    socket.connect(f"ipc://{place}")
    try:
        recorder = Recorder(beside(place))
        from .engine.load import load_engine

        engine = load_engine(config)
    except StartupError as error:
        socket.send(encoder.encode([Fatal(str(error))]))
    else:
        socket.send(encoder.encode([Ready(engine.info, os.getpid())]))
        engine.alone = recorder.alone
        Watchdog(recorder).start()
        pause = tokens_s(config.threads, physical_cores(), on_gpu=engine.info.on_gpu)
        worker = Worker(socket, build_driver(engine, config, recorder), front, pause)
        settle_memory()
        worker.run()
        engine.shutdown()
    socket.close(linger=1000)
    context.term()


if __name__ == "__main__":
    main()
