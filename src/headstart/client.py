"""The front's handle on the worker process: starts it, watches it, speaks with it, and starts it again when it dies."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import structlog
import zmq
from msgspec import structs

from .config import Config
from .errors import EngineError, RequestError, queue_full
from .events import Event
from .failures import to_error
from .messages import (
    Abort,
    Failed,
    Finished,
    Happened,
    Inspect,
    ModelInfo,
    Progress,
    Reply,
    Sampled,
    Snapshot,
    Started,
    Submit,
)
from .process import ModelReplaced, WorkerProcess, stamp
from .suspects import Suspects
from .types import FinishReason, RequestId

Answer = Started | Progress | Sampled | Finished
RETRY_SECONDS = 5  # for a Retry-After header; nobody knows how long the others will generate
log = structlog.get_logger("headstart.client")


class Client:
    """One worker. `generate` may be called from many tasks of one event loop."""

    def __init__(self, config: Config) -> None:
        self._config, self._stamp = config, stamp(config)
        self._directory = tempfile.TemporaryDirectory(prefix="headstart-")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._worker: WorkerProcess | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._streams: dict[RequestId, asyncio.Queue[Reply | EngineError | RequestError]] = {}
        self._suspects = Suspects()
        self._inspections: dict[int, asyncio.Future[Snapshot]] = {}
        self._subscribers: list[Callable[[Event], None]] = []
        self._generation = self._nonce = 0
        self.state: Literal["loading", "ready", "down"] = "loading"
        self.model: ModelInfo | None = None

    @property
    def pid(self) -> int | None:
        """Of the worker, while there is one."""
        return self._worker.pid if self._worker is not None else None

    @property
    def supervisor(self) -> asyncio.Task[None]:
        """Runs from `start` to `stop`; ends earlier, with a `StartupError`, when no worker can follow the last one."""
        assert self._supervisor is not None
        return self._supervisor

    @property
    def busy(self) -> bool:
        """Whether any answer is open."""
        return bool(self._streams)

    def subscribe(self, callback: Callable[[Event], None]) -> None:
        """Call ``callback`` with every event of the worker, on the event loop."""
        self._subscribers.append(callback)

    # ---- life

    async def start(self) -> None:
        """Start the worker and wait until its model is loaded. Raises `StartupError` with the worker's one line."""
        await self._launch()
        self._supervisor = asyncio.create_task(self._supervise())

    async def _launch(self) -> None:
        self._generation += 1
        place = Path(self._directory.name) / str(self._generation)
        self._worker = await WorkerProcess.start(self._config, self._context, place, self._dispatch)
        model = await self._worker.loaded()
        if stamp(self._config) != self._stamp:
            raise ModelReplaced(self._config)
        self.model, self.state = model, "ready"

    async def _supervise(self) -> None:
        """When the worker is gone, end what was open with a clean error and start another. Raises `ModelReplaced`."""
        while True:
            assert self._worker is not None
            self._worker_died(await self._worker.died())
            await self._relaunch()

    def _worker_died(self, status: int) -> None:
        assert self._worker is not None
        self.state = "down"
        account = self._worker.account()
        log.error("the worker died", status=status, open_requests=len(self._streams), stuck_on=account.stuck)
        refused: dict[RequestId, RequestError] = {}
        if account.stuck is not None:
            refused = self._suspects.worker_stuck(account.stuck)
        else:
            self._suspects.worker_died(account.working)
        for id, queue in self._streams.items():
            unserved = EngineError("The worker process died while it served this request.", status=503)
            queue.put_nowait(refused.get(id, unserved))
        for future in self._inspections.values():
            future.set_exception(EngineError("The worker died.", status=503))
        self._inspections.clear()

    async def _relaunch(self) -> None:
        """Start another worker, trying again with growing pauses for as long as it takes. Raises `ModelReplaced`."""
        pause = 0.5
        while True:
            if self._worker is not None:
                await self._worker.stop()
            try:
                await self._launch()
            except ModelReplaced:
                raise
            except Exception as error:  # no processes or files left, too: whatever it is may pass
                log.error("the worker cannot start again", reason=str(error) or repr(error), retry_s=pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 30.0)
            else:
                log.warning("the worker is back", pid=self.pid)
                return

    async def stop(self) -> None:
        """End open requests with a clean error, then the worker."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        self.state = "down"
        if self._streams:
            log.warning("open answers were ended", requests=len(self._streams), ids=" ".join(self._streams))
        for queue in self._streams.values():
            queue.put_nowait(EngineError("The server is shutting down.", status=503))
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()
        self._context.destroy(linger=0)
        self._directory.cleanup()

    def _dispatch(self, reply: Reply) -> None:
        match reply:
            case Happened(events):
                for event in events:
                    for callback in self._subscribers:
                        callback(event)
            case Snapshot():
                future = self._inspections.pop(reply.nonce, None)
                if future is not None and not future.done():
                    future.set_result(reply)
            case Started() | Progress() | Sampled() | Finished() | Failed():
                if isinstance(reply, Finished) and reply.reason is not FinishReason.ABORT:
                    self._suspects.ended_well(reply.id)
                queue = self._streams.get(reply.id)
                if queue is not None:
                    queue.put_nowait(reply)

    def _send(self, command: Submit | Abort | Inspect) -> None:
        if self._worker is not None:
            self._worker.send(command)

    # ---- requests

    async def generate(self, work: Submit) -> AsyncIterator[Answer]:
        """Replies to ``work``, `Started` first and `Finished` last. Closing the iterator earlier aborts the request.

        Raises `RequestError` when the worker will not serve it, `EngineError` when it cannot.
        """
        if self.state != "ready":
            raise EngineError(f"The model is {'loading' if self.state == 'loading' else 'restarting'}.", status=503)
        if len(self._streams) >= self._config.parallel + self._config.max_queue:
            # The worker would say the same, but only after the step that it is in.
            raise queue_full(self._config.max_queue, retry_after=RETRY_SECONDS)
        self._suspects.check(work)
        queue: asyncio.Queue[Reply | EngineError | RequestError] = asyncio.Queue()
        self._streams[work.id] = queue
        ended = False
        try:
            self._suspects.watch(work)
            self._send(structs.replace(work, arrived=time.monotonic()))
            while not ended:
                reply = await queue.get()
                ended = isinstance(reply, EngineError | RequestError | Failed | Finished)
                yield _answer(reply)
        finally:
            self._streams.pop(work.id, None)
            self._suspects.clear(work.id)
            if not ended:
                await self.abort(work.id)

    async def abort(self, id: RequestId, reason: FinishReason = FinishReason.ABORT) -> None:
        """Stop a request within one step; what it has computed is kept. `generate` still yields its `Finished`."""
        if self.state == "ready":
            self._send(Abort(id, reason))

    async def inspect(self) -> Snapshot:
        """The worker's state between two steps. Raises `EngineError` while there is no worker."""
        if self.state != "ready":
            raise EngineError("The worker is not running.", status=503)
        self._nonce = nonce = self._nonce + 1
        future: asyncio.Future[Snapshot] = asyncio.get_running_loop().create_future()
        self._inspections[nonce] = future
        self._send(Inspect(nonce))
        try:
            return await future
        finally:
            self._inspections.pop(nonce, None)


def _answer(reply: Reply | EngineError | RequestError) -> Answer:
    """The reply itself, or the error that it stands for."""
    if isinstance(reply, EngineError | RequestError):
        raise reply
    if isinstance(reply, Failed):
        raise to_error(reply)
    assert isinstance(reply, Answer)
    return reply
