"""A server of ours as a child process on loopback, for as long as a ``with`` block lasts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO

import httpx

from ..config import ENV_PREFIX
from ..errors import StartupError

START_SECONDS = 120.0
TRIES = 3  # a free port may be taken by someone else before the server gets there
_FOREIGN_LLAMA = ("LLAMA_ARG_",)


class Server:
    """``headstart serve ARGUMENTS`` on a free port. Raises `StartupError` with the server's own line.

    It stays in our process group, so that Ctrl-C and a closed terminal reach it even if we are killed.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = [*arguments, "--host", "127.0.0.1", "--shutdown-grace", "0", "--log-level", "warning"]
        self.url = ""

    def __enter__(self) -> Server:
        for _ in range(TRIES - 1):
            try:
                self._start()
                return self
            except StartupError as error:
                if "cannot listen" not in str(error):
                    raise
        self._start()
        return self

    def _start(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `stop`
        # What a person has set for his own server is not for this one.
        clean = {k: v for k, v in os.environ.items() if not k.startswith((ENV_PREFIX, *_FOREIGN_LLAMA))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headstart", "serve", "--port", str(port), *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._words,
            stderr=subprocess.STDOUT,
            env=clean,
        )
        try:
            self._until_ready()
        except BaseException:
            self.stop()
            raise

    def _until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        with httpx.Client(trust_env=False, timeout=5) as http:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    raise StartupError(f"the server ended while starting: {self.last_words()}")
                try:
                    if http.get(f"{self.url}/health").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                time.sleep(0.05)
        raise StartupError(f"the server was not ready after {START_SECONDS:.0f} s: {self.last_words()}")

    @property
    def pid(self) -> int:
        """The front's process; its worker is a child of it."""
        return self._process.pid

    def last_words(self, lines: int = 1) -> str:
        """The last lines that the server printed."""
        self._words.seek(0)
        said = self._words.read().decode(errors="replace").strip().splitlines()[-lines:]
        return "\n".join(said).removeprefix("error: ") or "it said nothing"

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process; it takes its worker along."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._words.close()


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
