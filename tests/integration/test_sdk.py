"""The official client against a server process: what it asks for it gets, streamed or whole."""

from __future__ import annotations

import json

import openai
import pytest

HELLO = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Tell me about lighthouses."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at a place",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
            "required": ["place", "unit"],
        },
    },
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "age": {"type": "integer"},
        "tall": {"type": "boolean"},
    },
    "required": ["name", "age", "tall"],
}
GREEDY = {"temperature": 0, "max_tokens": 24}
SEEDED = {"temperature": 1.0, "seed": 7, "max_tokens": 24}


@pytest.fixture(scope="module")
def server(servers, tiny_model):
    return servers.up("-m", tiny_model("qwen3moe"), "-c", "4096", "-a", "tiny")


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(api_key="none", base_url=f"{server.url}/v1", max_retries=0, timeout=30) as made:
        yield made


def ask(client, **fields):
    return client.chat.completions.create(**{"model": "tiny", "messages": HELLO, **fields})


def streamed(client, **fields):
    """Text, finish reasons and usage of a streamed answer."""
    text, reasons, usage = "", [], None
    for chunk in ask(client, stream=True, stream_options={"include_usage": True}, **fields):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            if choice.finish_reason:
                reasons.append(choice.finish_reason)
    return text, reasons, usage


def check_usage(answer) -> None:
    usage, timings = answer.usage, answer.timings
    assert usage.prompt_tokens_details.cached_tokens + timings["prompt_n"] == usage.prompt_tokens
    assert timings["cache_n"] == usage.prompt_tokens_details.cached_tokens
    assert timings["predicted_n"] == usage.completion_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@pytest.mark.parametrize("how", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_streamed_is_whole(client, how):
    whole = ask(client, **how)
    check_usage(whole)
    text, reasons, usage = streamed(client, **how)
    assert text == whole.choices[0].message.content
    assert reasons == [whole.choices[0].finish_reason]
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens


def test_seeds_decide(client):
    def said(seed):
        return ask(client, temperature=1.5, seed=seed, max_tokens=24).choices[0].message.content

    assert said(1) == said(1)
    assert len({said(seed) for seed in range(4)}) > 1


def test_completions_by_text_and_by_tokens(client, server):
    text = "Once upon a time"
    tokens = server.post("/tokenize", {"content": text}).json()["tokens"]
    by_text = client.completions.create(model="tiny", prompt=text, **GREEDY)
    by_tokens = client.completions.create(model="tiny", prompt=tokens, **GREEDY)
    check_usage(by_tokens)
    assert by_text.usage.prompt_tokens == len(tokens)
    assert by_text.choices[0].text == by_tokens.choices[0].text
    stream = client.completions.create(model="tiny", prompt=text, stream=True, **GREEDY)
    assert "".join(chunk.choices[0].text for chunk in stream) == by_text.choices[0].text
    two = client.completions.create(model="tiny", prompt=[text, "Another"], **GREEDY)
    assert [choice.index for choice in two.choices] == [0, 1]
    check_usage(two)


def test_models(client):
    (listed,) = client.models.list().data
    assert listed.id == "tiny"
    one = client.models.retrieve("tiny")
    assert (one.max_model_len, one.context_length, one.meta["n_ctx"]) == (4096, 4096, 4096)


def test_a_forced_tool_call(client):
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        answer = ask(client, tools=[WEATHER], tool_choice=choice, temperature=1.0, seed=3, max_tokens=200)
        (call,) = answer.choices[0].message.tool_calls
        assert answer.choices[0].finish_reason == "tool_calls"
        assert call.function.name == "weather"
        arguments = json.loads(call.function.arguments)
        assert set(arguments) == {"place", "unit"}
        assert arguments["unit"] in ("C", "F")
        # And the call's result goes back in.
        history = [*HELLO, answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        check_usage(ask(client, messages=history, tools=[WEATHER], max_tokens=4))


def test_a_streamed_tool_call(client):
    fields = {"tools": [WEATHER], "tool_choice": "required", "temperature": 1.0, "seed": 3, "max_tokens": 200}
    whole = ask(client, **fields).choices[0].message.tool_calls[0].function
    with client.chat.completions.stream(model="tiny", messages=HELLO, **fields) as stream:
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == (whole.name, whole.arguments)


def test_answers_follow_a_schema(client):
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    for seed in range(3):
        said = ask(client, response_format=form, temperature=1.0, seed=seed, max_tokens=200).choices[0].message.content
        person = json.loads(said)
        assert set(person) == {"name", "age", "tall"}
        assert isinstance(person["age"], int)
        assert isinstance(person["tall"], bool)


def test_three_choices_cost_one_prompt(client):
    long = [{"role": "user", "content": "Choose three of these words. " + "alpha beta gamma delta " * 40}]
    answer = ask(client, messages=long, n=3, temperature=1.0, seed=1, max_tokens=8, extra_body={"ignore_eos": True})
    check_usage(answer)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    assert answer.usage.completion_tokens == 24
    # One alone says the same as the first of three.
    alone = ask(client, messages=long, temperature=1.0, seed=1, max_tokens=8, extra_body={"ignore_eos": True})
    assert alone.usage.prompt_tokens == answer.usage.prompt_tokens


def test_logprobs(client):
    asked = {**GREEDY, "logprobs": True, "top_logprobs": 3}
    content = ask(client, **asked).choices[0].logprobs.content
    for entry in content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == entry.logprob  # greedy takes the best
        assert entry.logprob <= 0
        assert entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob
    chunks = [c for c in ask(client, stream=True, **asked) if c.choices and c.choices[0].logprobs]
    again = [entry for chunk in chunks for entry in chunk.choices[0].logprobs.content]
    assert [e.bytes for e in again] == [e.bytes for e in content]


def test_stop_strings_across_token_borders(client):
    free = ask(client, **GREEDY).choices[0].message.content
    for start, end in ((3, 5), (4, 9), (7, 8)):
        stop = free[start:end]
        cut = ask(client, stop=[stop], **GREEDY)
        assert cut.choices[0].finish_reason == "stop"
        assert cut.choices[0].message.content == free[: free.index(stop)]
        assert streamed(client, stop=[stop], **GREEDY)[:2] == (free[: free.index(stop)], ["stop"])


def test_limits(client):
    short = ask(client, max_tokens=3, temperature=0, extra_body={"ignore_eos": True})
    assert short.choices[0].finish_reason == "length"
    assert short.usage.completion_tokens == 3
    newer = ask(client, max_completion_tokens=2, extra_body={"ignore_eos": True})
    assert newer.usage.completion_tokens == 2


def test_progress_and_timings_come_when_asked_for(client):
    long = [{"role": "user", "content": "new words " * 600}]
    extra = {"return_progress": True, "timings_per_token": True, "ignore_eos": True}
    chunks = list(ask(client, messages=long, stream=True, max_tokens=4, extra_body=extra))
    progress = [c.prompt_progress for c in chunks if getattr(c, "prompt_progress", None)]
    assert progress[-1]["processed"] == progress[-1]["total"]
    said = [c for c in chunks if c.choices and c.choices[0].delta.content]
    assert said
    assert all(getattr(c, "timings", None) for c in said)
    assert chunks[-1].headstart["source"] in ("none", "holder", "attach", "wait", "snapshot")


def test_errors_are_the_sdks_own(client):
    with pytest.raises(openai.BadRequestError) as bad:
        ask(client, messages=[{"role": "user", "content": "word " * 9000}])
    assert bad.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        ask(client, temperature=-1)
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="tiny", input="x")


def test_keys(servers, tiny_model):
    server = servers.up("-m", tiny_model("llama"), "--api-key", "secret", "--strict-model", "-a", "tiny")
    base = f"{server.url}/v1"
    with (
        openai.OpenAI(api_key="wrong", base_url=base, max_retries=0) as wrong,
        pytest.raises(openai.AuthenticationError),
    ):
        ask(wrong)
    with openai.OpenAI(api_key="secret", base_url=base, max_retries=0) as right:
        check_usage(ask(right, max_tokens=2))
        with pytest.raises(openai.NotFoundError):
            ask(right, model="another")
