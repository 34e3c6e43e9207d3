"""Sampling fields of a request to the worker's settings."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from .. import messages
from ..chat.tokenizer import Tokenizer
from ..errors import RequestError
from .limits import MAX_BIAS
from .wire_sampling import Bias, SamplingFields

_SAME_NAME = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
    "dry_multiplier", "dry_base", "dry_allowed_length", "xtc_probability", "xtc_threshold", "mirostat",
    "mirostat_tau", "mirostat_eta", "ignore_eos",
)  # fmt: skip


def sampling_of(
    fields: SamplingFields, tokenizer: Tokenizer, n_ctx: int, *, grammar: str | None, n_probs: int | None
) -> messages.Sampling:
    """Settings for one choice; what the request leaves out keeps llama-server's default. Raises `RequestError` 400."""
    given: dict[str, Any] = {}
    for name in _SAME_NAME:
        value = getattr(fields, name)
        if value is not None:
            given[name] = value
    if fields.repetition_penalty is not None and fields.repeat_penalty is None:
        given["repeat_penalty"] = fields.repetition_penalty
    for name in ("repeat_last_n", "dry_penalty_last_n"):
        value = getattr(fields, name)
        if value is not None:
            # The library reserves memory for that many tokens, and more than the context never occur.
            given[name] = n_ctx if value < 0 else min(value, n_ctx)
    if fields.dry_sequence_breakers is not None:
        given["dry_sequence_breakers"] = tuple(fields.dry_sequence_breakers)
    if fields.seed is not None and fields.seed >= 0:
        given["seed"] = fields.seed & 0xFFFFFFFF
    if fields.logit_bias:
        given["logit_bias"] = biases_of(fields.logit_bias, tokenizer)
    return messages.Sampling(**given, grammar=grammar, n_probs=n_probs)


def biases_of(pairs: list[Bias], tokenizer: Tokenizer) -> tuple[tuple[int, float], ...]:
    """Biases by token; a text stands for each of its tokens. Raises `RequestError` 400 on ids out of range."""
    biases: dict[int, float] = {}
    for token, bias in pairs:
        if isinstance(token, int):
            if not 0 <= token < tokenizer.n_vocab:
                raise RequestError(
                    f"Invalid value for 'logit_bias': no token {token} in a vocabulary of {tokenizer.n_vocab}",
                    param="logit_bias",
                    code="invalid_value",
                )
            biases[token] = bias
        else:
            biases.update(dict.fromkeys(tokenizer.encode(token[:256]), bias))
    if len(biases) > MAX_BIAS:
        raise RequestError(
            f"Invalid value for 'logit_bias': more than {MAX_BIAS} tokens", param="logit_bias", code="invalid_value"
        )
    return tuple(biases.items())


def seeded(sampling: messages.Sampling, choice: int) -> messages.Sampling:
    """The settings for choice number ``choice``: equal seeds would give equal choices."""
    if choice == 0 or sampling.seed is None:
        return sampling
    return structs.replace(sampling, seed=(sampling.seed + choice) & 0xFFFFFFFF)
