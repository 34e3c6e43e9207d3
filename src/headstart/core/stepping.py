"""What goes into the next step: every decode, then prompt chunks for as many tokens as the step may take."""

from __future__ import annotations

from collections.abc import Sequence

from .exact import chunk_end
from .pace import Pace
from .plan import Decode, Prefill, Step
from .requests import Request, State
from .rules import Rules


def compose(
    running: Sequence[Request], cells: int, pace: Pace, rules: Rules, exact_chunk: int, now: float
) -> Step | None:
    """The step for ``running``, whose prompt tokens may take ``cells`` cells; None when there is nothing to compute."""
    decodes = tuple(
        Decode(r.id, r.seq, r.position, r.generated[-1])
        for r in running
        if r.state is State.DECODE and r.seq is not None
    )
    reading = [r for r in running if r.state is State.PREFILL]
    if not reading:
        return Step(decodes) if decodes else None
    budget = min(pace.chunk(len(decodes)), cells)
    prefills: list[Prefill] = []
    for request in pace.order(reading, now):
        if budget <= 0:
            break
        chunk = _chunk(request, budget, rules, exact_chunk)
        prefills.append(chunk)
        budget -= len(chunk.tokens)
    return Step(decodes, tuple(prefills)) if decodes or prefills else None


def rounds(step: Step, running: Sequence[Request], free_cells: int, cells: int) -> int:
    """How many times in a row ``step`` may go on with what it samples without a plan in between, where nobody could be
    admitted: all of ``running`` decode in it, and no answer gets longer than it may. Each time takes ``cells`` of
    ``free_cells``, which are enough for one; with recurrent models none."""
    if step.prefills or len(step.decodes) < len(running):
        return 1
    shortest = min(r.max_new - len(r.generated) for r in running)
    return min(shortest, free_cells // cells) if cells else shortest


def _chunk(request: Request, budget: int, rules: Rules, exact_chunk: int) -> Prefill:
    """The request's next prompt tokens: up to the budget, and no further than where it has to pause."""
    assert request.seq is not None
    pause = next(iter(rules.pauses(request.cuts, request.target, exact_chunk)), request.target)
    end = chunk_end(request.position, pause, budget, exact_chunk)
    tokens = tuple(request.tokens[request.position : end].tolist())
    return Prefill(request.id, request.seq, request.position, tokens, sample=end == request.target)
