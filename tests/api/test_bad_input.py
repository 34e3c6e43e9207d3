"""Whatever a client sends gets a clear answer before it costs anything."""

import asyncio

import pytest

from headstart.api.limits import FREE_BYTES, MAX_ITEMS, MAX_VALUES
from headstart.errors import EngineError, RequestError

from .doubles import PlainBuilder, ScriptedWorker, chat, http, run, services

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
    (CHAT, chat(model="x" * 1025), "model"),
    (CHAT, chat(top_p=1.5), "top_p"),
    (CHAT, chat(min_p=-0.1), "min_p"),
    (CHAT, chat(top_k=2**40), "top_k"),
    (CHAT, chat(repeat_penalty=0), "repeat_penalty"),
    (CHAT, chat(mirostat=3), "mirostat"),
    (CHAT, chat(dry_sequence_breakers=[]), "dry_sequence_breakers"),
    (CHAT, chat(dry_sequence_breakers=["x"] * 9), "dry_sequence_breakers"),
    (CHAT, chat(n=0), "n"),
    (CHAT, chat(n=1_000_000), "n"),
    (CHAT, chat(n=True), "n"),
    (CHAT, chat(n=1.5), "n"),
    (CHAT, chat(max_tokens=-5), "max_tokens"),
    (CHAT, chat(max_completion_tokens="many"), "max_completion_tokens"),
    (CHAT, chat(seed=2**70), "seed"),
    (CHAT, chat(stop=[1]), "stop[0]"),
    (CHAT, chat(stop=["", 1]), "stop[1]"),
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


MANY = MAX_ITEMS + 1
TOO_MANY = [
    (CHAT, b'{"messages":[%s]}' % b",".join([b"{}"] * 2000), "messages", "context_length_exceeded"),
    (CHAT, b'{"messages":[{"content":[%s]}]}' % b",".join([b"1"] * MANY), "messages[].content", "invalid_value"),
    (CHAT, b'{"messages":[{"tool_calls":[%s]}]}' % b",".join([b"1"] * MANY), "messages[].tool_calls", "invalid_value"),
    (CHAT, b'{"tools":[%s]}' % b",".join([b"1"] * MANY), "tools", "invalid_value"),
    ("/apply-template", b'{"messages":[%s]}' % b",".join([b"{}"] * 2000), "messages", "context_length_exceeded"),
    (TEXT, b'{"prompt":[%s]}' % b",".join([b"1"] * 2000), "prompt", "context_length_exceeded"),
    (TEXT, b'{"prompt":["a",[%s]]}' % b",".join([b"1"] * 2000), "prompt", "context_length_exceeded"),
    (TEXT, b'{"prompt":[%s]}' % b",".join([b"[1]"] * 2000), "prompt", "invalid_value"),
    ("/tokenize", b'{"content":[%s]}' % b",".join([b"1"] * MAX_VALUES), None, "request_too_large"),
    ("/tokenize", b'{"content":[%s]}' % b",".join([b'"\\","'] * MAX_VALUES), None, "request_too_large"),
    ("/detokenize", b'{"tokens":[%s]}' % b",".join([b'"' + b"\\" * 2 + b'"'] * MAX_VALUES), None, "request_too_large"),
]


@run
async def test_too_many_of_anything_is_refused_before_each_is_looked_at():
    looked = []

    class Nosy(PlainBuilder):
        def chat(self, chat, **_options):
            looked.append(chat)

    async with http(services(builder=Nosy())) as client:
        for path, body, param, code in TOO_MANY:
            answer = await client.post(path, content=body)
            error = answer.json()["error"]
            assert (error["param"], error["code"]) == (param, code), (body[:40], error)
            assert answer.status_code == (413 if code == "request_too_large" else 400)
    assert not looked


@run
async def test_separators_inside_texts_do_not_count():
    texts = [r"\"\\" + "," * MAX_VALUES, "[{:" * MAX_VALUES + "\\"]
    async with http(services()) as client:
        for text in texts:
            body = {"messages": [USER], "metadata": {"a": text, "b": "c"}}
            assert (await client.post(CHAT, json=body)).status_code == 200


LONG = "x" * 200_000  # no context of 1000 tokens holds it
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": LONG}}
HIDDEN = [
    {"messages": [USER, {"role": "assistant", "reasoning_content": LONG}, USER]},
    {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}]},
    {"messages": [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": LONG}}}]}]},
    {"messages": [USER, {"role": "assistant", "tool_calls": [{"function": {"name": LONG}}]}]},
    {"messages": [{**USER, "name": LONG}]},
    {"messages": [USER], "tools": [{"function": {"name": "f", "parameters": {"a": LONG}}}]},
    {"messages": [USER], "chat_template_kwargs": {"documents": [LONG]}},
]


@pytest.mark.parametrize("path", [CHAT, "/apply-template"])
def test_every_text_that_a_template_shows_counts_before_it_is_rendered(path):
    @run
    async def check():
        made = services()
        async with http(made) as client:
            for body in HIDDEN:
                error = (await client.post(path, json=body)).json()["error"]
                assert (error["param"], error["code"]) == ("messages", "context_length_exceeded"), body.keys()
        assert not made.builder.seen

    check()


@run
async def test_a_body_that_stops_arriving():
    async def slow(pause):
        while True:
            yield b" "
            await asyncio.sleep(pause)

    for pause, limits in ((60, {"body_silence": 0.02}), (0.001, {"body_seconds": 0.05})):
        async with http(services(**limits)) as client:
            answer = await client.post(CHAT, content=slow(pause))
        assert answer.status_code == 408 and answer.json()["error"]["code"] == "request_timeout"
        assert answer.headers["connection"] == "close"


@run
async def test_bodies_that_arrive_at_once_are_bounded_together():
    held = asyncio.Event()

    async def large():
        for _ in range(4):
            yield b" " * (FREE_BYTES // 2)
        await held.wait()

    async with http(services(body_limit=3 * FREE_BYTES)) as client:
        waiting = [asyncio.create_task(client.post(CHAT, content=large())) for _ in range(20)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 20 - 12:
            more, _ = await asyncio.wait(set(waiting) - done, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        small = await client.post(CHAT, json=chat())
        held.set()
        answers = await asyncio.gather(*waiting)
        again = await client.post(CHAT, content=b" " * 2 * FREE_BYTES)
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(refused) == 8 and small.status_code == 200
    assert {(r.json()["error"]["code"], r.headers["retry-after"]) for r in refused} == {("overloaded", "5")}
    assert {answer.status_code for answer in answers} == {400, 503} and again.status_code == 400


@run
async def test_integers_may_be_written_as_floats():
    worker = ScriptedWorker()
    async with http(services(worker)) as client:
        assert (await client.post(TEXT, json={"prompt": [1.0, 2]})).status_code == 200
        assert (await client.post(TEXT, json={"prompt": [[3.0], "a"]})).status_code == 200
        for prompt in ([1.5], [True], [1.0, None]):
            assert (await client.post(TEXT, json={"prompt": prompt})).json()["error"]["param"] == "prompt"
    assert [work.tokens for work in worker.submitted[:2]] == [[1, 2], [3]]


@run
async def test_slots_do_not_wait_for_ever():
    class Busy(ScriptedWorker):
        async def inspect(self):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise EngineError("The worker died.", status=503) from None

    async with http(services(Busy(), inspect_seconds=0.01)) as client:
        answer = await client.get("/slots")
    assert answer.status_code == 503 and answer.json()["error"]["message"] == "The worker is busy."


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
