"""The official client understands every answer."""

import json
from contextlib import asynccontextmanager

import openai
import pytest

from headstart.api.app import create_app
from headstart.errors import RequestError

from .doubles import ScriptedWorker, httpx, run, services

MESSAGES = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}


@asynccontextmanager
async def sdk(worker, **changes):
    transport = httpx.ASGITransport(app=create_app(services(worker, **changes)))
    async with (
        httpx.AsyncClient(transport=transport) as http,
        openai.AsyncOpenAI(api_key="k", base_url="http://test/v1", http_client=http, max_retries=0) as client,
    ):
        yield client


@run
async def test_chat_with_logprobs_whole_and_streamed():
    async with sdk(ScriptedWorker("hé!")) as client:
        asked = {"model": "tiny", "messages": MESSAGES, "logprobs": True, "top_logprobs": 2}
        whole = await client.chat.completions.create(**asked)
        stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
    entries = whole.choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == "hé!"
    assert [(t.token, t.logprob) for t in entries[0].top_logprobs] == [("h", -0.5), ("!", -1.5)]
    assert whole.usage.prompt_tokens_details.cached_tokens == 3
    assert whole.usage.prompt_tokens_details.cache_write_tokens == whole.usage.prompt_tokens - 3
    streamed = [e for c in chunks for x in c.choices if x.logprobs for e in x.logprobs.content]
    assert streamed == entries
    assert "".join(x.delta.content or "" for c in chunks for x in c.choices) == "hé!"
    assert chunks[-1].usage == whole.usage


@run
async def test_streamed_tool_call():
    text = '<tool_call>\n{"name": "ls", "arguments": {"path": "/tmp"}}\n</tool_call>'
    async with (
        sdk(ScriptedWorker(text)) as client,
        client.chat.completions.stream(model="tiny", messages=MESSAGES, tools=[TOOL]) as stream,
    ):
        final = await stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls
    assert call.function.name == "ls" and json.loads(call.function.arguments) == {"path": "/tmp"}
    assert final.choices[0].finish_reason == "tool_calls"


@run
async def test_completions_and_models():
    async with sdk(ScriptedWorker("ab")) as client:
        made = await client.completions.create(model="tiny", prompt="x", logprobs=1)
        assert made.choices[0].text == "ab" and made.choices[0].logprobs.tokens == ["a", "b"]
        stream = await client.completions.create(model="tiny", prompt="x", stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == "ab"
        assert [m.id async for m in client.models.list()] == ["tiny"]
        assert (await client.models.retrieve("tiny")).context_length == 1000


@run
async def test_errors_are_the_sdk_s_own():
    async with sdk(ScriptedWorker(n_ctx=20)) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x" * 100}])
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "messages"
    full = RequestError("queue full", status=429, kind="rate_limit_error", retry_after=3)
    async with sdk(ScriptedWorker(before={0: full})) as client:
        with pytest.raises(openai.RateLimitError) as limited:
            await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
    assert limited.value.response.headers["retry-after"] == "3"
    async with sdk(ScriptedWorker(before={3: RuntimeError("x")})) as client:
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass


@run
async def test_keepalive_comments_are_skipped():
    worker = ScriptedWorker("ok", before={0: 0.08})
    async with sdk(worker, keepalive=0.02, peek=0.01) as client:
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == "ok"
