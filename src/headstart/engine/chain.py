"""The library's sampler chain for a request's settings, in llama-server's order; every value is checked before."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Any

import llama_cpp.llama_cpp as C

from ..errors import RequestError
from ..messages import Sampling
from .dry import MAX_BREAKER_CHARS, MAX_BREAKERS, Dry
from .lib import Handle

MIN_KEEP = 0
COLDEST = 1e-4  # below it the distribution is one token and float32 overflows: greedy
BANNED = -1e9  # stands for minus infinity: with every token banned, infinities would turn into NaN
MAX_BIASES = 4096
RANDOM_SEED = 0xFFFFFFFF  # the library's "draw one", which would not be repeatable

# name -> (lowest, highest) accepted value, both included
RANGES: dict[str, tuple[float, float]] = {
    "temperature": (-math.inf, 1e6),
    "top_k": (-(2**31), 2**31 - 1),
    "top_p": (0.0, math.inf),
    "min_p": (-math.inf, 1.0),
    "typical_p": (0.0, math.inf),
    "repeat_penalty": (1e-6, 1e6),
    "repeat_last_n": (-1, 2**31 - 1),
    "presence_penalty": (-1e6, 1e6),
    "frequency_penalty": (-1e6, 1e6),
    "dry_multiplier": (-math.inf, 1e6),
    "dry_base": (0.0, 1e6),
    "dry_allowed_length": (0, 2**31 - 1),
    "dry_penalty_last_n": (-1, 2**31 - 1),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "mirostat": (0, 2),
    "mirostat_tau": (0.0, 1e6),
    "mirostat_eta": (0.0, 1e6),
}


def check(sampling: Sampling, n_vocab: int) -> None:
    """Raise `RequestError` naming the first field that the library could not take."""
    for name, (low, high) in RANGES.items():
        value = getattr(sampling, name)
        if not low <= value <= high or math.isnan(value):
            raise RequestError(f"{name} must lie between {low:g} and {high:g}, not {value}", param=name)
    if len(sampling.logit_bias) > MAX_BIASES:
        raise RequestError(f"logit_bias takes at most {MAX_BIASES} tokens", param="logit_bias")
    for token, bias in sampling.logit_bias:
        if not 0 <= token < n_vocab:
            raise RequestError(f"logit_bias names token {token}; the model has {n_vocab} tokens", param="logit_bias")
        if math.isnan(bias) or bias == math.inf:
            raise RequestError("logit_bias values must be finite or minus infinity", param="logit_bias")
    breakers = sampling.dry_sequence_breakers
    if len(breakers) > MAX_BREAKERS or any(len(b) > MAX_BREAKER_CHARS for b in breakers):
        raise RequestError(
            f"dry_sequence_breakers takes at most {MAX_BREAKERS} texts of {MAX_BREAKER_CHARS} characters",
            param="dry_sequence_breakers",
        )
    if sampling.n_probs is not None and sampling.n_probs < 0:
        raise RequestError("logprobs must not be negative", param="top_logprobs")


def draw_seed(seed: int | None) -> int:
    """A 32-bit seed that repeats; None and negative seeds draw one, as llama-server does."""
    if seed is None or seed < 0:
        return secrets.randbelow(RANDOM_SEED)
    return (seed & 0xFFFFFFFF) % RANDOM_SEED


def is_greedy(sampling: Sampling) -> bool:
    """Whether the most likely token is taken without drawing."""
    return sampling.temperature < COLDEST


def history(sampling: Sampling, n_ctx: int) -> int:
    """How many of the latest tokens the penalties look back on; 0 where none is on."""
    if sampling.mirostat and not is_greedy(sampling):
        return 0
    spans = []
    if _penalizes(sampling):
        spans.append(sampling.repeat_last_n)
    if _dries(sampling):
        spans.append(sampling.dry_penalty_last_n)
    return max((n_ctx if n < 0 else min(n, n_ctx) for n in spans), default=0)


def build(sampling: Sampling, dry: Dry, n_vocab: int, n_ctx: int, end_tokens: list[int]) -> Handle:
    """A chain handle for checked settings; free it with ``llama_sampler_free``. Grammar is kept apart."""
    params = C.llama_sampler_chain_default_params()
    chain = C.llama_sampler_chain_init(params)
    try:
        for sampler in _samplers(sampling, dry, n_vocab, n_ctx, end_tokens):
            if not sampler:
                raise RequestError("the library refused these sampler settings")
            C.llama_sampler_chain_add(chain, sampler)
    except BaseException:
        C.llama_sampler_free(chain)
        raise
    return chain


def _samplers(s: Sampling, dry: Dry, n_vocab: int, n_ctx: int, end_tokens: list[int]) -> list[Any]:
    seed, greedy = draw_seed(s.seed), is_greedy(s)
    # First of all: it may refuse, and nothing that was made before would be freed.
    dried = [dry.sampler(s)] if _dries(s) and (greedy or not s.mirostat) else []
    parts: list[Any] = []
    biases = _biases(s, end_tokens)
    if biases:
        array = (C.llama_logit_bias * len(biases))(*[C.llama_logit_bias(t, b) for t, b in biases.items()])
        parts.append(C.llama_sampler_init_logit_bias(n_vocab, len(biases), array))
    if s.mirostat and not greedy:
        parts.append(C.llama_sampler_init_temp(s.temperature))
        if s.mirostat == 1:
            return [*parts, C.llama_sampler_init_mirostat(n_vocab, seed, s.mirostat_tau, s.mirostat_eta, 100)]
        return [*parts, C.llama_sampler_init_mirostat_v2(seed, s.mirostat_tau, s.mirostat_eta)]
    if _penalizes(s):
        last = n_ctx if s.repeat_last_n < 0 else min(s.repeat_last_n, n_ctx)
        parts.append(
            C.llama_sampler_init_penalties(n_vocab, last, s.repeat_penalty, s.frequency_penalty, s.presence_penalty)
        )
    parts.extend(dried)
    # Greedy picks the best token, which only these two filters can take away.
    if not greedy or s.typical_p < 1.0 or s.xtc_probability > 0.0:
        parts.extend(_filters(s, seed))
    if greedy:
        return [*parts, C.llama_sampler_init_greedy()]
    return [*parts, C.llama_sampler_init_temp(s.temperature), C.llama_sampler_init_dist(seed)]


def _filters(s: Sampling, seed: int) -> list[Any]:
    made: list[tuple[bool, Callable[[], Any]]] = [
        (s.top_k > 0, lambda: C.llama_sampler_init_top_k(s.top_k)),
        (s.typical_p < 1.0, lambda: C.llama_sampler_init_typical(s.typical_p, MIN_KEEP)),
        (s.top_p < 1.0, lambda: C.llama_sampler_init_top_p(s.top_p, MIN_KEEP)),
        (s.min_p > 0.0, lambda: C.llama_sampler_init_min_p(s.min_p, MIN_KEEP)),
        (s.xtc_probability > 0.0, lambda: C.llama_sampler_init_xtc(s.xtc_probability, s.xtc_threshold, MIN_KEEP, seed)),
    ]
    return [make() for on, make in made if on]


def _penalizes(s: Sampling) -> bool:
    changed = s.repeat_penalty != 1.0 or s.frequency_penalty != 0.0 or s.presence_penalty != 0.0
    return changed and s.repeat_last_n != 0


def _dries(s: Sampling) -> bool:
    return s.dry_multiplier > 0.0 and s.dry_base >= 1.0 and s.dry_penalty_last_n != 0


def _biases(s: Sampling, end_tokens: list[int]) -> dict[int, float]:
    biases: dict[int, float] = {}
    for token, bias in s.logit_bias:
        biases[token] = max(BANNED, min(-BANNED, biases.get(token, 0.0) + bias))
    if s.ignore_eos:
        biases.update(dict.fromkeys(end_tokens, BANNED))
    return biases
