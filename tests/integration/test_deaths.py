"""Processes that die: the worker, the front, both on purpose and not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.integration.servers import gone, until

LONG = {"max_tokens": 4000, "ignore_eos": True, "stream": True, "temperature": 0}


@pytest.fixture
def server(servers, tiny_model):
    served = servers.shared("-m", tiny_model("llama"), "-c", "16384")
    served.wait(200)
    return served


def kill_worker(server) -> None:
    worker = server.worker()
    os.kill(worker, signal.SIGKILL)
    until(lambda: server.worker() != worker)  # the front has noticed


def error_at_the_end(lines) -> dict[str, object]:
    """The error that a stream ends with; raises when the body breaks off instead."""
    events = [line for line in lines if line.startswith("data:")]
    return json.loads(events[-1].removeprefix("data:"))["error"]


def stream_to_the_end(server, prompt: str, started: threading.Barrier) -> dict[str, object]:
    with server.stream(prompt=prompt, max_tokens=4000) as lines:
        started.wait(timeout=20)
        return error_at_the_end(lines)


def test_worker_killed_while_requests_run(server):
    began = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(stream_to_the_end, server, f"story {i}", began) for i in range(3)]
        whole = pool.submit(server.post, "/v1/completions", {"prompt": "whole", "max_tokens": 4000, "ignore_eos": True})
        began.wait(timeout=20)
        until(lambda: len(server.live()) == 4)
        kill_worker(server)
        for stream in streams:
            error = stream.result()
            assert "worker" in error["message"]
            assert error["type"] == "unavailable_error"
        assert whole.result().status_code == 503
        assert "retry-after" in whole.result().headers
    seen = server.wait(200)
    assert set(seen) <= {200, 503}
    assert server.complete(prompt="another session", max_tokens=3)["usage"]["completion_tokens"] == 3
    assert "Traceback" not in server.log


def test_health_and_requests_while_the_worker_is_away(server):
    kill_worker(server)
    server.wait(503)
    refused = server.post("/v1/completions", {"prompt": "x"})
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "unavailable_error"
    server.wait(200)


def test_a_request_that_is_there_at_two_deaths_is_refused_and_no_other(server):
    def run_into_death(**body: object) -> None:
        with server.stream(max_tokens=4000, **body) as lines:
            kill_worker(server)
            assert "worker" in str(error_at_the_end(lines)["message"])
        server.wait(200)

    # Three choices without a seed are the same request three times, and still one death.
    run_into_death(prompt="killer", n=3)
    run_into_death(prompt="killer", n=3)
    refused = server.post("/v1/completions", {"prompt": "killer", "n": 3, **LONG})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "request_kills_worker"
    assert server.complete(prompt="killers", max_tokens=3)["usage"]["completion_tokens"] == 3


def test_a_request_that_ends_well_is_no_suspect_any_more(server):
    body = {"prompt": "unlucky", "max_tokens": 4000}
    for _ in range(3):
        with server.stream(**body) as lines:
            kill_worker(server)
            assert "worker" in str(error_at_the_end(lines)["message"])
        server.wait(200)
        assert server.complete(prompt="unlucky", max_tokens=3)["usage"]["completion_tokens"] == 3


def test_a_request_that_the_worker_never_read_is_not_to_blame(server):
    body = {"prompt": "arrives at a bad time", "max_tokens": 9}
    for _ in range(3):
        until(lambda: not server.live())
        time.sleep(0.6)  # an idle worker notes within half a second that it works for nobody
        os.kill(server.worker(), signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(server.post, "/v1/completions", body)
            time.sleep(0.2)
            kill_worker(server)
            assert reply.result().status_code == 503
        server.wait(200)
    assert server.post("/v1/completions", body).status_code == 200


def test_a_model_file_that_was_replaced_ends_the_server(servers, tiny_model, tmp_path):
    path = tmp_path / "model.gguf"
    shutil.copy(tiny_model("llama"), path)
    server = servers.up("-m", str(path))
    kill_worker(server)
    server.wait(200)  # it is the same file
    shutil.copy(tiny_model("llama"), tmp_path / "other")
    os.utime(tmp_path / "other", (1, 1))
    (tmp_path / "other").rename(path)
    os.kill(server.worker(), signal.SIGKILL)
    assert server.process.wait(timeout=30) == 2
    (line,) = [line for line in server.log.splitlines() if line.startswith("error:")]
    assert str(path) in line and "start the server again" in line
    assert "Traceback" not in server.log


def test_worker_killed_while_it_loads(servers, tiny_model):
    server = servers.start("-m", tiny_model("llama"))
    until(lambda: server.worker() is not None, 30)
    os.kill(server.worker(), signal.SIGKILL)
    assert server.process.wait(timeout=20) == 2
    (line,) = server.log.splitlines()
    assert line.startswith("error: the worker ended while it was loading")


def test_worker_killed_while_it_loads_again(server):
    for _ in range(3):
        os.kill(worker := server.worker(), signal.SIGKILL)
        while server.worker() in (None, worker):  # no pause: it dies before it has been told its settings
            pass
        kill_worker(server)
        server.wait(200)
    assert server.complete(prompt="after deaths in a row", max_tokens=3)["usage"]["completion_tokens"] == 3
    assert "Traceback" not in server.log


def kill_front(server, seconds: float = 5) -> None:
    """Kills the front; asserts that the worker follows within ``seconds`` and leaves no traceback."""
    worker = server.worker()
    server.process.kill()
    assert server.process.wait(timeout=5) == -signal.SIGKILL
    until(lambda: gone(worker), seconds)
    assert "Traceback" not in server.log


def test_front_killed(servers, tiny_model):
    server = servers.up("-m", tiny_model("llama"), "-c", "16384")
    kill_front(server)
    with pytest.raises(httpx.ConnectError):
        server.get("/health")


def test_front_killed_while_a_request_streams(servers, tiny_model):
    server = servers.up("-m", tiny_model("llama"), "-c", "16384")
    with server.stream(prompt="x", max_tokens=4000) as lines:
        kill_front(server)
        with pytest.raises(httpx.TransportError):  # cut off, so that nobody takes it for whole
            list(lines)


def test_front_killed_before_the_worker_has_begun(servers, tiny_model):
    server = servers.start("-m", tiny_model("llama"))
    until(lambda: server.worker() is not None, 30)
    kill_front(server, 15)
    assert server.log == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_while_requests_stream(servers, tiny_model, number):
    server = servers.up("-m", tiny_model("llama"), "-c", "16384", "-np", "2")
    worker, began = server.worker(), threading.Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        streams = [pool.submit(stream_to_the_end, server, f"story {i}", began) for i in range(2)]
        began.wait(timeout=20)
        queued = pool.submit(server.post, "/v1/completions", {"prompt": "waits", **LONG})
        until(lambda: len(server.live()) == 3)
        for pid in (worker, server.process.pid):  # a terminal and a service manager signal all of them
            os.kill(pid, number)
        assert all(stream.result()["type"] == "unavailable_error" for stream in streams)
        assert "shutting down" in queued.result().text
    assert server.process.wait(timeout=10) == 0
    assert gone(worker)
    assert "Traceback" not in server.log and "died" not in server.log
