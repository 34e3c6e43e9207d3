from headstart.types import FinishReason

from .doubles import BOS, ScriptedWorker, events, http, run, services

PATH = "/v1/completions"


@run
async def test_whole_and_streamed():
    async with http(services()) as client:
        whole = (await client.post(PATH, json={"prompt": "abc"})).json()
        body = {"prompt": "abc", "stream": True, "stream_options": {"include_usage": True}}
        *chunks, _ = events((await client.post(PATH, json=body)).text)
    assert whole["object"] == "text_completion"
    assert whole["choices"] == [{"index": 0, "text": "Hello, world.", "logprobs": None, "finish_reason": "stop"}]
    assert "".join(c["text"] for chunk in chunks for c in chunk["choices"]) == "Hello, world."
    for key in ("usage", "timings", "headstart"):
        assert chunks[-1][key] == whole[key]


@run
async def test_prompts_in_every_shape():
    worker = ScriptedWorker()
    async with http(services(worker)) as client:
        for prompt in ("ab", [1, 2], ["ab", "cd"], [[1, 2], "cd"], ""):
            assert (await client.post(PATH, json={"prompt": prompt})).status_code == 200
    assert [w.tokens for w in worker.submitted] == [
        [BOS, 97, 98], [1, 2], [BOS, 97, 98], [BOS, 99, 100], [1, 2], [BOS, 99, 100], [BOS],
    ]  # fmt: skip


@run
async def test_a_batch_counts_every_prompt_once():
    worker = ScriptedWorker(cached=1)
    async with http(services(worker)) as client:
        body = (await client.post(PATH, json={"prompt": ["aaaa", "bb"], "n": 2, "seed": 5, "echo": True})).json()
    assert [c["index"] for c in body["choices"]] == [0, 1, 2, 3]
    assert [c["text"][:4] for c in body["choices"]] == ["aaaa", "aaaa", "bbHe", "bbHe"]
    assert sorted(w.sampling.seed for w in worker.submitted) == [5, 5, 6, 6]
    usage = body["usage"]
    assert usage["prompt_tokens"] == 5 + 3 and usage["completion_tokens"] == 4 * 14
    assert usage["prompt_tokens_details"]["cached_tokens"] + body["timings"]["prompt_n"] == 8


@run
async def test_an_empty_answer_has_no_logprobs_to_tell():
    async with http(services(ScriptedWorker(""))) as client:
        text = (await client.post(PATH, json={"prompt": "x", "logprobs": 2})).json()["choices"][0]
        body = {"messages": [{"role": "user", "content": "x"}], "logprobs": True}
        said = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]
    assert text["logprobs"] == {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    assert said["logprobs"]["content"] == []


@run
async def test_logprobs():
    async with http(services(ScriptedWorker("ab"))) as client:
        choice = (await client.post(PATH, json={"prompt": "x", "logprobs": 2})).json()["choices"][0]
        body = {"prompt": "x", "logprobs": 2, "stream": True}
        *chunks, _ = events((await client.post(PATH, json=body)).text)
    assert choice["logprobs"] == {
        "tokens": ["a", "b"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"a": -0.5, "!": -1.5}, {"b": -0.5, "!": -1.5}],
        "text_offset": [0, 1],
    }
    streamed = [c["logprobs"] for chunk in chunks for c in chunk["choices"] if c["logprobs"]]
    assert [token for part in streamed for token in part["tokens"]] == ["a", "b"]
    assert [offset for part in streamed for offset in part["text_offset"]] == [0, 1]


@run
async def test_tags_stay_text():
    text = "<think>a</think><tool_call>b</tool_call>"
    async with http(services(ScriptedWorker(text, reason=FinishReason.LENGTH))) as client:
        choice = (await client.post(PATH, json={"prompt": "x", "stop": "zzz"})).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (text, "length")


@run
async def test_nothing_to_generate():
    worker = ScriptedWorker(reason=FinishReason.LENGTH)
    async with http(services(worker)) as client:
        body = (await client.post(PATH, json={"prompt": "x", "max_tokens": 0})).json()
    assert worker.submitted[0].max_tokens == 0
    assert body["choices"][0]["text"] == "" and body["choices"][0]["finish_reason"] == "length"
