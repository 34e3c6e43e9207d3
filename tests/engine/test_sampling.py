"""Every sampler setting is either refused with its name or cannot hurt the process."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.core.plan import Drop, Prefill, Step
from headstart.engine.sampler import SamplerBroke
from headstart.errors import RequestError
from headstart.messages import Sampling
from tests.engine.drive import engine, generate, tokens


@pytest.fixture(scope="module")
def llama(tiny_model):
    e = engine(tiny_model("llama"), n_ctx=512)
    yield e
    e.shutdown()


ODD = st.sampled_from([0.0, -1.0, 1e-30, 1.0, 1e30, -1e30, math.inf, -math.inf, math.nan, 0.5, 2.0])
FLOATS = ["temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
          "dry_multiplier", "dry_base", "xtc_probability", "xtc_threshold", "mirostat_tau", "mirostat_eta"]  # fmt: skip
INTS = ["top_k", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "mirostat", "seed", "n_probs"]


@given(
    st.dictionaries(st.sampled_from(FLOATS), ODD, max_size=4),
    st.dictionaries(st.sampled_from(INTS), st.sampled_from([-(2**40), -2, -1, 0, 1, 2, 5, 2**31, 2**64]), max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_odd_numbers(llama, floats, ints):
    try:
        llama.open("a", Sampling(**floats, **ints), tokens(30))
    except RequestError as error:
        assert error.status == 400
        return
    llama.run(Step(prefills=(Prefill("a", 0, 0, (30, 31), True),)))
    llama.close("a")
    llama.perform(Drop(0))


def test_penalties_see_the_prompt(llama):
    prompt = tokens(30)
    greedy = Sampling(temperature=0.0)
    (first,) = generate(llama, "a", 0, prompt, 1, greedy)
    seen = [*prompt[:-1], first, prompt[-1]]
    base = generate(llama, "a", 0, seen, 1, greedy)[0]
    pushed = msgspec.structs.replace(greedy, presence_penalty=1000.0)
    assert generate(llama, "a", 0, [base, *seen], 1, pushed)[0] not in seen


def test_bans(llama):
    everything = tuple((t, -math.inf) for t in range(1024))
    assert generate(llama, "a", 0, tokens(9), 1, Sampling(logit_bias=everything))
    with pytest.raises(RequestError, match="logit_bias"):
        llama.open("a", Sampling(logit_bias=((1024, 1.0),)), [])
    forced = Sampling(temperature=0.0, logit_bias=((500, 1e9),), ignore_eos=True)
    assert generate(llama, "a", 0, tokens(9), 3, forced) == [500] * 3


def test_logits_that_are_no_numbers_break_the_sampler_only(llama):
    import numpy as np

    llama.open("a", Sampling(), [])
    with pytest.raises(SamplerBroke):
        llama._samplers["a"].sample(None, 0, np.full(1024, np.nan, np.float32))
    llama.close("a")
