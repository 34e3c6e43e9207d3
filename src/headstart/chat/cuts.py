"""Which of the places in a prompt become cuts."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Cut, CutReason

MAX_WRITES = 4
MIN_DISTANCE = 64  # tokens; a cut ends a batch, and a state saved closer than this repays nothing
GEOMETRIC = (64, 512, 4096)  # tokens before the head's end: dates and ids stand near it

_RANK = {
    CutReason.EXPLICIT: 0,
    CutReason.HEAD: 1,
    CutReason.LAST_PART: 2,
    CutReason.GENERATION: 3,
    CutReason.LAST_USER: 4,
    CutReason.GEOMETRIC: 5,
}


@dataclass(frozen=True, slots=True)
class Candidate:
    position: int
    reason: CutReason
    ttl: float | None = None


def with_geometric(candidates: list[Candidate]) -> list[Candidate]:
    """Adds positions at fixed distances before the head's end, where there is a head."""
    heads = [c.position for c in candidates if c.reason is CutReason.HEAD]
    return candidates + [
        Candidate(head - distance, CutReason.GEOMETRIC)
        for head in heads
        for distance in GEOMETRIC
        if head - distance >= MIN_DISTANCE
    ]


def choose(candidates: list[Candidate], n_tokens: int, *, implicit: bool) -> list[Cut]:
    """Ascending cuts inside (0, n_tokens): explicit ones (the latest four, three beside the implicit one) and the
    head always, others where none that matters more is within `MIN_DISTANCE`."""
    inside = [c for c in candidates if 0 < c.position < n_tokens]
    explicit = sorted((c for c in inside if c.reason is CutReason.EXPLICIT), key=lambda c: c.position)
    latest = explicit[-(MAX_WRITES - 1 if implicit else MAX_WRITES) :]
    others = [c for c in inside if c.reason is not CutReason.EXPLICIT]
    chosen: dict[int, Candidate] = {}
    for candidate in latest + sorted(others, key=lambda c: (_RANK[c.reason], -c.position)):
        known = chosen.get(candidate.position)
        if candidate.reason is CutReason.EXPLICIT:
            if known is None or (candidate.ttl or 0) > (known.ttl or 0):
                chosen[candidate.position] = candidate
            continue
        if known is None and (
            candidate.reason is CutReason.HEAD or all(abs(p - candidate.position) >= MIN_DISTANCE for p in chosen)
        ):
            chosen[candidate.position] = candidate
    return [Cut(position=p, reason=c.reason, ttl=c.ttl) for p, c in sorted(chosen.items())]
