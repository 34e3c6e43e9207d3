"""Whatever a client sends gets a clear answer before it costs anything."""

import pytest

from headstart.errors import EngineError, RequestError

from .doubles import ScriptedWorker, chat, http, run, services

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "hi"}
TABLE = [
    (CHAT, {}, "messages"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": "hi"}, "messages"),
    (CHAT, {"messages": ["hi"]}, "messages[0]"),
    (CHAT, {"messages": [{"content": "hi"}]}, "messages[0].role"),
    (CHAT, {"messages": [{"role": "wizard", "content": "hi"}]}, "messages[0].role"),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
    (CHAT, {"messages": [{"role": "user", "content": "refuse"}]}, "messages"),
    (CHAT, chat(temperature=-1), "temperature"),
    (CHAT, chat(temperature="warm"), "temperature"),
    (CHAT, chat(temperature=[]), "temperature"),
    (CHAT, chat(top_p=1.5), "top_p"),
    (CHAT, chat(min_p=-0.1), "min_p"),
    (CHAT, chat(top_k=2**40), "top_k"),
    (CHAT, chat(repeat_penalty=0), "repeat_penalty"),
    (CHAT, chat(mirostat=3), "mirostat"),
    (CHAT, chat(dry_sequence_breakers=[]), "dry_sequence_breakers"),
    (CHAT, chat(n=0), "n"),
    (CHAT, chat(n=1_000_000), "n"),
    (CHAT, chat(n=True), "n"),
    (CHAT, chat(n=1.5), "n"),
    (CHAT, chat(max_tokens=-5), "max_tokens"),
    (CHAT, chat(max_completion_tokens="many"), "max_completion_tokens"),
    (CHAT, chat(seed=2**70), "seed"),
    (CHAT, chat(stop=[1]), "stop[0]"),
    (CHAT, chat(stop={"a": 1}), "stop"),
    (CHAT, chat(stop=["x"] * 1000), "stop"),
    (CHAT, chat(logit_bias={"99999": 1}), "logit_bias"),
    (CHAT, chat(logit_bias={"-1": 1}), "logit_bias"),
    (CHAT, chat(logit_bias=[[1, "x"]]), "logit_bias"),
    (CHAT, chat(logit_bias=7), "logit_bias"),
    (CHAT, chat(top_logprobs=21), "top_logprobs"),
    (CHAT, chat(stream="yes"), "stream"),
    (CHAT, chat(tools={}), "tools"),
    (CHAT, chat(tools=[{"type": "function"}]), "tools[0]"),
    (CHAT, chat(tools=[{"type": "function", "function": {"name": ""}}]), "tools[0].function.name"),
    (
        CHAT,
        chat(tools=[{"type": "function", "function": {"name": "a", "parameters": 1}}]),
        "tools[0].function.parameters",
    ),
    (CHAT, chat(tool_choice="perhaps"), "tool_choice"),
    (CHAT, chat(tool_choice="required"), "tool_choice"),
    (CHAT, chat(tool_choice={"type": "function", "function": {"name": "x"}}), "tool_choice"),
    (CHAT, chat(response_format={"type": "poem"}), "response_format.type"),
    (CHAT, chat(response_format={"type": "json_schema"}), "response_format.json_schema"),
    (CHAT, chat(grammar="bad"), "grammar"),
    (CHAT, chat(grammar="root", json_schema={}), "grammar"),
    (CHAT, chat(grammar="x" * 600_000), "grammar"),
    (CHAT, chat(prompt_cache_options={"mode": "sometimes"}), "prompt_cache_options.mode"),
    (CHAT, chat(prompt_cache_options={"ttl": "a while"}), "prompt_cache_options.ttl"),
    (TEXT, {}, "prompt"),
    (TEXT, {"prompt": []}, "prompt"),
    (TEXT, {"prompt": 5}, "prompt"),
    (TEXT, {"prompt": [[]]}, "prompt"),
    (TEXT, {"prompt": [1, "a"]}, "prompt"),
    (TEXT, {"prompt": [1, 258]}, "prompt"),
    (TEXT, {"prompt": [-1]}, "prompt"),
    (TEXT, {"prompt": ["a"] * 129}, "prompt"),
    (TEXT, {"prompt": ["a"] * 100, "n": 2}, "n"),
    (TEXT, {"prompt": "a", "echo": True, "logprobs": 1}, "echo"),
    (TEXT, {"prompt": "a", "best_of": 4}, "best_of"),
    (TEXT, {"prompt": "a", "suffix": "b"}, "suffix"),
    ("/tokenize", {"content": {"a": 1}}, "content"),
    ("/tokenize", {"content": [999]}, "content"),
    ("/detokenize", {"tokens": [258]}, "tokens"),
    ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
    ("/apply-template", {"messages": []}, "messages"),
]


@run
async def test_table_of_faults():
    worker = ScriptedWorker()
    async with http(services(worker)) as client:
        for path, body, param in TABLE:
            answer = await client.post(path, json=body)
            assert answer.status_code == 400, (body, answer.text)
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert (error["param"], error["type"]) == (param, "invalid_request_error"), error
    assert worker.submitted == []


BROKEN = [
    b"", b"{", b"[]", b"null", b'"x"', b'{"messages": NaN}', b"\xff\xfe", b"[" * 100_000, b'{"a":' + b"9" * 6000 + b"}",
    rb'{"messages":[{"role":"user","content":"\ud800"}]}', rb'{"messages":[{"role":"user","content":"\udc00 x"}]}',
    rb'{"\ud800": 1, "messages":[{"role":"user","content":"x"}]}',
    b'{"messages":[{"role":"user","content":"x"}],"temperature":1e999}',
]  # fmt: skip


@run
async def test_what_is_no_json():
    worker = ScriptedWorker()
    async with http(services(worker)) as client:
        for body in BROKEN:
            answer = await client.post(CHAT, content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 400 and answer.json()["error"]["message"], body[:60]
    assert worker.submitted == []


@run
async def test_body_over_the_limit_is_refused_before_it_is_read():
    read = 0

    async def endless():
        nonlocal read
        while True:
            read += 1
            yield b" " * 1000

    async with http(services(body_limit=5000)) as client:
        announced = await client.post(CHAT, content=b" " * 5001)
        streamed = await client.post(CHAT, content=endless())
    for answer in (announced, streamed):
        assert answer.status_code == 413 and answer.json()["error"]["code"] == "request_too_large"
    assert read < 10


@run
async def test_prompts_longer_than_the_context_name_both_numbers():
    worker = ScriptedWorker(n_ctx=50)
    async with http(services(worker)) as client:
        exact = await client.post(CHAT, json={"messages": [{"role": "user", "content": "x" * 44}]})
        chatty = await client.post(CHAT, json={"messages": [{"role": "user", "content": "x" * 43}]})
        endless = await client.post(TEXT, json={"prompt": "y" * 30_000})
        ids = await client.post(TEXT, json={"prompt": [1] * 51})
    assert chatty.status_code != 200 or exact.status_code == 400
    for answer, tokens, param in ((exact, 51, "messages"), (endless, 234, "prompt"), (ids, 51, "prompt")):
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["code"] == "context_length_exceeded" and error["param"] == param
        assert "maximum context length is 50 tokens" in error["message"] and f"{tokens} tokens" in error["message"]


@run
async def test_unknown_fields_are_ignored_everywhere():
    part = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "x": 1}, "x": 1}
    call = {"id": "1", "type": "function", "x": 1, "function": {"name": "f", "arguments": "{}", "x": 1}}
    tool = {"type": "function", "cache_control": {}, "function": {"name": "f", "strict": False, "x": {}}}
    body = {
        "messages": [
            {"role": "developer", "content": None, "x": 1},
            {"role": "user", "content": [part, "bare"]},
            {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "hm"},
            {"role": "tool", "content": [part], "tool_call_id": "1", "name": "f"},
            {"role": "system", "content": "late"},
            USER,
            USER,
        ],
        "tools": [tool, {"type": "namespace", "name": "n", "tools": []}, {"type": "web_search"}],
        "tool_choice": "auto", "parallel_tool_calls": True, "store": False, "metadata": {"a": 1}, "thinking": {},
        "reasoning": {"summary": "auto"}, "client_metadata": [], "promptCacheKey": 1, "prompt_cache_retention": "24h",
        "context_management": {}, "include": [], "user": 5, "service_tier": "auto", "temperature": None, "n": None,
        "max_tokens": 5.0, "stop": None, "logit_bias": None, "stream_options": None, "reasoning_effort": "low",
    }  # fmt: skip
    worker = ScriptedWorker()
    made = services(worker)
    async with http(made) as client:
        answer = await client.post(CHAT, json=body)
    assert answer.status_code == 200, answer.text
    (seen,) = made.builder.seen
    assert seen.tools == [{"type": "function", "function": {"name": "f"}}]
    assert seen.messages[1]["content"] == [{"type": "text", "text": "hi"}, {"type": "text", "text": "bare"}]
    assert seen.messages[2]["tool_calls"] == [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ]
    assert seen.template_kwargs == {"reasoning_effort": "low"}
    assert worker.submitted[0].max_tokens == 5


@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (RequestError("queue full", status=429, kind="rate_limit_error", retry_after=7), 429, "rate_limit_error"),
        (EngineError("worker died", status=503), 503, "unavailable_error"),
        (EngineError("broke"), 500, "server_error"),
        (ValueError("secret detail"), 500, "server_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_failures_before_the_first_reply_have_a_status(failure, status, kind, stream, caplog):
    @run
    async def check():
        worker = ScriptedWorker(before={0: failure})
        async with http(services(worker)) as client:
            answer = await client.post(CHAT, json=chat(stream=stream))
        assert answer.status_code == status and answer.json()["error"]["type"] == kind
        assert "secret" not in answer.text
        assert answer.headers.get("retry-after") == {429: "7", 503: "1"}.get(status)
        assert worker.closed == worker.opened

    check()


@run
async def test_strict_model():
    async with http(services(config={"strict_model": True})) as client:
        assert (await client.post(CHAT, json=chat(model="tiny"))).status_code == 200
        assert (await client.post(CHAT, json=chat())).status_code == 200
        answer = await client.post(CHAT, json=chat(model="gpt-9"))
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "model_not_found"
    async with http(services()) as client:
        served = await client.post(CHAT, json=chat(model="gpt-9"))
    assert served.status_code == 200 and served.json()["model"] == "gpt-9"
