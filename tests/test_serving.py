"""A server as a process, from its first line to its last: loading, serving, ending without cutting anybody off."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

START_SECONDS = 60


@dataclass
class Served:
    process: subprocess.Popen[str]
    url: str
    errors: Path

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


Start = Callable[..., Served]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers on the demo model and free ports; ends what a test leaves running."""
    begun: list[subprocess.Popen[str]] = []
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADSTART_")}

    def begin(*arguments: str) -> Served:
        port = free_port()
        errors = tmp_path / f"stderr-{len(begun)}"
        command = [sys.executable, "-m", "headstart", "serve", "--port", str(port), "-t", "1", "-c", "2048", *arguments]
        with errors.open("w") as stderr:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=clean)
        begun.append(process)
        return Served(process, f"http://127.0.0.1:{port}", errors)

    yield begin
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=10)
        assert process.stdout is not None
        process.stdout.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def until_up(served: Served, status: set[int]) -> list[int]:
    """Poll /health until it answers with one of ``status``; every status seen."""
    seen: list[int] = []
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert served.process.poll() is None, served.errors.read_text()
        try:
            seen.append(httpx.get(f"{served.url}/health", timeout=5).status_code)
        except httpx.TransportError:
            pass
        if seen and seen[-1] in status:
            return seen
        time.sleep(0.02)
    raise AssertionError(f"not up after {START_SECONDS} s, saw {seen}")


def story(max_tokens: int) -> dict[str, object]:
    message = {"role": "user", "content": "Tell me a long story about a lighthouse."}
    return {"messages": [message], "stream": True, "max_tokens": max_tokens, "ignore_eos": True}


def interrupted_story(served: Served, number: signal.Signals, max_tokens: int) -> list[str]:
    """Stream a story, send the server a signal after the first piece; the lines that still come. Raises if the body
    breaks off before its end."""
    with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=story(max_tokens), timeout=60) as reply:
        lines = reply.iter_lines()
        next(line for line in lines if line.startswith("data:"))
        served.process.send_signal(number)
        return list(lines)


def test_from_loading_to_the_end(start: Start) -> None:
    served = start("--log-format", "pretty")
    assert set(until_up(served, {200})) <= {200, 503}
    body = {"prompt": "Once upon a time", "max_tokens": 4, "ignore_eos": True}
    answer = httpx.post(f"{served.url}/v1/completions", json=body, timeout=60).json()
    assert answer["usage"]["completion_tokens"] == 4
    page = httpx.get(f"{served.url}/metrics", timeout=5).text
    assert "\nllamacpp:tokens_predicted_total 4.0\n" in page
    assert '\nheadstart_requests_total{finish="length"} 1.0\n' in page
    assert "\nheadstart_cells 2048.0\n" in page  # the worker reports its gauges
    assert "\nllamacpp:kv_cache_tokens 0.0\n" not in page
    assert served.stop() == 0
    assert served.process.stdout is not None
    banner = served.process.stdout.read()
    for name in ("model", "memory", "context", "sharing", "requests", "address", "agents"):
        assert re.search(rf"^{name} ", banner, re.MULTILINE), banner
    assert f"{served.url}/v1" in banner
    log = served.errors.read_text()
    assert "first token" in log
    assert "stopping" in log
    assert "Traceback" not in log


def test_an_open_stream_may_finish_within_the_grace_period(start: Start) -> None:
    served = start("--shutdown-grace", "30")
    until_up(served, {200})
    rest = interrupted_story(served, signal.SIGTERM, 48)
    assert rest[-2:] == ["data: [DONE]", ""]
    assert any('"finish_reason":"length"' in line for line in rest)
    assert served.process.wait(timeout=30) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{served.url}/health", timeout=5)


def test_after_the_grace_period_a_stream_is_ended_not_cut(start: Start) -> None:
    served = start("--shutdown-grace", "0.3")
    until_up(served, {200})
    rest = interrupted_story(served, signal.SIGINT, 1900)
    assert '"finish_reason":"length"' not in "".join(rest)
    assert any('"error"' in line for line in rest), rest[-5:]
    assert served.process.wait(timeout=30) == 0
    assert "Traceback" not in served.errors.read_text()


def test_a_signal_while_loading_ends_it(start: Start) -> None:
    served = start()
    until_up(served, {200, 503})
    assert served.stop() == 0
    assert "Traceback" not in served.errors.read_text()
