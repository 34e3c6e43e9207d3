"""DRY's sequence breakers: equal ones are prepared once, and none may stop everybody for long."""

from __future__ import annotations

import llama_cpp.llama_cpp as C
import pytest

from headstart.engine import chain
from headstart.engine.dry import MAX_BREAKER_CHARS, MAX_BREAKERS, MAX_OVERLAPS, TEMPLATES, Dry
from headstart.engine.vocab import Vocabulary
from headstart.errors import RequestError
from headstart.messages import Sampling
from tests.engine.drive import engine, generate, tokens


@pytest.fixture(scope="module")
def vocabulary(demo_model):
    return Vocabulary(str(demo_model))


@pytest.fixture
def prepared(monkeypatch):
    """Breakers of every DRY sampler that the library prepares from scratch."""
    calls: list[list[bytes]] = []
    make = C.llama_sampler_init_dry

    def counted(*arguments):
        calls.append(list(arguments[5])[: arguments[6]])
        return make(*arguments)

    monkeypatch.setattr(C, "llama_sampler_init_dry", counted)
    return calls


def dry(vocabulary: Vocabulary) -> Dry:
    return Dry(vocabulary.handle, vocabulary.n_vocab, 512)


def breaking(*breakers: str, **more) -> Sampling:
    return Sampling(temperature=0.0, dry_multiplier=5.0, dry_sequence_breakers=breakers, **more)


def test_equal_settings_are_prepared_once(vocabulary, prepared):
    source = dry(vocabulary)
    for seed in range(128):
        C.llama_sampler_free(source.sampler(breaking("\n", ":", "\n", seed=seed)))
    assert prepared == [[b"\n", b":"]]
    C.llama_sampler_free(source.sampler(breaking("\n", ":", dry_base=3.0)))
    assert len(prepared) == 2
    source.close()


def test_few_are_kept_and_the_latest_used_longest(vocabulary, prepared):
    source = dry(vocabulary)
    for i in range(TEMPLATES + 1):
        for text in (":", str(i)):
            C.llama_sampler_free(source.sampler(breaking(text)))
    assert len(source._templates) == TEMPLATES
    assert prepared.count([b":"]) == 1
    source.close()


@pytest.mark.parametrize("text", ["ss", "eeeeeeee", "sam", "no"])
def test_breakers_that_begin_as_thousands_of_tokens_end_are_refused(vocabulary, prepared, text):
    source = dry(vocabulary)
    with pytest.raises(RequestError, match="dry_sequence_breakers") as caught:
        source.sampler(breaking(":", text))
    assert caught.value.param == "dry_sequence_breakers" and repr(text) in caught.value.message
    assert not prepared
    source.close()


def test_all_breakers_together_have_one_bound(vocabulary):
    source = dry(vocabulary)
    alone = ["cc", "hh", "aa", "mm"]
    for text in alone:
        C.llama_sampler_free(source.sampler(breaking(text)))
    with pytest.raises(RequestError, match=f"at most {MAX_OVERLAPS}"):
        source.sampler(breaking(*alone))
    source.close()


def test_common_breakers_are_taken(vocabulary):
    source = dry(vocabulary)
    for texts in [("\n", ":", '"', "*"), ("<|im_start|>", "<|im_end|>"), ("assistant", "user"), ("USER:", "Sam"), ()]:
        sampler = source.sampler(breaking(*texts))
        assert sampler
        C.llama_sampler_free(sampler)
    source.close()


@pytest.mark.parametrize("breakers", [("x",) * (MAX_BREAKERS + 1), ("x" * (MAX_BREAKER_CHARS + 1),)])
def test_more_or_longer_ones_are_refused(breakers):
    with pytest.raises(RequestError, match="at most 8 texts of 40 characters"):
        chain.check(breaking(*breakers), 1024)


def test_a_clone_does_what_a_fresh_one_does(tiny_model):
    wants_to_repeat = {"logit_bias": ((500, 50.0),), "dry_penalty_last_n": 64}

    def said(e) -> list[int]:
        return generate(e, "a", 0, [*tokens(30), *[500] * 10], 12, breaking("\n", **wants_to_repeat))

    first = engine(tiny_model("llama"), n_ctx=512)
    fresh = said(first)
    assert said(first) == fresh  # what the first one said has not gone into the template
    assert 500 not in fresh[:1]
    first.shutdown()
    second = engine(tiny_model("llama"), n_ctx=512)
    assert said(second) == fresh
    second.shutdown()
