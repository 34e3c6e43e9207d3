"""The way into a server: find the model, take the port, and only then load anything heavy."""

from __future__ import annotations

import asyncio
import socket

from .config import Config
from .errors import StartupError
from .model_file import find_model


def run(config: Config) -> None:
    """Serve until SIGINT or SIGTERM. Raises `StartupError` for what keeps the server from starting."""
    path = find_model(config)
    # Before the model loads: a port in use should show at once, and /health can say "loading".
    with listen(config.host, config.port) as listener:
        here = {"model": str(path), "hf_repo": None, "port": listener.getsockname()[1]}
        from .server import serve

        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(config.model_copy(update=here), listener))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises `StartupError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        return socket.create_server(address, family=family, backlog=2048)
    except OSError as error:
        hint = "; choose another with --port" if not isinstance(error, socket.gaierror) else "; see --host"
        raise StartupError(f"cannot listen on {host} port {port}: {error.strerror or error}{hint}") from None


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
