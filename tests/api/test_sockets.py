"""Over real connections: what uvicorn makes of headers, hang-ups and oversized bodies."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import uvicorn

from headstart import server as server_module
from headstart.api.app import create_app
from headstart.chat.prompt import PromptBuilder
from headstart.chat.template import ChatTemplate
from tests.chat.fake import FakeTokenizer

from .doubles import ScriptedWorker, chat, run, services


@asynccontextmanager
async def serving(made, **options):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(create_app(made), log_config=None, lifespan="off", **options))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


async def post(port, body, path="/v1/chat/completions", length=None):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    lines = (f"POST {path} HTTP/1.1", "Host: t", f"Content-Length: {length or len(data)}", "", "")
    writer.write("\r\n".join(lines).encode() + data)
    await writer.drain()
    return reader, writer


async def closed(worker, count):
    while len(worker.closed) < count:
        await asyncio.sleep(0.005)


@run
async def test_hang_up_while_queued_prefilling_and_decoding():
    for at in (0, 1, 5):
        for stream in (True, False):
            worker = ScriptedWorker(before={at: asyncio.Event()})
            async with serving(services(worker, peek=0.01)) as port:
                reader, writer = await post(port, chat(stream=stream))
                if stream:
                    assert b"text/event-stream" in await reader.readuntil(b"\r\n\r\n")
                else:
                    while not worker.opened:
                        await asyncio.sleep(0.005)
                writer.close()
                await asyncio.wait_for(closed(worker, 1), 5)


@run
async def test_oversized_body_is_answered_without_being_read():
    async with serving(services(body_limit=1000)) as port:
        reader, writer = await post(port, {}, length=10**9)
        assert b" 413 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()


def test_a_connection_that_does_not_get_to_the_end_of_its_headers_is_closed(monkeypatch):
    monkeypatch.setattr(server_module, "_HEADERS_SECONDS", 0.05)

    @run
    async def check():
        options = {"http": server_module._Connection, "timeout_keep_alive": 0.1}
        async with serving(services(body_limit=1000), **options) as port:
            for start in (b"", b"POST /v1/chat", b"\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: t\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(start)
                assert await asyncio.wait_for(reader.read(), 5) == b""
                writer.close()
            # The rest of a refused body keeps no connection open either.
            reader, writer = await post(port, {}, length=10**9)
            rest = asyncio.create_task(dribble(writer))
            assert b" 413 " in await asyncio.wait_for(reader.read(), 5)
            rest.cancel()
            writer.close()

    check()


async def dribble(writer):
    while True:
        writer.write(b"x")
        await asyncio.sleep(0.01)


@run
async def test_half_a_body_is_answered_and_the_connection_closed():
    async with serving(services(body_silence=0.05), http=server_module._Connection) as port:
        reader, writer = await post(port, chat(), length=1000)
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 408 ") and b'"code":"request_timeout"' in answer
        writer.close()


@run
async def test_answers_outlast_the_deadline_for_headers():
    worker = ScriptedWorker(before={3: 0.2})
    options = {"http": server_module._Connection, "timeout_keep_alive": 0.05}
    async with serving(services(worker), **options) as port:
        reader, writer = await post(port, chat(stream=True))
        await asyncio.wait_for(reader.readuntil(b"[DONE]"), 5)
        assert await asyncio.wait_for(reader.read(), 5) == b"\n\n\r\n0\r\n\r\n"  # idle from then on
        writer.close()


@run
async def test_connection_serves_the_next_request():
    async with serving(services()) as port:
        reader, writer = await post(port, chat(stream=True))
        await reader.readuntil(b"[DONE]")
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
        assert b" 200 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()


@run
async def test_with_the_real_builder():
    tokenizer = FakeTokenizer()
    builder = PromptBuilder(ChatTemplate.load(None, bos_text="<s>", eos_text="</s>"), tokenizer)
    worker = ScriptedWorker("ok", n_ctx=2000)
    async with serving(services(worker, builder=builder, tokenizer=tokenizer)) as port:
        tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
        part = {"type": "text", "text": "hello " * 40, "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
        body = {"messages": [{"role": "system", "content": [part]}, {"role": "user", "content": "hi"}], "tools": tools}
        reader, writer = await post(port, body)
        assert b" 200 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()
    (work,) = worker.submitted
    assert any(cut.reason == "explicit" and cut.ttl == 43200 for cut in work.cuts)
    assert [cut.position for cut in work.cuts] == sorted({cut.position for cut in work.cuts})
