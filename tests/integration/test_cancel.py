"""Clients that leave: what they asked for stops costing anything, what was computed stays, others notice nothing."""

from __future__ import annotations

import json
import socket
import threading
from itertools import takewhile

import pytest

from tests.integration.servers import Server, until
from tests.integration.test_sharing import NOISE, cached, own, words

STEP = 64  # tokens; the server's steps are that small here, so that there is time to leave between two


@pytest.fixture(scope="module", params=["llama", "qwen35"])
def server(servers, tiny_model, request):
    return servers.up("-m", tiny_model(request.param), "-c", "32768", "-np", "2", "-ub", str(STEP), "-b", str(STEP))


@pytest.fixture(autouse=True)
def quiet(server):
    until(lambda: not server.live())


class Client:
    """A request on a connection of its own that can be dropped at any moment."""

    def __init__(self, server: Server, **body: object) -> None:
        data = json.dumps({"temperature": 0, "ignore_eos": True, "max_tokens": 2000, **body}).encode()
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {len(data)}\r\n\r\n"
        self.socket.sendall(head.encode() + data)

    def leave(self) -> None:
        self.socket.close()


def states(server: Server) -> list[str]:
    return sorted(slot["state"] for slot in server.live())


def told(answer) -> list[tuple[str, float]]:
    """Tokens and their logprobs, of a whole answer or a piece of one."""
    found = [choice["logprobs"] for choice in answer["choices"] if choice["logprobs"]]
    return [pair for each in found for pair in zip(each["tokens"], each["token_logprobs"], strict=True)]


STREAMING = pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])


@STREAMING
def test_leaving_while_decoding(server, stream):
    prompt = words(("decoding", stream), 300)
    client = Client(server, prompt=prompt, stream=stream)
    until(lambda: states(server) == ["decode"])
    client.leave()
    until(lambda: not server.live(), 3)
    assert cached(server.complete(prompt=prompt + own("again", 0))) >= 299


@STREAMING
def test_leaving_while_prefilling_keeps_what_was_computed(server, stream):
    prompt = words(("prefilling", stream), 6_000)
    client = Client(server, prompt=prompt, stream=stream)
    until(lambda: any(slot["n_tokens"] > 1000 for slot in server.live()))
    client.leave()
    until(lambda: not server.live(), 3)
    again = server.complete(prompt=prompt)
    assert 500 < cached(again) < 5_900, "nothing was kept, or it ran on to the end"
    assert again["usage"]["prompt_tokens"] == 6_000


@STREAMING
def test_leaving_while_queued(server, stream):
    running = [Client(server, prompt=words(("runs", stream, i), 50), stream=True, max_tokens=4000) for i in range(2)]
    until(lambda: states(server) == ["decode", "decode"])
    prompt = words(("queued", stream), 300)
    queued = Client(server, prompt=prompt, stream=stream)
    until(lambda: "queued" in states(server))
    queued.leave()
    until(lambda: states(server) == ["decode", "decode"], 3)
    for client in running:
        client.leave()
    assert cached(server.complete(prompt=prompt)) == 0, "it was computed, though nobody waited for it"


def test_a_leader_that_leaves_leaves_its_work_to_those_who_wait(server):
    head = words("leader leaves", 5_000)
    leader = Client(server, prompt=head + own("leaves", 0), stream=True)
    until(lambda: any(slot["n_tokens"] > 500 for slot in server.live()))
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(server.complete(prompt=head + own("leaves", 1))))
    waiting.start()
    until(lambda: "waiting" in states(server))
    leader.leave()
    waiting.join(timeout=40)
    (answer,) = answers
    assert 0 < cached(answer) < 5_000
    assert answer["usage"]["completion_tokens"] == 4


def test_others_are_not_disturbed(server):
    body = {"prompt": words("undisturbed", 400), "max_tokens": 100, "cache_prompt": False, "logprobs": 1}
    alone = told(server.complete(**body))
    with server.stream(**body) as lines:
        for i in range(4):
            client = Client(server, prompt=words(("noise", i), 700), stream=True)
            until(lambda: len(server.live()) != 1, 3)
            client.leave()
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert chunks[-1]["timings"]["predicted_n"] == 100
    beside = [pair for chunk in chunks for pair in told(chunk)]
    assert len(beside) > 60
    alone = alone[-len(beside) :]  # `stream` has read the first piece
    # Neighbours change rounding, which decides between two tokens that are as good as tied; up to there all is alike.
    equal = len(list(takewhile(lambda both: both[0][0] == both[1][0], zip(beside, alone, strict=True))))
    expected = [logprob for _, logprob in alone[: equal + 1]]
    assert [logprob for _, logprob in beside[: equal + 1]] == pytest.approx(expected, abs=5 * NOISE)  # it adds up


def test_choices_leave_together(server):
    prompt = words("choices", 300)
    client = Client(server, prompt=prompt, n=2, stream=True)
    until(lambda: states(server) == ["decode", "decode"])
    client.leave()
    until(lambda: not server.live(), 3)
    assert cached(server.complete(prompt=prompt + own("choices", 0))) >= 299


def test_a_stop_string_ends_the_work_too(server):
    body = {"prompt": words("stop", 100), "temperature": 0, "ignore_eos": True}
    text = server.complete(**body, max_tokens=30)["choices"][0]["text"]
    stopped = server.complete(**body, max_tokens=4000, stop=[text[5:8]])
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["usage"]["completion_tokens"] < 40
    assert not server.live()
