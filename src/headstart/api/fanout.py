"""The replies of several submits as one stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, cast

from .. import messages
from .services import Reply, Worker

Item = tuple[int, Reply]


class Fanout:
    """Runs ``works`` while the block is open; leaving it closes every generation, whatever the reason.

    Replies come as (index of the work, reply), those of one work in order. The first failure of any of them is
    raised where replies are read. With ``tick``, every so many seconds there is a None between the replies.
    """

    def __init__(self, worker: Worker, works: Sequence[messages.Submit], tick: float | None = None) -> None:
        self._worker, self._works, self._tick = worker, works, tick
        self._inbox: asyncio.Queue[Item | Exception | None] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._first: Item | Exception | None = None
        self._open = len(works)

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._follow(i, work)) for i, work in enumerate(self._works)]
        if self._tick is not None:
            self._tasks.append(asyncio.create_task(self._ticks(self._tick)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ended(self) -> bool:
        """Every work's `Finished` has been read."""
        return self._open == 0

    async def peek(self, timeout: float) -> None:
        """Wait for the first reply, at most ``timeout`` seconds. Raises the failure if that comes first."""
        try:
            async with asyncio.timeout(timeout):
                self._first = await self._inbox.get()
        except TimeoutError:
            return
        if isinstance(self._first, Exception):
            raise self._first

    async def next(self) -> list[Item | None]:
        """All replies that are there, at least one, with None for a tick. Not to be called once `ended`."""
        item, self._first = self._first, None
        if item is None:
            item = await self._inbox.get()
        items: list[Item | None] = []
        while not isinstance(item, Exception):
            items.append(item)
            if item is not None and isinstance(item[1], messages.Finished):
                self._open -= 1
            if self._inbox.empty():
                return items
            item = self._inbox.get_nowait()
        if not items:
            raise item
        self._first = item  # after what came before it
        return items

    async def _ticks(self, seconds: float) -> None:
        # A clock beside the replies costs nothing for each of them, as a timeout around each would.
        while True:
            await asyncio.sleep(seconds)
            self._inbox.put_nowait(None)

    async def _follow(self, index: int, work: messages.Submit) -> None:
        try:
            # Workers hand out generators; the protocol asks for less, so that a test's double may be anything.
            async with aclosing(cast(Any, self._worker.generate(work))) as replies:
                async for reply in replies:
                    self._inbox.put_nowait((index, reply))
                    if isinstance(reply, messages.Finished):
                        return
            raise RuntimeError("the worker's replies ended without a last one")
        except Exception as error:
            self._inbox.put_nowait(error)
