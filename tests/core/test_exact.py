"""Warm runs compute every token in the class of chunk that a cold run computes it in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.core.exact import chunk_end, exact_position


def classes(start: int, cuts: list[int], n: int, budget: int, shortest: int) -> list[bool]:
    """For every token from ``start`` on, whether it is computed in a long chunk."""
    long: list[bool] = []
    while start < n:
        segment = next((c for c in cuts if c > start), n)
        end = chunk_end(start, segment, budget, shortest)
        assert start < end <= segment
        long += [end - start >= shortest] * (end - start)
        start = end
    return long


@settings(deadline=None)
@given(
    n=st.integers(1, 3000),
    cuts=st.lists(st.integers(1, 2999), max_size=4, unique=True),
    budget=st.sampled_from([128, 256, 512, 2048]),
    shortest=st.sampled_from([4, 64]),
    data=st.data(),
)
def test_classes_do_not_depend_on_where_it_resumes(
    n: int, cuts: list[int], budget: int, shortest: int, data: st.DataObject
) -> None:
    inside = sorted(c for c in cuts if c < n)
    matched = data.draw(st.integers(0, n - 1))
    position = exact_position(matched, inside, n, shortest)
    assert matched - shortest < position <= matched
    cold = classes(0, inside, n, budget, shortest)
    assert classes(position, inside, n, budget, shortest) == cold[position:]


@settings(deadline=None)
@given(start=st.integers(0, 500), rest=st.integers(1, 5000), budget=st.integers(1, 600))
def test_a_chunk_never_exceeds_its_budget(start: int, rest: int, budget: int) -> None:
    assert start < chunk_end(start, start + rest, budget, 64) <= start + min(rest, budget)
