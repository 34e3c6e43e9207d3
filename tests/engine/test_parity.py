"""Reused prefixes give the logits of a cold prefill, bit for bit, on each kind of memory."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.bench.generate import ARCHITECTURES
from headstart.core.plan import Attach, Decode, Drop, Forget, Hold, Prefill, Save, Step
from headstart.engine.protocol import Refused
from tests.engine.drive import GREEDY, cold, engine, prefill, tokens

STATEFUL = ["qwen35", "qwen35moe", "lfm2", "mamba2"]
FREE = ["llama", "qwen3moe"]


@pytest.fixture(params=list(ARCHITECTURES))
def any_engine(request, tiny_model):
    e = engine(tiny_model(request.param))
    yield e
    e.shutdown()


def test_kind_is_what_the_architecture_says(any_engine):
    arch = any_engine.info.description.split()[0]
    assert any_engine.info.kind == ARCHITECTURES[arch]


@pytest.mark.parametrize("cut", [256, 300])
def test_attach_at_a_holder_equals_cold(any_engine, cut):
    e, prompt = any_engine, tokens(380)
    expected = cold(e, prompt)
    e.open("donor", GREEDY, prompt)
    prefill(e, "donor", 0, prompt[:cut], sample=False)
    e.perform(Hold(0, 8, cut))
    prefill(e, "donor", 0, prompt[cut:], cut)
    prefill(e, "donor", 0, tokens(100, seed=5), len(prompt), sample=False)
    e.perform(Attach("sibling", 8, 1, cut))
    e.open("sibling", GREEDY, prompt)
    prefill(e, "sibling", 1, prompt[cut:], cut)
    assert np.array_equal(e.logits("donor"), expected)
    assert np.array_equal(e.logits("sibling"), expected)


@pytest.mark.parametrize("arch", FREE)
@pytest.mark.parametrize("cut", [1, 64, 255, 379])
def test_attach_below_a_running_donor_equals_cold(tiny_model, arch, cut):
    e, prompt = engine(tiny_model(arch)), tokens(380)
    expected = cold(e, prompt)
    e.open("donor", GREEDY, prompt)
    prefill(e, "donor", 0, prompt + tokens(200, seed=7))
    e.perform(Attach("sibling", 0, 1, cut))
    e.open("sibling", GREEDY, prompt)
    prefill(e, "sibling", 1, prompt[cut:], cut)
    assert np.array_equal(e.logits("sibling"), expected)
    e.shutdown()


@pytest.mark.parametrize("arch", STATEFUL)
def test_saved_state_under_borrowed_cells_equals_cold(tiny_model, arch):
    e, prompt = engine(tiny_model(arch)), tokens(380)
    expected = cold(e, prompt)
    e.open("donor", GREEDY, prompt)
    prefill(e, "donor", 0, prompt[:256], sample=False)
    assert e.perform(Save(0, 256, 7)) > 0
    prefill(e, "donor", 0, prompt[256:], 256)
    e.perform(Attach("sibling", 0, 1, 256, 7))
    e.open("sibling", GREEDY, prompt)
    prefill(e, "sibling", 1, prompt[256:], 256)
    assert np.array_equal(e.logits("sibling"), expected)
    e.perform(Forget(7))
    with pytest.raises(Refused):
        e.perform(Attach("late", 0, 2, 256, 7))
    with pytest.raises(Refused, match="stands at"):
        e.perform(Attach("off", 0, 3, 100))
    e.shutdown()


def test_a_saved_state_alone_equals_cold_where_tokens_take_no_cells(tiny_model):
    e, prompt = engine(tiny_model("mamba2")), tokens(380)
    expected = cold(e, prompt)
    e.open("donor", GREEDY, prompt)
    prefill(e, "donor", 0, prompt[:256], sample=False)
    e.perform(Save(0, 256, 7))
    e.perform(Drop(0))
    e.perform(Attach("sibling", None, 1, 256, 7))
    e.open("sibling", GREEDY, prompt)
    prefill(e, "sibling", 1, prompt[256:], 256)
    assert np.array_equal(e.logits("sibling"), expected)
    with pytest.raises(Refused, match="cells can only be shared"):
        e.perform(Attach("nobody", None, 2, 256))
    e.shutdown()


@pytest.mark.parametrize("arch", [arch for arch in STATEFUL if arch != "mamba2"])
def test_a_saved_state_alone_is_refused_where_tokens_take_cells(tiny_model, arch):
    e, prompt = engine(tiny_model(arch)), tokens(300)
    prefill(e, "donor", 0, prompt[:256], sample=False)
    e.perform(Save(0, 256, 7))
    with pytest.raises(Refused, match="cells can only be shared"):
        e.perform(Attach("sibling", None, 1, 256, 7))
    assert np.array_equal(cold(e, prompt, seq=1), cold(e, prompt, seq=2))
    e.shutdown()


@pytest.mark.parametrize("arch", STATEFUL)
def test_a_cut_state_is_refused_and_leaves_nothing(tiny_model, arch):
    e, prompt = engine(tiny_model(arch)), tokens(300)
    expected = cold(e, prompt, seq=1)
    e.open("donor", GREEDY, prompt)
    prefill(e, "donor", 0, prompt[:256], sample=False)
    with pytest.raises(Refused):
        e.perform(Save(0, 255, 7))
    e.perform(Save(0, 256, 7))
    prefill(e, "donor", 0, prompt[256:], 256)
    with pytest.raises(Refused):
        e.perform(Attach("x", 0, 1, 200, 7))
    e.perform(Drop(0))
    assert np.array_equal(cold(e, prompt, seq=1), expected)
    e.shutdown()


@pytest.mark.parametrize("arch", FREE)
def test_attention_has_no_state_to_save(tiny_model, arch):
    e = engine(tiny_model(arch))
    prefill(e, "a", 0, tokens(64), sample=False)
    with pytest.raises(Refused, match="no state"):
        e.perform(Save(0, 64, 1))
    e.shutdown()


def test_sliding_window_refuses_below_its_window(tiny_model):
    e, prompt = engine(tiny_model("gemma3"), n_ctx=8192, n_seq=2), tokens(3000)
    e.open("donor", GREEDY, prompt)
    prefill(e, "donor", 0, prompt, sample=False)
    with pytest.raises(Refused):
        e.perform(Attach("sibling", 0, 1, 500))
    e.perform(Attach("sibling", 0, 1, 3000))
    e.shutdown()


def test_one_step_for_many_equals_each_alone(any_engine):
    e = any_engine
    prompts = [tokens(60 + 13 * i, seed=i) for i in range(4)]
    alone = [cold(e, [*p, 50]) for p in prompts[:3]]
    long_alone = cold(e, prompts[3])
    for i, prompt in enumerate(prompts):
        e.open(str(i), GREEDY, prompt)
    for i in range(3):
        prefill(e, str(i), i, prompts[i], sample=False)
    decodes = tuple(Decode(str(i), i, len(prompts[i]), 50) for i in range(3))
    result = e.run(Step(decodes=decodes, prefills=(Prefill("3", 3, 0, tuple(prompts[3]), True),)))
    assert [p.request for p in result.picks] == ["0", "1", "2", "3"]
    for i, expected in enumerate([*alone, long_alone]):
        got = e.logits(str(i))
        # Neighbours move cells about, which changes the order of sums and so the last bits.
        assert int(got.argmax()) == int(expected.argmax())
        assert np.abs(got - expected).max() < 0.05
