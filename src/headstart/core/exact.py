"""Where a prefill may be cut without changing a bit of what it computes.

The library's CPU kernel for flash attention computes chunks of 64 and more tokens in one way and shorter
ones in another; within either, how a prompt is cut does not matter. So a prompt is computed in segments that end where
it has to pause, no chunk of a long segment is short, and a request that has the server to itself resumes where its
first chunk falls in the class that a cold run computes those tokens in. It pays less than one such chunk for that.
"""

from __future__ import annotations

from collections.abc import Sequence


def chunk_end(start: int, segment_end: int, budget: int, shortest: int) -> int:
    """The end of the next chunk: ``budget`` tokens on, but never so that a rest of fewer than ``shortest`` remains."""
    rest = segment_end - start - budget
    if rest <= 0:
        return segment_end
    if rest < shortest and budget >= 2 * shortest:
        return start + budget - shortest
    return start + budget


def exact_position(position: int, pauses: Sequence[int], n_tokens: int, shortest: int) -> int:
    """The last place up to ``position`` where a warm run computes the rest of the prompt as a cold run would.

    ``pauses`` are the ends of the segments before the last one, ascending; the prompt has ``n_tokens``; chunks of fewer
    than ``shortest`` tokens are computed in another way than longer ones.
    """
    bounds = [0, *pauses, n_tokens]
    end = next(bound for bound in bounds if bound > position)
    start = bounds[bounds.index(end) - 1]
    if end - start < shortest:
        return start
    return max(start, min(position, end - shortest))
