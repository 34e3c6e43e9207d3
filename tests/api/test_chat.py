from dataclasses import replace

import pytest
from pydantic import ValidationError

from headstart.api.grammar import call_schema
from headstart.api.wire_chat import ChatRequest, Tool, ToolFunction
from headstart.types import FinishReason

from .doubles import ScriptedWorker, chat, events, http, run, services


def folded(chunks):
    """The message, finish reasons and last chunk that a stream adds up to."""
    texts, reasons = {}, {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + (choice["delta"].get("content") or "")
            reasons[choice["index"]] = choice["finish_reason"] or reasons.get(choice["index"])
    return texts, reasons


@run
async def test_whole_answer():
    async with http(services()) as client:
        body = (await client.post("/v1/chat/completions", json=chat())).json()
    assert body["object"] == "chat.completion"
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello, world."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    usage, timings = body["usage"], body["timings"]
    assert usage["prompt_tokens_details"]["cached_tokens"] + timings["prompt_n"] == usage["prompt_tokens"] == 30
    assert usage["completion_tokens"] == 14 and usage["total_tokens"] == 44
    assert usage["prompt_tokens_details"]["cache_write_tokens"] == 27
    assert body["headstart"] == {
        "source": "holder", "cached_tokens": 3, "source_tokens": 9, "reason": "why", "parts_at": None, "queue_ms": 1.0,
    }  # fmt: skip
    assert timings["predicted_per_second"] == 3500.0 and timings["prompt_per_token_ms"] == round(8 / 27, 4)


@run
async def test_streaming_equals_whole():
    async with http(services(ScriptedWorker("Grüße 🙂 done"))) as client:
        whole = (await client.post("/v1/chat/completions", json=chat(n=2))).json()
        sent = await client.post(
            "/v1/chat/completions", json=chat(n=2, stream=True, stream_options={"include_usage": True})
        )
    assert sent.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events(sent.text)
    assert done == "[DONE]"
    texts, reasons = folded(chunks)
    assert (
        texts
        == {c["index"]: c["message"]["content"] for c in whole["choices"]}
        == dict.fromkeys((0, 1), "Grüße 🙂 done")
    )
    assert reasons == {0: "stop", 1: "stop"}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    last = chunks[-1]
    assert last["choices"] == []
    for key in ("usage", "timings", "headstart"):
        assert last[key] == whole[key]
    assert all("usage" not in chunk and "timings" not in chunk for chunk in chunks[:-1])
    assert len({chunk["id"] for chunk in chunks}) == 1


@run
async def test_no_usage_chunk_unless_asked():
    async with http(services()) as client:
        *chunks, _ = events((await client.post("/v1/chat/completions", json=chat(stream=True))).text)
    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop" and "timings" in chunks[-1]


@run
async def test_stop_string_ends_the_work_and_keeps_the_account():
    worker = ScriptedWorker("one STOP two")
    async with http(services(worker)) as client:
        body = (await client.post("/v1/chat/completions", json=chat(stop=["ST"]))).json()
    assert body["choices"][0]["message"]["content"] == "one "
    assert body["choices"][0]["finish_reason"] == "stop"
    assert worker.aborted == [worker.submitted[0].id] == worker.closed
    assert worker.reason is FinishReason.STOP  # what the worker's books say, not that the client had left
    assert body["usage"]["completion_tokens"] == 6
    assert body["timings"]["prompt_n"] + body["usage"]["prompt_tokens_details"]["cached_tokens"] == 30


@run
async def test_length_only_when_truly_cut():
    worker = ScriptedWorker("abcdef", reason=FinishReason.LENGTH)
    async with http(services(worker)) as client:
        body = (await client.post("/v1/chat/completions", json=chat(max_tokens=3))).json()
    assert body["choices"][0]["finish_reason"] == "length" and body["usage"]["completion_tokens"] == 3


@run
async def test_choices_share_one_prompt_and_differ_in_seed():
    worker = ScriptedWorker()
    async with http(services(worker)) as client:
        body = (await client.post("/v1/chat/completions", json=chat(n=3, seed=7))).json()
    assert [c["index"] for c in body["choices"]] == [0, 1, 2]
    assert sorted(w.sampling.seed for w in worker.submitted) == [7, 8, 9]
    usage = body["usage"]
    assert usage["prompt_tokens"] == 30 and usage["completion_tokens"] == 42
    assert usage["prompt_tokens_details"] == {"cached_tokens": 3, "cache_write_tokens": 27}
    assert body["timings"]["prompt_n"] == 27 and body["headstart"]["cached_tokens"] == 3
    assert len({w.id for w in worker.submitted}) == 3


@run
async def test_limits_are_clamped_to_the_context():
    worker = ScriptedWorker(n_ctx=100)
    async with http(services(worker)) as client:
        for fields in ({"max_tokens": 65536}, {"max_completion_tokens": 10**30}, {"n_predict": -1}, {}):
            assert (await client.post("/v1/chat/completions", json=chat(**fields))).status_code == 200
    assert {w.max_tokens for w in worker.submitted} == {70}


@run
async def test_progress_and_running_timings():
    async with http(services(ScriptedWorker(progress=2))) as client:
        body = chat(stream=True, return_progress=True, timings_per_token=True)
        *chunks, _ = events((await client.post("/v1/chat/completions", json=body)).text)
    progress = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
    assert progress == [{"total": 30, "cache": 3, "processed": p, "time_ms": 2} for p in (3, 4)]
    running = [c["timings"]["predicted_n"] for c in chunks if c["choices"][0]["delta"].get("content")]
    assert running == sorted(running) and running[0] >= 1


@run
async def test_reasoning_is_told_apart():
    made = services(ScriptedWorker("<think>hm</think>yes"))
    async with http(made) as client:
        message = (await client.post("/v1/chat/completions", json=chat())).json()["choices"][0]["message"]
        *chunks, _ = events((await client.post("/v1/chat/completions", json=chat(stream=True))).text)
    assert (message["reasoning_content"].strip(), message["content"]) == ("hm", "yes")
    thought = "".join(c["choices"][0]["delta"].get("reasoning_content", "") for c in chunks)
    assert thought == message["reasoning_content"]


TOOLS = [{"type": "function", "function": {"name": "ls", "description": "", "parameters": {"type": "object"}}}]


@run
async def test_tool_calls():
    text = 'Looking.<tool_call>\n{"name": "ls", "arguments": {"path": "."}}\n</tool_call>'
    async with http(services(ScriptedWorker(text))) as client:
        whole = (await client.post("/v1/chat/completions", json=chat(tools=TOOLS))).json()["choices"][0]
        *chunks, _ = events((await client.post("/v1/chat/completions", json=chat(tools=TOOLS, stream=True))).text)
    assert whole["finish_reason"] == "tool_calls" == chunks[-1]["choices"][0]["finish_reason"]
    (call,) = whole["message"]["tool_calls"]
    assert call["type"] == "function" and call["function"]["name"] == "ls" and call["id"]
    parts = [c["choices"][0]["delta"]["tool_calls"][0] for c in chunks if "tool_calls" in c["choices"][0]["delta"]]
    assert parts[0]["id"] and parts[0]["type"] == "function" and parts[0]["function"]["name"] == "ls"
    assert all("id" not in part and part["index"] == 0 for part in parts[1:])
    assert "".join(part["function"]["arguments"] for part in parts) == call["function"]["arguments"]


@run
async def test_no_tool_choice_leaves_the_prompt_alone_and_reads_no_calls():
    text = 'As <tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>'
    made = services(ScriptedWorker(text))
    async with http(made) as client:
        body = (await client.post("/v1/chat/completions", json=chat(tools=TOOLS, tool_choice="none"))).json()
        await client.post("/v1/chat/completions", json=chat(tools=TOOLS))
    without, free = made.builder.seen
    assert without == free and without.tools
    assert body["choices"][0]["message"]["content"] == text and body["choices"][0]["finish_reason"] == "stop"


@run
async def test_a_strict_schema_is_enforced_or_refused():
    schemas = []
    made = replace(services(), schema_to_gbnf=lambda schema, strict: schemas.append(strict) or 'root ::= "a"')
    async with http(made) as client:
        for strict in (True, False, None):
            holder = {"name": "x", "schema": {"type": "string"}, "strict": strict}
            form = {"type": "json_schema", "json_schema": holder}
            assert (await client.post("/v1/chat/completions", json=chat(response_format=form))).status_code == 200
    assert schemas == [True, False, False]


@run
async def test_tool_choice_forces_a_grammar():
    worker = ScriptedWorker('{"name": "ls", "arguments": {}}')
    async with http(services(worker)) as client:
        body = (await client.post("/v1/chat/completions", json=chat(tools=TOOLS, tool_choice="required"))).json()
    assert '"const": "ls"' in worker.submitted[0].sampling.grammar
    assert body["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "ls", "arguments": "{}"}
    assert body["choices"][0]["finish_reason"] == "tool_calls"


def test_references_of_a_tool_follow_it_into_the_call():
    tree = {"type": "object", "properties": {"up": {"$ref": "#"}, "x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {}}}
    plain = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = [Tool(function=ToolFunction(name=n, parameters=p)) for n, p in (("tree", tree), ("plain", plain))]
    schema = call_schema(tools)
    first, second = (call["properties"]["arguments"] for call in schema["anyOf"])
    assert first == {"$ref": "#/$defs/tool0"} and second == plain
    moved = schema["$defs"]["tool0"]["properties"]
    assert moved == {"up": {"$ref": "#/$defs/tool0"}, "x": {"$ref": "#/$defs/tool0/$defs/X"}}


@run
async def test_answer_formats_become_grammars():
    worker = ScriptedWorker()
    schema = {"type": "object"}
    forms = [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_object", "schema": schema}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}},
        {"json_schema": schema},
        {"grammar": 'root ::= "x"'},
        {"response_format": {"type": "text"}},
    ]
    async with http(services(worker)) as client:
        for form in forms:
            assert (await client.post("/v1/chat/completions", json=chat(**form))).status_code == 200
    wanted = 'root ::= {"type": "object"}'
    assert [w.sampling.grammar for w in worker.submitted] == [
        'root ::= "{}"', wanted, wanted, wanted, 'root ::= "x"', None,
    ]  # fmt: skip


@run
async def test_cache_fields_reach_the_worker():
    worker = ScriptedWorker()
    part = {"type": "text", "text": "a long text of some length", "prompt_cache_breakpoint": {"mode": "explicit"}}
    marked = {"messages": [{"role": "user", "content": [part]}]}
    explicit = {"prompt_cache_options": {"mode": "explicit", "ttl": "12h"}}
    async with http(services(worker)) as client:
        for body in (
            chat(),
            chat(cache_prompt=False, cache_salt="team a", prompt_cache_key="x", id_slot=3),
            chat(**explicit),
            {**marked, **explicit},
            marked,
            chat(prompt_cache_options={"ttl": "30m"}),
        ):
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    told = [(w.reuse, w.write, w.salt, [(c.reason, c.ttl) for c in w.cuts]) for w in worker.submitted]
    assert told == [
        (True, True, "", [("head", None)]),
        (False, True, "team a", [("head", None)]),
        (True, False, "", []),
        (True, False, "", [("explicit", 43200.0)]),
        (True, True, "", [("head", None), ("explicit", None)]),
        (True, True, "", [("head", 1800.0)]),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": None, "function": {"name": "f", "parameters": None}}]},
        {"response_format": {"type": None, "json_schema": None}},
        {"messages": [{"role": "user", "content": [{"type": None, "text": "x"}], "name": None}]},
        {"tools": None, "stop": None, "n": None, "stream": None, "logit_bias": None, "seed": None},
    ],
)
def test_null_is_the_same_as_nothing(fields):
    def without(value):
        if isinstance(value, dict):
            return {key: without(inner) for key, inner in value.items() if inner is not None}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    assert ChatRequest.model_validate(chat(**fields)) == ChatRequest.model_validate(without(chat(**fields)))


@pytest.mark.parametrize("kind", ["", 0, False, [], {}])
def test_what_is_no_type_is_refused(kind):
    part = {"type": kind, "text": "x"}
    with pytest.raises(ValidationError, match="not supported"):
        ChatRequest.model_validate({"messages": [{"role": "user", "content": [part]}]})
