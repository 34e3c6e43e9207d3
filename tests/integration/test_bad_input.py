"""Whatever a client sends is answered quickly and in the API's shape, and the worker never notices."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SECONDS = 3  # on two busy cores; alone each takes less than one
N_CTX = 4096
USER = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> tuple[str, bytes]:
    return CHAT, json.dumps({"messages": [USER], "max_tokens": 2, **fields}).encode()


def says(content: Any, role: Any = "user") -> tuple[str, bytes]:
    return chat(messages=[{"role": role, "content": content}])


def complete(**fields: Any) -> tuple[str, bytes]:
    return COMPLETIONS, json.dumps({"prompt": "hi", "max_tokens": 2, **fields}).encode()


def grammar(text: str) -> tuple[str, bytes]:
    return complete(grammar=text)


def schema(node: Any) -> tuple[str, bytes]:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": node}})


def raw(body: str | bytes, path: str = COMPLETIONS) -> tuple[str, bytes]:
    return path, body if isinstance(body, bytes) else body.encode()


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def nested_schema(depth: int) -> dict[str, Any]:
    node: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        node = {"type": "object", "properties": {"a": node}, "required": ["a"]}
    return node


def calling(arguments: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "a", "arguments": arguments}}
    return {"role": "assistant", "tool_calls": [call]}


WORDY = {"type": "object", "properties": {f"p{i}": {"description": "some words of it " * 5} for i in range(9000)}}
DOUBLING = "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40))
CYCLE = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}

REFUSED = {
    # not JSON, or not the JSON of a request
    "nothing": raw(b""),
    "half": raw("{"),
    "array": raw("[]"),
    "null": raw("null", CHAT),
    "bad utf-8": raw(b'{"prompt":"\xff\xfe"}'),
    "lone surrogate": raw('{"prompt":"\\ud800"}'),
    "surrogates the wrong way round": raw('{"prompt":"\\udc00\\ud800"}'),
    "NaN": raw('{"prompt":"x","temperature":NaN}'),
    "Infinity": raw('{"prompt":"x","logit_bias":{"5":Infinity}}'),
    "1e999": raw('{"prompt":"x","temperature":1e999}'),
    "100,000 arrays": raw("[" * 100_000 + "]" * 100_000),
    "100,000 objects": raw('{"messages":' + '{"a":' * 100_000 + "1" + "}" * 100_001, CHAT),
    "a million open brackets": raw("[" * 1_000_000),
    "5,000 digits": raw('{"prompt":"x","max_tokens":' + "9" * 5000 + "}"),
    "body over the limit": raw('{"prompt":"' + "a" * (2 << 20) + '"}'),
    # messages
    "no messages": chat(messages=[]),
    "messages a text": chat(messages="x"),
    "message a text": chat(messages=["x"]),
    "unknown role": says("x", "robot"),
    "role a number": says("x", 3),
    "no role": chat(messages=[{"content": "x"}]),
    "content a number": says(3),
    "content an object": says({}),
    "part a number": says([3]),
    "an image": says([{"type": "image_url", "image_url": {"url": "x"}}]),
    "100,000 messages": chat(messages=[USER] * 100_000),
    "100,000 parts": says([{"type": "text", "text": "a"}] * 100_000),
    # prompts
    "prompt missing": raw("{}"),
    "prompt empty": complete(prompt=""),
    "prompt no list": complete(prompt=[]),
    "prompt empty lists": complete(prompt=[[]]),
    "prompt a number": complete(prompt=3),
    "prompt mixed": complete(prompt=[1, "a"]),
    "1,000 prompts": complete(prompt=["a"] * 1000),
    "id out of range": complete(prompt=[1, 2, 1024]),
    "id huge": complete(prompt=[1, 10**30]),
    "id 2**31": complete(prompt=[2**31]),
    "id negative": complete(prompt=[-1]),
    "id a bool": complete(prompt=[True]),
    "id a fraction": complete(prompt=[1.5]),
    "id null": complete(prompt=[None]),
    # too long
    "30,000 equal characters": complete(prompt="a" * 30_000),
    "30,000 equal characters in the system text": says("=" * 30_000, "system"),
    "1 MB of one character": complete(prompt="\n" * 1_000_000),
    "1 MB of emoji": complete(prompt="😀" * 80_000),
    "400,000 digits": complete(prompt="7" * 400_000),
    "tokens as many as the context": complete(prompt=[5] * N_CTX),
    "100,000 tokens": complete(prompt=[5] * 100_000),
    "1,000,000 tokens": raw('{"prompt":[' + "5," * 1_000_000 + "5]}"),
    "500,000 numbers to tokenize": raw(b'{"content":[' + b"5," * 500_000 + b"5.5]}", "/tokenize"),
    "1 MB of a tool's parameters": chat(tools=[function("f", parameters=WORDY)]),
    "1 MB of a call's arguments": chat(messages=[USER, calling(json.dumps(WORDY))]),
    "1 MB of reasoning": chat(messages=[USER, {"role": "assistant", "reasoning_content": "hm, " * 250_000}, USER]),
    "5,000 tools": chat(tools=[function(f"f{i}", description="d" * 50) for i in range(5000)]),
    # numbers
    "temperature negative": complete(temperature=-1),
    "temperature a text": complete(temperature="hot"),
    "temperature absurd": complete(temperature=1e9),
    "top_k huge": complete(top_k=10**20),
    "top_p 2": complete(top_p=2),
    "n 0": complete(n=0),
    "n a million": complete(n=1_000_000),
    "best_of a million": complete(best_of=1_000_000),
    "max_tokens -7": complete(max_tokens=-7),
    "max_tokens 1.5": complete(max_tokens=1.5),
    "max_tokens a bool": complete(max_tokens=True),
    "repeat_penalty 0": complete(repeat_penalty=0),
    "repeat_last_n 2**40": complete(repeat_last_n=2**40),
    "mirostat 3": complete(mirostat=3),
    "logprobs a million": complete(logprobs=1_000_000),
    "seed a text": complete(seed="x"),
    "long model name": complete(model="x" * 100_000),
    "breakers that are long": complete(dry_multiplier=1, dry_sequence_breakers=["x" * 10_000] * 100),
    # lists
    "bias out of range": complete(logit_bias={"1024": 1}),
    "bias negative": complete(logit_bias={"-1": 1}),
    "bias on 2**31": complete(logit_bias={str(2**31): 1}),
    "bias infinite": raw('{"prompt":"x","logit_bias":{"5":1e999}}'),
    "bias a text": complete(logit_bias={"5": "x"}),
    "bias half a pair": complete(logit_bias=[[5]]),
    "5,000 biases": complete(logit_bias={str(i): 1 for i in range(5000)}),
    "5,000 stop strings": complete(stop=["x"] * 5000),
    "stop a number": complete(stop=3),
    "stop 100,000 characters": complete(stop=["x" * 100_000]),
    "salt long": complete(cache_salt="x" * 100_000),
    "lifetime of ages": complete(prompt_cache_options={"ttl": "99999999999d"}),
    "lifetime negative": complete(prompt_cache_options={"ttl": -3}),
    # tools
    "tools a text": chat(tools="x"),
    "tool without a function": chat(tools=[{"type": "function"}]),
    "tool's name long": chat(tools=[function("x" * 10_000)]),
    "tool's parameters a list": chat(tools=[function("a", parameters=[])]),
    "call forced without tools": chat(tool_choice="required"),
    "call of an unknown tool": chat(tools=[function("a")], tool_choice=function("z")),
    "one of 5,000 tools forced": chat(tools=[function(f"f{i}") for i in range(5000)], tool_choice="required"),
    "template arguments a list": chat(chat_template_kwargs=[1]),
    # grammars
    "left recursion": grammar('root ::= root "a" | "b"'),
    "hidden left recursion": grammar('root ::= a root "x" | "b"\na ::= b\nb ::= "y"?'),
    "repeated repetition": grammar('root ::= (("a"?){500}){500}'),
    "doubling rules": grammar(f'{DOUBLING}\nr40 ::= "a"?\nroot ::= r0'),
    "40,000 alternatives": grammar("root ::= " + " | ".join(f'"{i}"' for i in range(40_000))),
    "100,000 groups": grammar("root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000),
    "a billion repetitions": grammar('root ::= "a"{1000000000}'),
    "counting backwards": grammar('root ::= "a"{5,2}'),
    "nothing for ever": grammar('root ::= (""|"a"?)*'),
    "blank grammar": grammar(" "),
    "1 MB grammar": grammar('root ::= "' + "a" * 1_000_000 + '"'),
    "no root": grammar('x ::= "a"'),
    "undefined rule": grammar("root ::= foo"),
    "garbage": grammar("}{}{}{"),
    "unclosed": grammar('root ::= "a'),
    "NUL in a grammar": grammar('root ::= "\0"'),
    "bad escape": grammar('root ::= "\\xZZ"'),
    "a range that nothing is in": grammar("root ::= [z-a]"),
    # schemas
    "schema missing": chat(response_format={"type": "json_schema"}),
    "unknown format": chat(response_format={"type": "xml"}),
    "reference to itself": schema({"$ref": "#"}),
    "references in a circle": schema(CYCLE),
    "allOf itself": schema({"allOf": [{"$ref": "#"}]}),
    "reference to a server": schema({"$ref": "http://127.0.0.1:9/x"}),
    "100,000 enum values": schema({"enum": [str(i) for i in range(100_000)]}),
    "no enum value": schema({"enum": []}),
    "90 levels": schema(nested_schema(90)),
    "unknown type": schema({"type": "banana"}),
    "properties a list": schema({"type": "object", "properties": [1]}),
    "1,000 properties": schema({"type": "object", "properties": {f"p{i}": {} for i in range(1000)}}),
    "a huge constant": schema({"const": "x" * 300_000}),
    # other endpoints
    "detokenize a huge id": raw('{"tokens":[1,' + "9" * 30 + "]}", "/detokenize"),
    "detokenize a text": raw('{"tokens":["x"]}', "/detokenize"),
    "template of an unknown role": raw('{"messages":[{"role":"x"}]}', "/apply-template"),
}  # fmt: skip
ODD = {
    "NUL": says("a\0b"),
    "30,000 spaces": complete(prompt=" " * 30_000),
    "max_tokens in the millions": complete(max_tokens=10**30, stop=["e", "a", " "]),
    "no token wanted": complete(max_tokens=0),
    "one token of room": complete(prompt=[5] * (N_CTX - 1), max_tokens=1000),
    "everything banned": complete(logit_bias=[[i, False] for i in range(1024)]),
    "samplers at their limits": complete(typical_p=0, xtc_probability=1, xtc_threshold=0, mirostat=2, mirostat_tau=0),
    "penalties over everything": complete(repeat_last_n=2**31 - 1, repeat_penalty=1.1, dry_multiplier=1, dry_base=0),
    "only an assistant": says("x", "assistant"),
    "only a tool": says("x", "tool"),
    "empty contents": chat(messages=[{"role": "user", "content": None}, {"role": "assistant", "content": []}, USER]),
    "arguments that are no JSON": chat(messages=[USER, calling("{no")]),
    "template arguments that shadow": chat(chat_template_kwargs={"messages": 3, "raise_exception": 1}),
    "lengths in the billions": schema({"type": "string", "maxLength": 10**9, "minLength": 10**8}),
    "items in the billions": schema({"items": {"type": "array", "minItems": 10**9}, "minItems": 10**9}),
    "a pattern that backtracks": schema({"type": "string", "pattern": "(a+)+$"}),
    "property names that look like rules": schema({"properties": {'a\nroot ::= "': {}, "\0": {}}, "required": ["\0"]}),
    "a grammar of nothing": grammar('root ::= ""'),
    "a long literal": grammar('root ::= "' + "a" * 90_000 + '"'),
    "ids as floats": complete(prompt=[1.0, 2.0]),
}  # fmt: skip


@pytest.fixture(scope="module")
def server(servers, tiny_model):
    served = servers.up("-m", tiny_model("llama"), "-c", str(N_CTX), "--max-body", "2")
    yield served
    assert "Traceback" not in served.log
    assert "the worker died" not in served.log


def send(server, path: str, body: bytes) -> Any:
    worker, began = server.worker(), time.monotonic()
    reply = server.http.post(server.url + path, content=body, timeout=20)
    assert time.monotonic() - began < SECONDS
    assert server.worker() == worker
    return reply


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_served_is_refused(server, case):
    reply = send(server, *REFUSED[case])
    assert reply.status_code in (400, 413, 422), reply.text[:500]
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert 0 < len(error["message"]) < 2000
    assert "\n" not in error["message"]


@pytest.mark.parametrize("case", ODD)
def test_what_is_only_odd_is_served(server, case):
    reply = send(server, *ODD[case])
    assert reply.status_code == 200, reply.text[:500]


@pytest.mark.parametrize("case", ["30,000 equal characters", "100,000 tokens", "tokens as many as the context"])
def test_a_prompt_that_is_too_long_is_told_both_numbers(server, case):
    error = send(server, *REFUSED[case]).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert f"maximum context length is {N_CTX} tokens" in error["message"]
    assert str({"3": 30_000, "1": 100_000, "t": N_CTX}[case[0]]) in error["message"]


def test_a_refusal_comes_before_the_stream(server):
    body = {"messages": [USER], "stream": True, "grammar": "root ::= foo"}
    assert server.post(CHAT, body).status_code == 400


def test_paths_and_methods_that_do_not_exist(server):
    assert server.get("/v1/nothing").json()["error"]["code"] == "not_found"
    assert server.get(CHAT).status_code == 405
    assert server.http.head(server.url + "/").status_code == 200


AMBIGUOUS = {
    "more ways with each token": 'root ::= e\ne ::= "a" | "a" e | "a" e e | "a" e e e',
    "one class fifty times": "root ::= (" + " | ".join(["[a-z ]"] * 50) + ")*",
    "classes that overlap": "root ::= (" + " | ".join(f"[{c}-z ]" for c in "abcdefgh") + ")*",
    "optional pairs": "root ::= a\na ::= " + "([a-z]? [ a-z]*)? " * 40,
    "repeated options": "root ::= x{0,900}\nx ::= [a-z ]? ",
    "behind a literal": 'root ::= "' + "a" * 100 + '" (' + " | ".join(["[a-z ]"] * 50) + ")*",
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_an_ambiguous_grammar_is_refused_and_hurts_nobody(server, case):
    worker = server.worker()
    reply = server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 20, "grammar": AMBIGUOUS[case]}, timeout=SECONDS)
    assert reply.status_code == 400 and "ways" in reply.json()["error"]["message"]
    server.complete(prompt="hello", max_tokens=3)
    assert server.worker() == worker


def test_a_grammar_may_end_in_a_dead_end_as_an_error_of_the_request(server):
    reply = server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 9, "grammar": 'root ::= "a" [z-a]'})
    assert reply.status_code == 400
    assert "no further token" in reply.json()["error"]["message"]


def test_grammars_checked_at_the_same_time(server):
    for answer in server.together([{"prompt": "x", "grammar": 'root ::= "ab"+', "temperature": 1}] * 6):
        assert answer["choices"][0]["text"].startswith("a")
