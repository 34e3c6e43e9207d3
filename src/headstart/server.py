"""Puts the server together, runs it, and takes it down without cutting anybody off who can still finish."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import version

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .api.app import create_app
from .api.services import Services
from .chat.prompt import PromptBuilder
from .chat.template import ChatTemplate
from .client import Client
from .config import Config
from .engine import grammar
from .engine.vocab import Vocabulary, tokenizing_pool
from .errors import StartupError
from .machine import settle_memory
from .ops import banner
from .ops.log import EventLog
from .ops.metrics import Metrics

# Agents keep connections open between turns; closing first makes their next request fail now and then.
_KEEP_ALIVE_SECONDS = 75
# From the first byte of a request to the end of its headers.
_HEADERS_SECONDS = 30.0
# What streams get to write their last words once the worker has stopped.
_LAST_WORDS_SECONDS = 2.0


async def serve(config: Config, listener: socket.socket) -> None:
    """Serve on ``listener`` until SIGINT or SIGTERM; ``config.model`` is a file. Raises `StartupError`."""
    await _Server(config).run(listener)


class _Server:
    """One server's life: loading, ready, ending."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._log = EventLog(config.log_format, config.log_level)
        self._log.install()
        self._metrics = Metrics()
        self._client = Client(config)
        self._client.subscribe(self._metrics.handle)
        self._client.subscribe(self._log.handle)
        self._pool = tokenizing_pool()
        self._vocabulary = Vocabulary(str(config.model))
        self._template = load_template(config, self._vocabulary)
        self._http = _Http(self._http_config())
        self._stop = asyncio.Event()

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        serving = asyncio.create_task(self._http.serve(sockets=[listener]))
        loading = asyncio.create_task(self._client.start())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({serving, loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done() and not stopping.done():
                loading.result()
                settle_memory()
                self._announce()
                supervisor = self._client.supervisor
                await asyncio.wait({serving, stopping, supervisor}, return_when=asyncio.FIRST_COMPLETED)
                if supervisor.done():
                    supervisor.result()
        finally:
            stopping.cancel()
            await self._end(serving, loading)

    def _signalled(self) -> None:
        if self._stop.is_set():
            self._http.force_exit = True
        self._stop.set()

    async def _end(self, serving: asyncio.Task[None], loading: asyncio.Task[None]) -> None:
        """Accept nothing more, let streams end within the grace period, end the rest with a proper last event."""
        self._http.leave()
        if loading.done() and loading.exception() is None:
            grace = f"; open answers may finish within {self._config.shutdown_grace:g} s, Ctrl-C again ends them"
            self._log.line("info", "stopping" + grace * self._client.busy)
            await self._drained(serving)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        # Open requests now get a clean error from the client, so their streams end instead of breaking off.
        await self._client.stop()
        await serving
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _drained(self, serving: asyncio.Task[None]) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._config.shutdown_grace
        while not serving.done() and not self._http.force_exit and clock() < deadline:
            await asyncio.wait({serving}, timeout=0.1)

    def _announce(self) -> None:
        if self._client.model is None:
            return
        lines = banner.facts(self._config, self._client.model, tuple(self._template.notes))
        if self._config.log_format == "json":
            self._log.line("info", "ready", facts=[f"{name}: {text}" for name, text in lines])
        else:
            banner.show(lines, sys.stdout)

    def _http_config(self) -> uvicorn.Config:
        return uvicorn.Config(
            create_app(self._services()),
            http=_Connection,
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="off",
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=round(self._config.shutdown_grace + _LAST_WORDS_SECONDS),
        )

    def _services(self) -> Services:
        config = self._config
        builder = PromptBuilder(
            self._template,
            self._vocabulary,
            auto_prefix=config.auto_prefix,
            prefix_min_tokens=config.prefix_min_tokens,
        )
        return Services(
            client=self._client,
            builder=builder,
            tokenizer=self._vocabulary,
            config=config,
            metrics=self._metrics.render,
            pool=self._pool,
            schema_to_gbnf=grammar.schema_to_gbnf,
            json_gbnf=grammar.json_gbnf,
            check_gbnf=functools.partial(grammar.check_gbnf, self._vocabulary),
            template_source=self._template.source,
            version=version("headstart"),
            body_limit=config.max_body * 2**20,
        )


class _Connection(HttpToolsProtocol):
    """A connection that is closed, without an answer, when it says nothing or does not get to the end of its headers.

    uvicorn itself waits for ever. Bodies have their own deadlines: see `api.body`.
    """

    _headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        # Also what follows an answer: the rest of a body that was refused, or a request that never starts.
        if self._headers_due is None and (self.cycle is None or self.cycle.response_complete):
            self._headers_due = self.loop.call_later(_HEADERS_SECONDS, self.transport.close)
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._headers_came()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        super().connection_lost(exc)

    def _headers_came(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None


class _Http(uvicorn.Server):
    """uvicorn without its own signal handling, which would end the process before the worker is told, and with one
    wake-up a second instead of ten: on a machine whose cores all compute, each delays a step."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # every tenth tick, like the 0th, renews the date for the headers
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), timeout=1)

    def leave(self) -> None:
        """Accept nothing more, and end when the last answer has."""
        self.should_exit = True
        self._leaving.set()


def load_template(config: Config, vocabulary: Vocabulary) -> ChatTemplate:
    """The template of ``--chat-template-file``, else the model's own, else the built-in one. Raises `StartupError`."""
    bos, eos = vocabulary.bos_text, vocabulary.eos_text
    if config.chat_template_file is None:
        tools_source = vocabulary.template_for_tools
        return ChatTemplate.load(vocabulary.template, bos_text=bos, eos_text=eos, tools_source=tools_source)
    try:
        source = config.chat_template_file.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise StartupError(f"--chat-template-file {config.chat_template_file}: {reason}") from None
    return ChatTemplate(source, bos_text=bos, eos_text=eos)
