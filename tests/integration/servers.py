"""Server processes for these tests: started on free ports, asked over HTTP, ended by their process id."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

START_SECONDS = 60
Json = dict[str, Any]


@dataclass
class Server:
    """A front process with its worker."""

    process: subprocess.Popen[bytes]
    url: str
    log_path: Path
    http: httpx.Client = field(default_factory=lambda: httpx.Client(verify=False))

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def get(self, path: str, timeout: float = 10) -> httpx.Response:
        return self.http.get(self.url + path, timeout=timeout)

    def post(self, path: str, body: Json, timeout: float = 60) -> httpx.Response:
        return self.http.post(self.url + path, json=body, timeout=timeout)

    def complete(self, **body: Any) -> Json:
        """The answer to a plain completion that has to succeed."""
        reply = self.post("/v1/completions", {"temperature": 0, "max_tokens": 4, "ignore_eos": True} | body)
        assert reply.status_code == 200, reply.text
        answer: Json = reply.json()
        usage, timings = answer["usage"], answer["timings"]
        # Holds on every path, so every test that completes something checks it.
        assert usage["prompt_tokens_details"]["cached_tokens"] + timings["prompt_n"] == usage["prompt_tokens"]
        assert timings["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"]
        return answer

    def together(self, bodies: list[Json]) -> list[Json]:
        """The answers to completions that are sent at the same time."""
        with ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(lambda body: self.complete(**body), bodies))

    @contextmanager
    def stream(self, **body: Any) -> Iterator[Iterator[str]]:
        """The lines of a streamed completion, past its first token."""
        asked = {"temperature": 0, "ignore_eos": True, "stream": True} | body
        with self.http.stream("POST", f"{self.url}/v1/completions", json=asked, timeout=60) as reply:
            lines = reply.iter_lines()
            next(line for line in lines if line.startswith("data:"))
            yield lines

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        found = re.search(rf"^{name} (\S+)$", self.get("/metrics").text, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def slots(self) -> list[Json]:
        found: list[Json] = self.get("/slots").raise_for_status().json()
        return found

    def live(self) -> list[Json]:
        """Requests that still cost something, queued ones included."""
        return [slot for slot in self.slots() if slot["id_task"] != -1]

    def worker(self) -> int | None:
        """Process id of the worker."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        # The front may have forked from any thread.
        found = " ".join(path.read_text() for path in children.parents[1].glob("*/children")).split()
        return int(found[0]) if found else None

    def wait(self, *status: int) -> list[int]:
        """Poll /health until it answers with one of ``status``; every status seen."""
        seen: list[int] = []

        def answers() -> bool:
            assert self.process.poll() is None, self.log
            try:
                seen.append(self.get("/health").status_code)
            except httpx.TransportError:
                return False
            return seen[-1] in status

        until(answers, START_SECONDS)
        return seen

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for ``condition``; fail when it takes longer."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Whether no process ``pid`` runs; a zombie does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Servers:
    """Starts servers, keeps the ones that tests share, ends them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: dict[tuple[str, ...], Server] = {}
        self._begun: list[Server] = []
        self._lock = threading.Lock()

    def start(self, *arguments: str) -> Server:
        """A server of the caller's own, perhaps not up yet."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        defaults = {"-t": "1", "-c": "4096", "--port": str(port), "--shutdown-grace": "0.2"}
        words = [word for flag in defaults.items() if flag[0] not in arguments for word in flag]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADSTART_")}
        log = self._folder / f"server-{len(self._begun)}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "headstart", "serve", *words, *arguments], stdout=sink, stderr=sink, env=clean
            )
        server = Server(process, f"http://127.0.0.1:{port}", log)
        self._begun.append(server)
        return server

    def up(self, *arguments: str) -> Server:
        """A server of the caller's own that answers."""
        server = self.start(*arguments)
        server.wait(200)
        return server

    def shared(self, *arguments: str) -> Server:
        """The server with these arguments that other tests use too."""
        with self._lock:
            if arguments not in self._shared:
                self._shared[arguments] = self.up(*arguments)
            return self._shared[arguments]

    def end(self) -> None:
        """Stop what still runs, all at once."""
        for server in self._begun:
            server.http.close()
            if server.process.poll() is None:
                server.process.terminate()
        for server in self._begun:
            try:
                server.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                server.process.kill()
                server.process.wait(timeout=5)
