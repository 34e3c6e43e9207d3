"""The way into a server: find the model, take the port, and only then load anything heavy."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket

from .config import Config
from .errors import StartupError
from .model_file import find_model

FILES, LEAST_FILES = 65_536, 64  # that a server wants, and that one with a client or two takes
_HOSTS = "--host 127.0.0.1 serves this machine alone, --host 0.0.0.0 every network that it is on"
_REASONS = {
    errno.EADDRINUSE: "something else does; choose another with --port",
    errno.EACCES: "not permitted; choose one from 1024 on with --port",
    errno.EADDRNOTAVAIL: f"this machine has no such address; {_HOSTS}",
}


def run(config: Config) -> None:
    """Serve until SIGINT or SIGTERM. Raises `StartupError` for what keeps the server from starting."""
    _allow_connections()
    path = find_model(config)
    # Before the model loads: a port in use should show at once, and /health can say "loading".
    with listen(config.host, config.port) as listener:
        here = {"model": str(path), "hf_repo": None, "port": listener.getsockname()[1]}
        from .server import serve

        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(config.model_copy(update=here), listener))


def _allow_connections() -> None:
    """Each connection takes a file: as many as the system allows, where a shell's usual limit is 1,024."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
    if wanted < LEAST_FILES:
        raise StartupError(
            f"the system allows {wanted} open files, {LEAST_FILES} are needed; raise the limit (ulimit -n)"
        )
    if files < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS has a lower limit than it tells
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises `StartupError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):  # UnicodeError: longer than a name can be
        raise StartupError(f"{host!r} is no address and no known host name; {_HOSTS}") from None
    family, *_, address = found[0]
    try:
        return socket.create_server(address, family=family, backlog=2048)
    except OSError as error:
        code = error.errno or 0
        reason = _REASONS.get(code) or os.strerror(code)  # the error's own text repeats the address
        raise StartupError(f"cannot listen on {host} port {port}: {reason}") from None


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
