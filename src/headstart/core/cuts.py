"""At which positions a prefill pauses to keep the prefix. Pure; only stateful kinds need more than the request asks."""

from __future__ import annotations

from collections.abc import Iterable

from ..types import Cut, CutReason

CLOSEST = 64  # tokens between two cuts: each costs a batch border, and short chunks round differently
LEARN = 32  # tokens from which a state where prompts part is worth its border
SPACING = 512  # tokens between regular states, where the budget allows that many; a chunk ends there anyway
ALWAYS = frozenset({CutReason.HEAD, CutReason.EXPLICIT, CutReason.DIVERGENCE})
PRIORITY = (
    CutReason.GENERATION,
    CutReason.LAST_PART,
    CutReason.LAST_USER,
    CutReason.GEOMETRIC,
    CutReason.INTERVAL,
)


def regular(n_tokens: int, affordable: int, asked: Iterable[Cut]) -> list[Cut]:
    """States spread over a prompt, so that prompts that part anywhere find one near: every `SPACING` tokens, or as
    many as are ``affordable``; and one before the last token, so that the same prompt resumes at its end, unless one
    of those that were ``asked`` for lies close to it.

    Positions are multiples of the spacing, so that prompts with a common beginning agree on them.
    """
    if affordable <= 0:
        return []
    pieces = -(-n_tokens // SPACING)
    spacing = SPACING * -(-pieces // affordable)
    cuts = [Cut(p, CutReason.INTERVAL) for p in range(spacing, n_tokens, spacing)]
    if n_tokens > 1 and all(cut.position <= n_tokens - CLOSEST for cut in asked):
        cuts.append(Cut(n_tokens - 1, CutReason.GENERATION))
    return cuts


def choose(wanted: Iterable[Cut], after: int) -> list[Cut]:
    """Those of ``wanted`` beyond ``after`` to keep, ascending. What other sessions share is always kept; the rest
    yields to it, and to more important cuts, where it would come closer than `CLOSEST`."""
    ahead = _spared(sorted((c for c in wanted if c.position > after), key=lambda c: c.position))
    chosen = {c.position: c for c in ahead if c.reason in ALWAYS}
    for reason in PRIORITY:
        for cut in reversed([c for c in ahead if c.reason is reason]):
            if all(abs(cut.position - other) >= CLOSEST for other in (after, *chosen)):
                chosen[cut.position] = cut
    return [chosen[p] for p in sorted(chosen)]


def _spared(cuts: list[Cut]) -> list[Cut]:
    """Without the geometric cuts that a regular one replaces: no further before it than it lies before the head."""
    heads = [c.position for c in cuts if c.reason is CutReason.HEAD]
    regular = [c.position for c in cuts if c.reason is CutReason.INTERVAL]

    def replaced(cut: Cut) -> bool:
        distance = max(heads, default=cut.position) - cut.position
        return any(cut.position - distance <= place <= cut.position for place in regular)

    return [c for c in cuts if c.reason is not CutReason.GEOMETRIC or not replaced(c)]
