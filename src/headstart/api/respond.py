"""Numbers and envelopes that all OpenAI-shaped answers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from ..messages import Progress, Timings
from ..types import Source
from .choice import Choice
from .jobs import Job
from .services import Services

encode = msgspec.json.Encoder().encode


PARTING_TOKENS = 8  # shown on each side of where a prompt parts from the cache


def json_response(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``body`` as JSON."""
    return Response(encode(body), status, headers, media_type="application/json")


def envelope(job: Job, services: Services, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    """The outside of a body or a stream chunk; ``kind`` is the API's ``object``."""
    return {
        "id": job.id,
        "object": kind,
        "created": job.created,
        "model": job.model,
        "system_fingerprint": services.fingerprint,
        "choices": choices,
    }


def leaders(job: Job, choices: Sequence[Choice]) -> list[Choice]:
    """For each prompt the choice that computed most of it; the others of the same prompt attached to it."""
    groups = [choices[i : i + job.n] for i in range(0, len(choices), job.n)]
    return [max(group, key=lambda choice: choice.timings.prompt_n) for group in groups]


def usage_of(job: Job, choices: Sequence[Choice]) -> dict[str, Any]:
    """Token counts; each prompt counts once. cached_tokens + the prompt tokens computed == prompt_tokens."""
    lead = leaders(job, choices)
    completion = sum(choice.generated for choice in choices)
    return {
        "prompt_tokens": job.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": job.prompt_tokens + completion,
        "prompt_tokens_details": {
            "cached_tokens": sum(choice.timings.cache_n for choice in lead),
            "cache_write_tokens": sum(choice.finished.written for choice in lead if choice.finished),
        },
    }


def totals(job: Job, choices: Sequence[Choice]) -> Timings:
    """One account for all choices: they ran side by side, so tokens add up and times overlap."""
    lead = [choice.timings for choice in leaders(job, choices)]
    every = [choice.timings for choice in choices]
    return Timings(
        cache_n=sum(t.cache_n for t in lead),
        prompt_n=sum(t.prompt_n for t in lead),
        prompt_ms=max(t.prompt_ms for t in lead),
        predicted_n=sum(choice.generated for choice in choices),
        predicted_ms=max(t.predicted_ms for t in every),
        queue_ms=max(t.queue_ms for t in lead),
    )


def timings_of(t: Timings) -> dict[str, Any]:
    """llama-server's ``timings`` object."""
    return {
        "cache_n": t.cache_n,
        "prompt_n": t.prompt_n,
        "prompt_ms": round(t.prompt_ms, 3),
        "prompt_per_token_ms": _ratio(t.prompt_ms, t.prompt_n),
        "prompt_per_second": _ratio(1000 * t.prompt_n, t.prompt_ms),
        "predicted_n": t.predicted_n,
        "predicted_ms": round(t.predicted_ms, 3),
        "predicted_per_token_ms": _ratio(t.predicted_ms, t.predicted_n),
        "predicted_per_second": _ratio(1000 * t.predicted_n, t.predicted_ms),
    }


def progress_of(progress: Progress) -> dict[str, Any]:
    """llama-server's ``prompt_progress`` object."""
    return {
        "total": progress.total,
        "cache": progress.cached,
        "processed": progress.processed,
        "time_ms": round(progress.time_ms),
    }


def headstart_of(job: Job, choices: Sequence[Choice]) -> dict[str, Any]:
    """Where the first prompt's prefix came from, and why no more of it was reused."""
    lead = leaders(job, choices)[0]
    started = lead.started
    return {
        "source": (started.source if started else Source.NONE).value,
        "cached_tokens": lead.timings.cache_n,
        "source_tokens": started.source_tokens if started else 0,
        "reason": started.reason if started else "",
        "parts_at": parting_of(lead),
        "queue_ms": round(lead.timings.queue_ms, 3),
    }


def parting_of(choice: Choice) -> dict[str, Any] | None:
    """The token from which the prompt differs from all that is cached, and the text around it."""
    at = choice.started.parts_at if choice.started else None
    if at is None:
        return None
    before, after = choice.text_of(at - PARTING_TOKENS, at), choice.text_of(at, at + PARTING_TOKENS)
    return {"token": at, "before": before, "text": after}


def account(job: Job, choices: Sequence[Choice]) -> dict[str, Any]:
    """What the last chunk and a whole body say beside the answer."""
    return {"timings": timings_of(totals(job, choices)), "headstart": headstart_of(job, choices)}


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole > 0 else 0.0
