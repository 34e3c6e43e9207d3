"""More than fits: many requests, slow readers, connections that say nothing or half of it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.integration.servers import until
from tests.integration.test_sharing import words


@pytest.fixture(scope="module")
def server(servers, tiny_model):
    return servers.up("-m", tiny_model("llama"), "-c", "8192", "-np", "2", "--max-queue", "50")


@pytest.fixture(autouse=True)
def unharmed(server):
    worker = server.worker()
    yield
    until(lambda: not server.live())
    assert server.worker() == worker
    began = time.monotonic()
    server.complete(prompt="still there")
    assert time.monotonic() - began < 3


def request(body: dict[str, object], length: int | None = None) -> bytes:
    data = json.dumps(body).encode()
    size = len(data) if length is None else length
    return f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {size}\r\n\r\n".encode() + data


def connect(server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def open_files(server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def test_two_hundred_requests_at_once(server):
    async def flood() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(timeout=60, limits=limits) as client:
            bodies = [
                {"prompt": words(i, 60), "max_tokens": 20, "temperature": 0, "ignore_eos": True} for i in range(200)
            ]
            return await asyncio.gather(*[client.post(f"{server.url}/v1/completions", json=body) for body in bodies])

    began = time.monotonic()
    replies = asyncio.run(flood())
    assert time.monotonic() - began < 30
    full = [reply for reply in replies if reply.status_code == 429]
    served = [reply.json() for reply in replies if reply.status_code == 200]
    assert len(full) + len(served) == 200
    assert len(served) >= 50
    assert full, "the queue has no end"
    for reply in full:
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.json()["error"]["code"] == "queue_full"
    assert all(answer["usage"]["completion_tokens"] == 20 for answer in served)
    # Who was served got the answer to his own prompt.
    first = served[0]["choices"][0]["text"]
    assert sum(answer["choices"][0]["text"] == first for answer in served) < 3


def test_a_client_that_reads_slowly(server):
    with connect(server) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(request({"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "stream": True, "logprobs": 5}))
        began = time.monotonic()
        server.complete(prompt="quick", max_tokens=20)
        assert time.monotonic() - began < 3
        # The tokens wait in the front; the worker is not held up and gets free.
        until(lambda: not server.live(), 20)


def test_clients_that_say_nothing(server):
    idle = [connect(server) for _ in range(100)]
    try:
        assert server.complete(prompt="others work")["usage"]["completion_tokens"] == 4
    finally:
        for each in idle:
            each.close()


def test_half_a_body(server):
    halves = [connect(server) for _ in range(50)]
    for half in halves:
        half.sendall(request({"prompt": "x"}, length=1000))
    assert server.complete(prompt="others work")["usage"]["completion_tokens"] == 4
    for half in halves:
        half.close()
    assert not server.live()


def test_a_hundred_that_connect_and_leave(server):
    files, tokens = open_files(server), server.metric("llamacpp:tokens_predicted_total")
    for i in range(100):
        with connect(server) as each:
            if i % 2:
                each.sendall(request({"prompt": words(("leaves", i), 200), "max_tokens": 500, "stream": True}))
    until(lambda: not server.live())
    until(lambda: open_files(server) <= files + 5)
    tokens = server.metric("llamacpp:tokens_predicted_total") - tokens
    assert tokens < 50 * 500 / 10, "the work went on for nobody"


def test_requests_that_are_no_http(server):
    for nonsense in (b"\x00" * 5000, b"GET\r\n", b"POST / HTTP/9.9\r\n", b"GET /health HTTP/1.1\r\n: \r\n"):
        with connect(server) as each:
            try:
                each.sendall(nonsense + b"\r\n")
                each.settimeout(5)
                assert each.recv(100)[:12] in (b"", b"HTTP/1.1 400")
            except ConnectionError:
                pass


def test_bodies_in_tiny_pieces(server):
    data = request({"prompt": "piece by piece", "max_tokens": 2})
    with connect(server) as each:
        for byte in data:
            each.sendall(bytes([byte]))
        assert each.recv(15) == b"HTTP/1.1 200 OK"


SMALL_THINGS = {
    "messages": ("/v1/chat/completions", '{"messages":[' + '{"role":"user"},' * 2_000_000 + "1]}"),
    "tokens": ("/v1/completions", '{"prompt":[' + "5," * 12_000_000 + "5]}"),
    "texts": ("/tokenize", '{"content":[' + '"",' * 4_000_000 + '""]}'),
    "escapes": ("/v1/completions", '{"prompt":"' + r"\\" * 10_000_000 + '"}'),
}


@pytest.mark.parametrize("kind", SMALL_THINGS)
def test_a_body_of_millions_of_small_things_holds_nobody_up(server, kind):
    path, body = SMALL_THINGS[kind]
    replies: list[httpx.Response] = []
    thread = threading.Thread(
        target=lambda: replies.append(httpx.post(server.url + path, content=body.encode(), timeout=60))
    )
    thread.start()
    longest = 0.0
    while thread.is_alive():
        began = time.monotonic()
        server.get("/health")
        longest = max(longest, time.monotonic() - began)
    assert longest < 1.5, "with nobody else on the machine it is less than half a second"
    assert replies[0].status_code in (400, 413)


def test_duplicates_in_flight_cost_one_prompt(server):
    body = {"prompt": words("duplicate", 3000), "max_tokens": 2, "temperature": 0}
    replies: list[httpx.Response] = []
    threads = [threading.Thread(target=lambda: replies.append(server.post("/v1/completions", body))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sum(reply.json()["timings"]["prompt_n"] for reply in replies) < 3000 + 6 * 70
    assert len({reply.json()["choices"][0]["text"] for reply in replies}) == 1
