"""Short words for driving an engine in tests."""

from __future__ import annotations

import numpy as np

from headstart.core.plan import Decode, Drop, Pick, Prefill, Step
from headstart.engine.llama import LlamaEngine
from headstart.engine.settings import EngineSettings
from headstart.messages import Sampling

GREEDY = Sampling(temperature=0.0)


def engine(path: str, **settings) -> LlamaEngine:
    # Without flash attention each token's result is the same in chunks of any size; see docs of `EngineSettings`.
    defaults = {"n_ctx": 4096, "n_batch": 256, "n_ubatch": 256, "n_seq": 16, "flash_attn": "off", "n_threads": 1}
    return LlamaEngine(EngineSettings(model=path, **{**defaults, "n_threads_batch": 1, **settings}), keep_logits=True)


def tokens(count: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(20, 1000, count).tolist()


def prefill(e: LlamaEngine, name: str, seq: int, run: list[int], start: int = 0, *, sample: bool = True) -> Pick | None:
    """Compute ``run`` on ``seq`` in the engine's batch size; the token sampled at its end."""
    size, result = 256, None
    for at in range(0, len(run), size):
        part = tuple(run[at : at + size])
        last = at + size >= len(run)
        result = e.run(Step(prefills=(Prefill(name, seq, start + at, part, sample and last),)))
    assert result is not None
    assert not result.failed
    return result.picks[0] if sample else None


def cold(e: LlamaEngine, run: list[int], seq: int = 0) -> np.ndarray:
    """Logits after ``run`` computed on an empty sequence, which is empty again afterwards."""
    e.open("cold", GREEDY, run)
    prefill(e, "cold", seq, run)
    logits = e.logits("cold")
    e.close("cold")
    e.perform(Drop(seq))
    return logits


def generate(
    e: LlamaEngine, name: str, seq: int, prompt: list[int], count: int, sampling: Sampling, stop=None
) -> list[int]:
    """``count`` tokens after ``prompt``, or up to one that ``stop`` knows; ``seq`` is empty before and after."""
    e.open(name, sampling, prompt)
    pick = prefill(e, name, seq, prompt)
    out = [pick.token]
    for i in range(count - 1):
        if stop and stop(out[-1]):
            out.pop()
            break
        (pick,) = e.run(Step(decodes=(Decode(name, seq, len(prompt) + i, out[-1]),))).picks
        out.append(pick.token)
    e.close(name)
    e.perform(Drop(seq))
    return out
