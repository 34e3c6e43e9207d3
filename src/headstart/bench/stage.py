"""What a scenario runs on: one model, our server on it, the yardstick beside it, and the work of the wanted size."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import aiohttp

from ..config import Config
from ..engine.settings import EngineSettings
from ..messages import Sampling
from .catalogue import Model
from .drive import LONG, Session
from .local import Server
from .target import Body, Target
from .turns import TURN, Program, Turns, Work, in_turns, stopped
from .work import Head, clean_bias, make_head

Result = TypeVar("Result")
Measured = TypeVar("Measured")
STATES = 12  # sequences with a recurrent state, beyond what runs; enough for every chain that a scenario keeps


@dataclass(frozen=True)
class Sizes:
    """How much work: tokens, repetitions."""

    head: int = 14_000
    cold: int = 9_000  # the prompt that is read while somebody decodes
    alone: int = 3_000  # the prompt that shares nothing
    decode: int = 128  # of one run
    repeat: int = 5
    pairs: int = 4
    processes: int = 3  # of decode: each has its own speed, depending on where its memory lies
    rounds: int = 50

    @property
    def cells(self) -> int:
        """Enough for four separate copies of everything, so that sharing off has its room too."""
        wanted = 5 * (self.head + 1024) + self.cold + LONG
        return -(-wanted // 1024) * 1024


QUICK = Sizes(head=1_200, cold=600, alone=400, decode=48, repeat=1, pairs=1, processes=1, rounds=6)


@dataclass
class Stage:
    """One model's phase of a run. An async context manager; everything it starts ends with it."""

    model: Model
    sizes: Sizes
    threads: int
    say: Callable[[str], None] = lambda _text: None
    sessions: dict[str, list[Session]] = field(default_factory=dict)  # for the plot, by who served them
    ours: dict[str, float] = field(default_factory=dict)  # what a peer is compared with

    async def __aenter__(self) -> Stage:
        self._main: ExitStack | None = None
        self._head: Head | None = None
        self.http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=30))
        self.common: Body = {"model": self.model.name, "ignore_eos": True, "temperature": 0.8, "seed": 1}
        try:
            await self.fresh()
            self.common["logit_bias"] = await clean_bias(self.target)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._main is not None:
            self._main.close()
        await self.http.close()

    # ---- servers

    async def fresh(self) -> None:
        """Start our server anew, with an empty cache and no head in it, and forget the yardstick's process too."""
        if self._main is not None:
            self._main.close()
        self._main = ExitStack()
        self._head = None
        self._held = 0
        self._yard: Any = None
        self._server = self._main.enter_context(Server(self._arguments(cells=None)))
        self.target = self._at(self._server)

    @contextmanager
    def served(self, *flags: str, cells: int | None = None) -> Iterator[Target]:
        """A server of ours for a while. It waits idle while another one works."""
        with Server(self._arguments(*flags, cells=cells)) as server:
            yield self._at(server)

    def last_words(self) -> str:
        """What our server said last."""
        return self._server.last_words(20)

    def _at(self, server: Server) -> Target:
        return Target(server.url, self.common, self.http)

    async def compare(self, flags: Sequence[str], cells: int, before: Body, body: Body) -> list[float]:
        """Seconds for ``body`` on a new server with each of ``flags``, all taking turns at the machine. Each has
        answered ``before`` when it begins."""
        with ExitStack() as stack:
            servers = [stack.enter_context(Server(self._arguments(flag, cells=cells))) for flag in flags]
            for server in servers:
                await self._at(server).chat(before)
            works = [(server, partial(self._at(server).chat, body)) for server in servers]
            return [turns.seconds for turns in await in_turns(works)]

    def _arguments(self, *flags: str, cells: int | None) -> list[str]:
        threads = str(self.threads)
        size = str(cells or self.sizes.cells)
        return ["-m", str(self.model.path), "-c", size, "-t", threads, "--state-slots", str(STATES), *flags]

    def server_stopped(self) -> AbstractContextManager[None]:
        """Inside, our server stands still, so that the library has the machine to itself."""
        return stopped(self._server)

    async def beside_library(
        self, work: Callable[[], Awaitable[Result]], library: Callable[[], Measured], turn: float = TURN
    ) -> tuple[Result, Turns, Measured, Turns]:
        """``work`` on our server and ``library`` on the yardstick, taking turns at the machine: what each came to, and
        its turns."""
        results: list[Result] = []
        measured: list[Measured] = []

        async def ours() -> None:
            results.append(await work())

        async def theirs() -> None:
            measured.append(await asyncio.to_thread(library))

        contestants: list[tuple[Program, Work]] = [(self._server, ours), (self.yard(), theirs)]
        mine, its = await in_turns(contestants, turn)
        return results[0], mine, measured[0], its

    # ---- the warm head, here and at the yardstick

    async def warm(self) -> Head:
        """A head that our server has computed."""
        if self._head is None:
            self._head = await make_head(self.target, "warm", self.sizes.head)
            await self.target.chat(self._head.body("Hello.", max_tokens=1))
        return self._head

    def warmed(self, head: Head) -> None:
        """Our server has computed ``head``: scenarios that want a warm one may take it."""
        self._head = head

    def yard(self, head: Head | None = None) -> Any:
        """The yardstick, with the prefix of ``head`` held, where one is named."""
        from .yardstick import Yardstick

        if self._yard is None:
            assert self._main is not None
            self._yard = self._main.enter_context(Yardstick(self._engine(), self._sampling()))
        if head is not None and self._held != head.tokens:
            self.cold(head.tokens + 16, head.tokens)
        return self._yard

    def cold(self, tokens: int, hold: int) -> float:
        """The library's cold prefill, seconds; its first ``hold`` tokens stay at the yardstick."""
        seconds = float(self.yard().cold(tokens, hold))
        self._held = hold
        return seconds

    def _engine(self) -> EngineSettings:
        return EngineSettings(
            model=str(self.model.path),
            n_ctx=self.sizes.cells,
            state_slots=STATES,
            n_threads=self.threads,
            n_threads_batch=self.threads,
        )

    def _sampling(self) -> Sampling:
        bias = tuple((int(token), value) for token, value in self.common["logit_bias"].items())
        return Sampling(temperature=0.8, seed=1, ignore_eos=True, logit_bias=bias)

    @property
    def step_ms(self) -> float:
        """Our server's target for one step while somebody decodes."""
        return float(Config.model_fields["step_ms"].default)
