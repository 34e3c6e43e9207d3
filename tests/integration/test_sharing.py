"""Prefixes over HTTP, on every memory kind: who computes, who attaches, and that the answers stay the cold ones."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.servers import Server, until

KINDS = ["llama", "qwen3moe", "qwen35", "gemma3", "mamba2"]
ANYWHERE = {"llama", "qwen3moe"}  # prefixes of attention models can be cut at any token
TAIL = 80  # own tokens of a session; more than what is computed again so that an answer stays the same to the bit
DETAIL = {"max_tokens": 8, "logprobs": 5}
NOISE = 0.02  # of a logprob, by rounding alone; another head moves it ten times as far


def words(seed: object, count: int) -> list[int]:
    """Tokens that no other seed's agree with."""
    rng = random.Random(str(seed))
    return [rng.randrange(300, 1000) for _ in range(count)]


def own(name: str, number: int) -> list[int]:
    """A session's own tokens: they part from those of its siblings at the first one."""
    return [10 + number % 200, *words((name, number), TAIL - 1)]


@pytest.fixture(scope="module", params=KINDS)
def pair(servers, tiny_model, request):
    """A server that shares, and one that computes everything; and whether prefixes can be cut anywhere."""
    model = ("-m", tiny_model(request.param), "-c", "16384", "-np", "5")
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda flags: servers.up(*model, *flags), ((), ("--no-slot-attach",))))
    return (*both, request.param in ANYWHERE)


@pytest.fixture
def warm(pair) -> Server:
    return pair[0]


@pytest.fixture
def cold(pair) -> Server:
    return pair[1]


def cached(answer) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def source(answer) -> str:
    return answer["headstart"]["source"]


def said(answer):
    """Everything about an answer that a wrong or foreign prefix would change."""
    choice = answer["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]


def first_logprob(answer) -> float:
    return answer["choices"][0]["logprobs"]["token_logprobs"][0]


def computed(server: Server) -> float:
    """Prompt tokens that the server has computed since it started."""
    return server.metric("llamacpp:prompt_tokens_total")


def test_sessions_one_after_the_other(pair, request):
    warm, cold, anywhere = pair
    kind = request.node.callspec.params["pair"]
    head = words("after", 1000)
    prompts = [head + own("after", i) for i in range(3)]
    first, second, third = (warm.complete(prompt=prompt, **DETAIL) for prompt in prompts)
    assert (source(first), cached(first)) == ("none", 0)
    # A state lies where the prompts part only once somebody has parted there.
    assert cached(second) == 1000 if anywhere else cached(second) <= 1000
    assert cached(third) == 1000
    assert source(third) in ("holder", "snapshot")
    for prompt, answer in zip(prompts, (first, second, third), strict=True):
        if anywhere or kind == "mamba2":
            assert said(answer) == said(cold.complete(prompt=prompt, **DETAIL))
        elif kind == "qwen35":
            assert said(answer) == said(warm.complete(prompt=prompt, **DETAIL, cache_prompt=False))
        else:
            # The cells of a window are used again in any order, and the last bits follow the order.
            alone = cold.complete(prompt=prompt, **DETAIL)
            assert first_logprob(answer) == pytest.approx(first_logprob(alone), abs=NOISE)


def test_a_turn_resumes_at_the_end_of_the_one_before(pair):
    warm, _, _ = pair
    prompt = words("turns", 700)
    for _ in range(3):
        answer = warm.complete(prompt=prompt, max_tokens=20)
        said_tokens = warm.post("/tokenize", {"content": answer["choices"][0]["text"]}).json()["tokens"]
        before, prompt = len(prompt), [*prompt, *said_tokens, *words(("turn", len(prompt)), TAIL)]
    last = warm.complete(prompt=prompt)
    assert cached(last) >= before - 1  # random text is not the same tokens when it comes back as text


def test_siblings_that_arrive_together(pair):
    warm, _, _ = pair
    head, before = words("together", 1500), computed(warm)
    answers = warm.together([{"prompt": head + own("together", i), "max_tokens": 4} for i in range(4)])
    origins = sorted((source(answer), cached(answer)) for answer in answers)
    assert origins == [("none", 0), *[("wait", 1500)] * 3]
    assert computed(warm) - before == 1500 + 4 * TAIL


def test_a_sibling_of_a_running_session(pair):
    warm, _, anywhere = pair
    head = words("running", 900)
    warm.complete(prompt=head + own("running", 0))  # on stateful kinds the next one leaves a state at the head
    with warm.stream(prompt=head + own("running", 1), max_tokens=2000):
        answer = warm.complete(prompt=head + own("running", 2))
        assert cached(answer) == 900
        assert len(warm.live()) == 1  # the other one still runs
    until(lambda: not warm.live())
    if anywhere:
        fresh = words("running alone", 900)
        with warm.stream(prompt=fresh, max_tokens=2000):
            attached = warm.complete(prompt=[*fresh, *own("attached", 0)])
            assert (source(attached), cached(attached)) == ("attach", 900)
        until(lambda: not warm.live())


def test_the_same_prompt_again_and_choices_of_one(warm):
    prompt, before = words("same", 800), computed(warm)
    answer = warm.complete(prompt=prompt, n=3, temperature=1, seed=1)
    assert len(answer["choices"]) == 3
    again = warm.complete(prompt=prompt)
    assert 800 - 64 <= cached(again) < 800
    assert computed(warm) - before <= 800 + 3 * 64  # not four prompts


def test_a_short_prompt_has_the_same_answer_each_time_to_the_bit(servers, tiny_model):
    """Nothing of it is attached to; with the first answer still there, every other one lay in other cells."""
    server = servers.up("-m", tiny_model("llama"), "-c", "4096", "-t", "2")
    asked = {"prompt": words("short", 6), "max_tokens": 150, "ignore_eos": True, "logprobs": 1}
    first, *others = (server.complete(**asked) for _ in range(3))
    assert cached(others[0]) == 0
    assert [said(answer) for answer in others] == [said(first)] * 2


def test_no_reuse_where_none_is_wanted(warm, cold):
    prompt = words("private", 600)
    warm.complete(prompt=prompt)
    alone = warm.complete(prompt=prompt, cache_prompt=False)
    assert (source(alone), cached(alone)) == ("none", 0)
    assert "no reuse" in alone["headstart"]["reason"]
    cold.complete(prompt=prompt)
    off = cold.complete(prompt=prompt)
    assert (source(off), cached(off)) == ("none", 0)
    assert "off" in off["headstart"]["reason"]


def test_salts_keep_prefixes_apart(warm):
    prompt = words("salted", 600)
    assert cached(warm.complete(prompt=prompt, cache_salt="a")) == 0
    assert cached(warm.complete(prompt=prompt, cache_salt="b")) == 0
    assert cached(warm.complete(prompt=prompt, cache_salt="b")) > 500
    assert cached(warm.complete(prompt=prompt)) == 0


def chat(server: Server, messages, **fields):
    reply = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2, "temperature": 0, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def text(seed: object, count: int) -> str:
    rng = random.Random(str(seed))
    return " ".join(rng.choice(["red", "lamp", "tower", "sea", "storm", "light", "keeper"]) for _ in range(count))


def test_the_head_is_found_without_marks(warm):
    system = {"role": "system", "content": text("head", 500)}
    first = chat(warm, [system, {"role": "user", "content": text("ask 1", 60)}])
    second = chat(warm, [system, {"role": "user", "content": text("ask 2", 60)}])
    other = chat(warm, [{"role": "system", "content": text("another head", 500)}, {"role": "user", "content": "hi"}])
    assert cached(first) < 20
    assert cached(second) >= 500
    assert cached(other) < 20


def test_marks_decide_in_explicit_mode(warm):

    def parts(name: str, *, marked: bool):
        mark = {"prompt_cache_breakpoint": {"mode": "explicit"}} if marked else {}
        first = {"type": "text", "text": text(name, 300), **mark}
        return lambda word: [{"role": "user", "content": [first, {"type": "text", "text": f"{word} {text(word, 80)}"}]}]

    only = {"prompt_cache_options": {"mode": "explicit"}}
    marked, unmarked = parts("marked", marked=True), parts("unmarked", marked=False)
    written = chat(warm, marked("Which"), **only)["usage"]["prompt_tokens_details"]["cache_write_tokens"]
    assert 300 <= written < 1000
    assert written <= cached(chat(warm, marked("How"), **only)) <= written + 2  # the token after a mark may be shared
    nothing = chat(warm, unmarked("Which"), **only)
    assert nothing["usage"]["prompt_tokens_details"]["cache_write_tokens"] == 0
    assert cached(chat(warm, unmarked("How"), **only)) < 20


def test_holders_outlive_their_sessions(warm):
    until(lambda: not warm.live())
    slots = warm.slots()
    assert slots
    assert all(slot["state"] == "holder" for slot in slots)


def test_few_states_on_the_device_and_many_chains(servers, tiny_model):
    server = servers.up("-m", tiny_model("mamba2"), "-c", "4096", "-np", "1", "--state-slots", "1")
    chains = [words(("chain", number), 700) for number in range(4)]
    for number, chain in enumerate(chains):
        assert cached(server.complete(prompt=chain + own("chain", number))) == 0
    for number, chain in enumerate(chains):
        asked = {"prompt": chain + own("again", number), **DETAIL}
        again = server.complete(**asked)
        assert (source(again), cached(again)) == ("snapshot", 512)
        assert said(again) == said(server.complete(**asked, cache_prompt=False))


def test_a_window_that_keeps_everything_gives_the_cold_bits(servers, tiny_model):
    model = ("-m", tiny_model("gemma3"), "-c", "8192", "-np", "2", "--swa-full")
    with ThreadPoolExecutor(2) as pool:
        warm, cold = pool.map(lambda flags: servers.up(*model, *flags), ((), ("--no-slot-attach",)))
    head = words("full", 1000)
    for number in range(3):
        asked = {"prompt": head + own("full", number), **DETAIL}
        answer = warm.complete(**asked)
        assert cached(answer) == (1000 if number else 0)
        assert said(answer) == said(cold.complete(**asked))
