"""Fields that both completion endpoints share: sampling, lengths, prompt caching, streaming."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from .limits import (
    MAX_BIAS,
    MAX_BREAKERS,
    MAX_CHOICES,
    MAX_GRAMMAR_CHARS,
    MAX_MODEL_CHARS,
    MAX_STOP_CHARS,
    MAX_STOPS,
)
from .wire import Index, Int, Share, Text, Wire

Bias = tuple[int | str, float]  # a token or a text whose tokens are meant; -inf forbids
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _seconds(value: Any) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(r"(\d{1,6})([smhd])", value)
        if match is None:
            raise ValueError("a lifetime looks like 30m or 12h")
        return float(int(match[1]) * _UNITS[match[2]])
    return value


Lifetime = Annotated[float, BeforeValidator(_seconds), Field(gt=0, le=366 * 86400)]


class CacheOptions(Wire):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: Lifetime | None = None


class Breakpoint(Wire):
    mode: Literal["explicit"] | None = None
    ttl: Lifetime | None = None


class StreamOptions(Wire):
    include_usage: bool | None = None


class SamplingFields(Wire):
    """llama-server's names; the bounds refuse what no sampler can mean."""

    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_k: Index | None = None
    top_p: Share | None = None
    min_p: Share | None = None
    typical_p: Share | None = None
    repeat_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None  # vLLM's name
    repeat_last_n: Annotated[Index, Field(ge=-1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-100, le=100)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-100, le=100)] | None = None
    dry_multiplier: Annotated[float, Field(ge=0, le=1000)] | None = None
    dry_base: Annotated[float, Field(ge=0, le=1000)] | None = None
    dry_allowed_length: Annotated[Index, Field(ge=0)] | None = None
    dry_penalty_last_n: Annotated[Index, Field(ge=-1)] | None = None
    dry_sequence_breakers: Annotated[list[Text], Field(min_length=1, max_length=MAX_BREAKERS)] | None = None
    xtc_probability: Share | None = None
    xtc_threshold: Share | None = None
    mirostat: Annotated[Int, Field(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[float, Field(ge=0, le=1000)] | None = None
    mirostat_eta: Annotated[float, Field(ge=0, le=1000)] | None = None
    logit_bias: list[Bias] | None = None
    seed: Annotated[Int, Field(ge=-(2**63), le=2**64 - 1)] | None = None
    ignore_eos: bool | None = None
    grammar: Annotated[Text, Field(max_length=MAX_GRAMMAR_CHARS)] | None = None
    json_schema: dict[str, Any] | None = None

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _biases(cls, value: Any) -> Any:
        """OpenAI sends {"id": bias}; llama-server also takes [[id or text, bias or false], ...]."""
        if value is None:
            return None
        if isinstance(value, dict):
            pairs = [[_token_id(key), bias] for key, bias in value.items()]
        elif isinstance(value, list):
            pairs = value
        else:
            raise ValueError("expected an object or a list of pairs")
        if len(pairs) > MAX_BIAS:
            raise ValueError(f"at most {MAX_BIAS} entries")
        return [_bias(pair) for pair in pairs]


def _token_id(key: str) -> int | str:
    # A JSON object's keys are strings; OpenAI means ids, llama-server also takes texts here.
    return int(key) if re.fullmatch(r"-?\d{1,10}", key) else key


def _bias(pair: Any) -> Bias:
    if not isinstance(pair, list) or len(pair) != 2:
        raise ValueError("each entry is a pair of a token and a bias")
    token, bias = pair
    if isinstance(token, bool) or not isinstance(token, int | str):
        raise ValueError("a token is an id or a text")
    if bias is False:
        return token, float("-inf")
    if isinstance(bias, bool) or not isinstance(bias, int | float) or not -1000 <= bias <= 1000:
        raise ValueError("a bias is a number between -1000 and 1000, or false")
    return token, float(bias)


class CommonFields(SamplingFields):
    """``max_tokens`` and its other names: -1 is llama-server's "no limit"; too many are clamped later."""

    model: Annotated[Text, Field(max_length=MAX_MODEL_CHARS)] | None = None
    n: Annotated[Int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Annotated[Int, Field(ge=-1)] | None = None
    n_predict: Annotated[Int, Field(ge=-1)] | None = None
    stop: list[Text] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    cache_prompt: bool | None = None
    cache_salt: Annotated[Text, Field(max_length=1024)] | None = None
    prompt_cache_key: Text | None = None
    prompt_cache_options: CacheOptions | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _stops(cls, value: Any) -> Any:
        stops = [value] if isinstance(value, str) else value
        if not isinstance(stops, list):
            if stops is None:
                return None
            raise ValueError("expected a string or a list of strings")
        if len(stops) > MAX_STOPS or any(isinstance(s, str) and len(s) > MAX_STOP_CHARS for s in stops):
            raise ValueError(f"at most {MAX_STOPS} strings of at most {MAX_STOP_CHARS} characters")
        return stops

    @property
    def explicit(self) -> bool:
        """Only marked prefixes are to be kept."""
        return self.prompt_cache_options is not None and self.prompt_cache_options.mode == "explicit"

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)
