"""What the engine does at its limits: no cells, broken samplers, wrong ids."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.core.plan import Attach, Decode, Drop, Hold, Prefill, Step
from headstart.engine.protocol import OutOfCells
from headstart.errors import EngineError, RequestError
from headstart.messages import Sampling
from tests.engine.drive import GREEDY, cold, engine, generate, prefill, tokens


@pytest.fixture
def llama(tiny_model):
    e = engine(tiny_model("llama"), n_ctx=1024)
    yield e
    e.shutdown()


@pytest.mark.parametrize("arch", ["llama", "qwen35", "gemma3"])
def test_out_of_cells_changes_nothing(tiny_model, arch):
    e = engine(tiny_model(arch), n_ctx=1024, n_ubatch=128)
    runs = [tokens(330, seed=i) for i in range(3)]
    expected = cold(e, [*runs[2], 50])
    for i, run in enumerate(runs):
        e.open(str(i), GREEDY, run)
        prefill(e, str(i), i, run, sample=False)
    step = Step(
        decodes=tuple(Decode(str(i), i, 330, 50) for i in range(3)),
        prefills=(Prefill("3", 3, 0, tuple(tokens(200)), True),),
    )
    e.open("3", GREEDY, [])
    with pytest.raises(OutOfCells):
        e.run(step)
    e.perform(Drop(1))
    e.perform(Drop(0))
    e.run(Step(decodes=(Decode("2", 2, 330, 50),)))
    assert np.abs(e.logits("2") - expected).max() < 0.05
    assert prefill(e, "3", 3, tokens(200)) is not None
    e.shutdown()


def test_attach_costs_no_cells(llama):
    run = tokens(900)
    prefill(llama, "a", 0, run, sample=False)
    for seq in range(1, 8):
        llama.perform(Attach("b", 0, seq, 900))
        prefill(llama, "b", seq, tokens(10), 900, sample=False)
    llama.perform(Drop(0))
    prefill(llama, "c", 0, tokens(50), sample=False)
    with pytest.raises(OutOfCells):
        prefill(llama, "d", 9, tokens(100), sample=False)


def test_ids_that_would_end_the_process_are_caught(llama):
    prefill(llama, "a", 0, tokens(10), sample=False)
    for action in (Drop(16), Hold(0, 99, 5), Attach("x", -1, 1, 5)):
        with pytest.raises(EngineError):
            llama.perform(action)
    with pytest.raises(EngineError, match="not empty"):
        llama.perform(Hold(0, 0, 5))
    with pytest.raises(EngineError):
        llama.run(Step(prefills=(Prefill("a", 0, 10, tuple(tokens(300)), False),)))
    with pytest.raises(EngineError):
        llama.run(Step(prefills=(Prefill("a", 77, 0, (5,), False),)))
    with pytest.raises(EngineError):
        llama.run(Step(decodes=(Decode("a", 0, 500, 5),)))
    with pytest.raises(EngineError):
        llama.run(Step(decodes=(Decode("a", 0, 10, 5000),)))
    with pytest.raises(RequestError):
        llama.open("b", GREEDY, [5, 5000])


def test_a_broken_sampler_fails_alone(llama):
    llama.open("ok", GREEDY, [])
    llama.open("bad", Sampling(temperature=0.0, grammar='root ::= "a"'), [])
    step = Step(prefills=(Prefill("bad", 0, 0, (30,), True), Prefill("ok", 1, 0, (30,), True)))
    result = llama.run(step)
    assert {p.request for p in result.picks} >= {"ok"}
    result = llama.run(Step(decodes=(Decode("gone", 0, 1, 40), Decode("ok", 1, 1, 40))))
    assert [(f.id, f.message) for f in result.failed] == [("gone", "the request has no sampler")]
    assert [p.request for p in result.picks] == ["ok"]


def test_seed_decides_the_draw(llama):
    prompt = tokens(40)
    draw = [generate(llama, "a", 0, prompt, 12, Sampling(temperature=1.5, seed=s)) for s in (1, 1, 2)]
    assert draw[0] == draw[1] != draw[2]


def test_logprobs_are_those_of_the_raw_logits(llama):
    llama.open("a", Sampling(temperature=0.0, n_probs=5, logit_bias=((77, 100.0),)), [])
    pick = prefill(llama, "a", 0, tokens(20))
    logits = llama.logits("a").astype(np.float64)
    exact = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    assert pick.token == 77
    assert pick.logprob == pytest.approx(exact[77], abs=1e-6)
    assert [t for t, _ in pick.top] == list(np.argsort(-exact)[:5])
    assert pick.top[0][1] == pytest.approx(exact.max(), abs=1e-6)
