"""No session hears another one. Random weights copy no text, so the needle is the distribution of the next token:

it depends on every token before it, and a foreign prefix moves it by far more than a neighbour in the same batch does.
Both are measured here.
"""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.servers import Server
from tests.integration.test_sharing import cached, own, words

NOISE = 0.08  # of a log probability; rounding beside neighbours moves one by at most half of it
FOREIGN = 0.2  # the least that a foreign prefix moves one of the most likely


@pytest.fixture(scope="module", params=["llama", "qwen35"])
def pair(servers, tiny_model, request):
    model = ("-m", tiny_model(request.param), "-c", "32768", "-np", "10")
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda flags: servers.up(*model, *flags), ((), ("--no-slot-attach",))))


def next_token(answer) -> dict[str, float]:
    top = answer["choices"][0]["logprobs"]["top_logprobs"][0]
    # Several tokens that are no whole characters have one name.
    return {token: value for token, value in top.items() if "\ufffd" not in token}


def distance(one: dict[str, float], other: dict[str, float]) -> float:
    """How far the log probabilities of the same tokens lie apart, at most; of those that are likely in both."""
    common = one.keys() & other.keys()
    if len(common) < len(one) // 2:
        return 10.0
    return max(abs(one[token] - other[token]) for token in common)


def asked(prompt: list[int]) -> dict[str, object]:
    return {"prompt": prompt, "max_tokens": 1, "logprobs": 20}


def alone(server: Server, prompt: list[int]) -> dict[str, float]:
    return next_token(server.complete(**asked(prompt)))


def test_a_foreign_prefix_would_show(pair):
    warm, cold = pair
    tail = words("tail", 2)
    prompts = [words(("head", i), 900) + tail for i in range(4)]
    seen = [alone(cold, prompt) for prompt in prompts]
    assert min(distance(a, b) for a, b in itertools.combinations(seen, 2)) > FOREIGN
    for answer, reference in zip(warm.together([asked(prompt) for prompt in prompts]), seen, strict=True):
        assert distance(next_token(answer), reference) < NOISE
    # Alone on its server the same prompt is answered the same to the bit.
    assert alone(cold, prompts[0]) == seen[0]


def test_eight_sessions_of_twenty_rounds(pair):
    warm, cold = pair
    heads = [words(("family", i), 500) for i in range(2)]
    histories = [heads[i % 2] + own("session", i) for i in range(8)]
    reused = 0
    for turn in range(20):
        answers = warm.together([asked(history) for history in histories])
        reused += sum(cached(answer) for answer in answers)
        if turn in (0, 19):
            references = [alone(cold, history) for history in histories]
            for answer, reference in zip(answers, references, strict=True):
                assert distance(next_token(answer), reference) < NOISE
            assert min(distance(a, b) for a, b in itertools.combinations(references, 2)) > FOREIGN
        for i, history in enumerate(histories):
            history += words(("round", turn, i), 30)
    assert reused > 0.9 * sum(500 + 80 + 30 * turn - 64 for turn in range(20)) * 8 - 8 * 580


@pytest.mark.parametrize("sessions", [2, 5, 10])
def test_sessions_of_mixed_lengths_at_once(pair, sessions):
    warm, cold = pair
    head, rng = words(("mixed", sessions), 300), random.Random(sessions)
    prompts = [head + own(("mixed", sessions), i)[: rng.choice((3, 40, 80))] for i in range(sessions)]
    prompts = [prompt + words((sessions, i), rng.choice((1, 60, 300, 700))) for i, prompt in enumerate(prompts)]
    references = [alone(cold, prompt) for prompt in prompts]
    for _ in range(2):  # cold, then beside and on top of what the first time left
        for answer, reference in zip(warm.together([asked(p) for p in prompts]), references, strict=True):
            assert distance(next_token(answer), reference) < NOISE


@pytest.mark.parametrize("length", [1023, 1024, 1025, 2047, 2048, 2049])
def test_reuse_is_the_same_around_batch_borders(pair, length):
    warm, cold = pair
    prompt = words(("border", length), length)
    warm.complete(**asked(prompt))
    again, longer = warm.complete(**asked(prompt)), warm.complete(**asked(prompt + own("border", length)))
    assert cached(again) >= length - 64
    assert length - 1 <= cached(longer) <= length
    assert distance(next_token(longer), alone(cold, prompt + own("border", length))) < NOISE
