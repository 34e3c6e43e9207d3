"""Streams show life, and nothing runs on for a client that has left."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headstart.api.app import create_app
from headstart.api.body import SMALL
from headstart.errors import EngineError

from .doubles import ScriptedWorker, Wire, chat, events, http, run, services

PATHS = [("/v1/chat/completions", chat()), ("/v1/completions", {"prompt": "x"})]


@run
async def test_headers_and_keepalives_come_before_the_worker_says_anything():
    gate = asyncio.Event()
    worker = ScriptedWorker(before={0: gate})
    app = create_app(services(worker, keepalive=0.02, peek=0.02))
    wire = Wire(app, "/v1/chat/completions", chat(stream=True))
    await wire.until(lambda w: w.text.count(": keepalive\n\n") >= 3)
    assert wire.status == 200 and events(wire.text)[0]["choices"][0]["delta"]["role"] == "assistant"
    await asyncio.sleep(0.1)
    assert wire.text.count(": keepalive") <= 20
    gate.set()
    await wire.until(lambda w: "[DONE]" in w.text)
    await wire.task
    assert wire.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert worker.closed == worker.opened


@run
async def test_the_opening_does_not_wait_for_text_once_the_prompt_is_being_read():
    gate = asyncio.Event()
    wire = Wire(create_app(services(ScriptedWorker(before={1: gate}))), "/v1/chat/completions", chat(stream=True))
    await wire.until(lambda w: '"role":"assistant"' in w.text)
    assert ": keepalive" not in wire.text
    gate.set()
    await wire.task


@run
async def test_replies_that_show_nothing_do_not_silence_keepalives():
    # Prefill reports arrive all the time, but the client didn't ask for them.
    worker = ScriptedWorker(progress=30, before=dict.fromkeys(range(1, 31), 0.005))
    app = create_app(services(worker, keepalive=0.03))
    wire = Wire(app, "/v1/chat/completions", chat(stream=True))
    await wire.task
    assert wire.text.count(": keepalive") >= 2


@run
async def test_no_keepalives_while_tokens_flow():
    worker = ScriptedWorker("x" * 20, before=dict.fromkeys(range(1, 22), 0.03))
    async with http(services(worker, keepalive=0.5)) as client:
        assert ": keepalive" not in (await client.post("/v1/chat/completions", json=chat(stream=True))).text


@pytest.mark.parametrize("path, body", PATHS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_client_that_leaves_ends_its_work_at_once(path, body, stream, at):
    @run
    async def check():
        gate = asyncio.Event()
        worker = ScriptedWorker(before={at: gate})
        wire = Wire(create_app(services(worker)), path, {**body, "stream": stream, "n": 2})
        while len(worker.opened) < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert not wire.task.done() and not worker.closed
        wire.hang_up()
        await asyncio.wait_for(wire.task, 1)
        assert sorted(worker.closed) == sorted(worker.opened)
        assert stream or not wire.sent

    check()


@pytest.mark.parametrize(
    "path, body",
    [*PATHS, ("/apply-template", chat()), ("/tokenize", {"content": "x"}), ("/detokenize", {"tokens": [1]})],
)
@pytest.mark.parametrize("size", [0, SMALL])
def test_work_that_waits_for_a_thread_is_dropped_with_its_client(path, body, size):
    @run
    async def check():
        gate, ran = threading.Event(), []

        class Counting(ThreadPoolExecutor):
            def submit(self, work, *args):
                # With arguments it's the test's own, or an answer to remember.
                return super().submit(work, *args) if args else super().submit(lambda: (ran.append(path), work())[1])

        made = services(pool=Counting(1), parser=Counting(1))
        busy = [pool.submit(gate.wait, 10) for pool in (made.pool, made.parser)]
        app = create_app(made)
        wires = [Wire(app, path, {**body, "user": "x" * size}) for _ in range(3)]
        await asyncio.sleep(0.02)
        assert not any(wire.task.done() for wire in wires)
        for wire in wires:
            wire.hang_up()
        await asyncio.gather(*[wire.task for wire in wires])
        gate.set()
        await asyncio.gather(*map(asyncio.wrap_future, busy))
        async with http(made) as client:
            assert (await client.post(path, json=body)).status_code == 200
        assert ran == [path]

    check()


@run
async def test_a_cancelled_server_task_closes_its_work():
    worker = ScriptedWorker(before={2: asyncio.Event()})
    wire = Wire(create_app(services(worker)), "/v1/chat/completions", chat(stream=True))
    await wire.until(lambda w: w.status == 200)
    wire.task.cancel()
    await asyncio.gather(wire.task, return_exceptions=True)
    assert worker.closed == worker.opened != []


@run
async def test_a_connection_that_breaks_while_sending_closes_its_work():
    worker = ScriptedWorker()
    wire = Wire(create_app(services(worker)), "/v1/chat/completions", chat(stream=True), breaks=True)
    await wire.task
    assert worker.closed == worker.opened != []
    assert [m["type"] for m in wire.sent] == ["http.response.start"]


@pytest.mark.parametrize("path, body", PATHS)
def test_a_failure_after_the_start_is_the_last_event(path, body):
    @run
    async def check():
        worker = ScriptedWorker(before={4: EngineError("the worker died", status=503)})
        async with http(services(worker)) as client:
            streamed = await client.post(path, json={**body, "stream": True})
            whole = await client.post(path, json=body)
        *chunks, last = events(streamed.text)
        assert streamed.status_code == 200 and "[DONE]" not in streamed.text
        assert last == {
            "error": {"message": "the worker died", "type": "unavailable_error", "param": None, "code": None}
        }
        assert any(chunk["choices"] for chunk in chunks)
        assert whole.status_code == 503
        assert worker.closed == worker.opened

    check()


class AtOnce(ScriptedWorker):
    """Its replies are all there before the first is read, ``failure`` after them."""

    failure = None

    async def generate(self, work):
        self.submitted.append(work)
        *replies, finished = self.replies(work)
        for reply in replies:
            yield reply
        if self.failure is not None:
            raise self.failure
        yield finished


@pytest.mark.parametrize("path, body", PATHS)
def test_tokens_that_come_together_go_out_as_one_piece(path, body):
    @run
    async def check():
        async with http(services(AtOnce())) as client:
            text = (await client.post(path, json={**body, "stream": True, "n": 2, "logprobs": True})).text
        pieces = [c for e in events(text) if e != "[DONE]" for c in e["choices"] if _text(c)]
        assert sorted((c["index"], _text(c)) for c in pieces) == [(0, "Hello, world."), (1, "Hello, world.")]
        assert all(_tokens(c["logprobs"]) == len("Hello, world.") for c in pieces)
        assert text.count('"timings"') == 1

    check()


@pytest.mark.parametrize("path, body", PATHS)
def test_progress_that_comes_together_with_text_goes_first(path, body):
    @run
    async def check():
        asked = {**body, "stream": True, "return_progress": True}
        async with http(services(AtOnce(progress=3))) as client:
            chunks = events((await client.post(path, json=asked)).text)
        told = [i for i, e in enumerate(chunks) if "prompt_progress" in e]
        said = [i for i, e in enumerate(chunks) if e != "[DONE]" and any(_text(c) for c in e["choices"])]
        assert len(told) == len(said) == 1
        assert told < said

    check()


@pytest.mark.parametrize("path, body", PATHS)
def test_text_that_comes_together_with_a_failure_is_not_lost(path, body):
    @run
    async def check():
        worker = AtOnce()
        worker.failure = EngineError("the worker died", status=503)
        async with http(services(worker)) as client:
            *chunks, last = events((await client.post(path, json={**body, "stream": True})).text)
        assert "".join(_text(c) for e in chunks for c in e["choices"]) == "Hello, world."
        assert last["error"]["message"] == "the worker died"

    check()


def _text(choice):
    return choice["delta"].get("content", "") if "delta" in choice else choice["text"]


def _tokens(logprobs):
    return len(logprobs["content"] if "content" in logprobs else logprobs["tokens"])


@run
async def test_one_choice_that_fails_ends_the_others():
    class Half(ScriptedWorker):
        async def generate(self, work):
            inner = super().generate(work)
            try:
                async for reply in inner:
                    if work.id.endswith("/1"):
                        raise EngineError("gone")
                    yield reply
                    await asyncio.sleep(0.01)
            finally:
                await inner.aclose()

    worker = Half("long " * 50)
    async with http(services(worker)) as client:
        answer = await client.post("/v1/chat/completions", json=chat(n=3))
    assert answer.status_code == 500
    assert sorted(worker.closed) == sorted(worker.opened)
