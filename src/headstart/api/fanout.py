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
    raised where replies are read.
    """

    def __init__(self, worker: Worker, works: Sequence[messages.Submit]) -> None:
        self._worker, self._works = worker, works
        self._inbox: asyncio.Queue[Item | Exception] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._first: Item | Exception | None = None
        self._open = len(works)

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._follow(i, work)) for i, work in enumerate(self._works)]
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

    async def next(self, timeout: float | None = None) -> Item | None:
        """The next reply; None when ``timeout`` seconds brought none. Not to be called once `ended`."""
        item = await self._get(timeout)
        if isinstance(item, Exception):
            raise item
        if item is not None and isinstance(item[1], messages.Finished):
            self._open -= 1
        return item

    async def _get(self, timeout: float | None) -> Item | Exception | None:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if not self._inbox.empty():
            return self._inbox.get_nowait()
        try:
            async with asyncio.timeout(timeout):
                return await self._inbox.get()
        except TimeoutError:
            return None

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
