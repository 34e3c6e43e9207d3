"""Text to tokens and back, and texts that would hurt the library."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine.vocab import LONGEST_RUN, Vocabulary, tokenizing_pool
from headstart.errors import RequestError


@pytest.fixture(scope="module")
def vocab(demo_model):
    return Vocabulary(str(demo_model))


def test_special_tokens(vocab):
    assert (vocab.bos_text, vocab.eos_text) == ("<|im_start|>", "<|im_end|>")
    assert vocab.encode("<|im_end|>") == [vocab.eos]
    assert len(vocab.encode("<|im_end|>", special=False)) > 1
    assert vocab.is_end(vocab.eos)
    assert vocab.is_control(vocab.eos)
    assert not vocab.is_control(vocab.encode("a")[0])
    assert "messages" in vocab.template
    assert vocab.template_for_tools is None
    assert vocab.metadata()["general.architecture"] == "llama"
    for bad in (-1, vocab.n_vocab):
        with pytest.raises(ValueError, match="no token"):
            vocab.piece(bad)


# Beyond these, this vocabulary lacks single bytes and drops what it cannot spell.
@given(st.text(st.characters(min_codepoint=32, max_codepoint=0x6FF, exclude_categories=["Cc"]), max_size=200))
@settings(deadline=None)
def test_pieces_give_the_text_back(vocab, text):
    pieces = b"".join(vocab.piece(t) for t in vocab.encode(text, special=False))
    assert pieces == text.encode()


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_surrogates_are_refused(vocab, text):
    with pytest.raises(RequestError, match="surrogate"):
        vocab.encode(text)


@pytest.mark.parametrize("unit", ["a", " ", "\n", "1", "é", "中", "!", "aA"])
def test_long_runs_are_quick_on_any_thread(vocab, unit):
    began = time.monotonic()
    text = unit * 30_000
    assert vocab.encode(text) == tokenizing_pool().submit(vocab.encode, text).result()
    assert time.monotonic() - began < 5


def test_endless_runs_are_refused(vocab):
    began = time.monotonic()
    with pytest.raises(RequestError, match="at most"):
        vocab.encode("a" * (LONGEST_RUN + 1))
    assert vocab.encode("word " * 150_000)
    assert time.monotonic() - began < 10
