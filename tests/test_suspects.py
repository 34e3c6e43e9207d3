"""Who is held to be the cause of the worker's deaths, and for how long."""

from __future__ import annotations

import pytest

from headstart.errors import RequestError
from headstart.messages import Sampling, Submit
from headstart.suspects import FORGET_SECONDS, MOST_STUCK, Suspects

KILLER = Submit(id="a", tokens=[1, 2, 3])
ALIKE = Submit(id="b", tokens=[1, 2, 3], max_tokens=9)  # the length of the answer does not matter to what is computed
OTHERS = [Submit(id="c", tokens=[1, 2]), Submit(id="d", tokens=[1, 2, 3], sampling=Sampling(top_k=1))]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def suspects(clock: Clock) -> Suspects:
    return Suspects(clock)


def die(suspects: Suspects, *present: Submit, working: set[str] | None = None) -> None:
    """The worker has these and dies while it works on some of them."""
    for work in present:
        suspects.watch(work)
    suspects.worker_died(None if working is None else frozenset(working))
    for work in present:
        suspects.clear(work.id)


def refused(suspects: Suspects, work: Submit) -> str | None:
    try:
        suspects.check(work)
    except RequestError as error:
        assert error.status == 400
        return error.code
    return None


def test_who_was_worked_on_at_two_deaths_is_refused_under_any_id(suspects: Suspects) -> None:
    die(suspects, KILLER, *OTHERS, working={"a"})
    assert refused(suspects, KILLER) is None
    die(suspects, ALIKE, *OTHERS, working={"b"})
    assert [refused(suspects, work) for work in (KILLER, ALIKE)] == ["request_kills_worker"] * 2
    assert not any(refused(suspects, work) for work in OTHERS)


def test_where_nobody_knows_it_may_have_been_any(suspects: Suspects) -> None:
    for _ in range(2):
        die(suspects, KILLER, OTHERS[0])
    assert all(refused(suspects, work) for work in (KILLER, OTHERS[0]))
    assert not refused(suspects, OTHERS[1])


def test_choices_of_one_request_count_one_death(suspects: Suspects) -> None:
    die(suspects, KILLER, ALIKE, working={"a", "b"})
    assert not refused(suspects, KILLER)


def test_who_is_over_is_none(suspects: Suspects) -> None:
    for _ in range(3):
        suspects.watch(KILLER)
        suspects.clear(KILLER.id)
        suspects.worker_died(frozenset({KILLER.id}))
    assert not refused(suspects, KILLER)


def test_suspicion_passes(suspects: Suspects, clock: Clock) -> None:
    die(suspects, KILLER)
    clock.now += FORGET_SECONDS
    die(suspects, KILLER)
    assert refused(suspects, KILLER) is None  # the first death is long ago
    die(suspects, KILLER)
    assert refused(suspects, KILLER)
    clock.now += FORGET_SECONDS
    assert refused(suspects, KILLER) is None


def test_who_ends_well_in_between_is_none(suspects: Suspects) -> None:
    for _ in range(3):
        die(suspects, KILLER, working={"a"})
        suspects.watch(ALIKE)
        suspects.ended_well(ALIKE.id)
        suspects.clear(ALIKE.id)
    assert not refused(suspects, KILLER)


def with_grammar(name: str, grammar: str, *tokens: int) -> Submit:
    return Submit(id=name, tokens=list(tokens), sampling=Sampling(grammar=grammar))


def test_a_grammar_that_the_library_is_stuck_in_is_refused_with_any_prompt_for_good(
    suspects: Suspects, clock: Clock
) -> None:
    stuck, sibling = with_grammar("a", "root ::= x", 1), with_grammar("b", "root ::= x", 2)
    other = with_grammar("c", "root ::= y", 1)
    for work in (stuck, sibling, other):
        suspects.watch(work)
    errors = suspects.worker_stuck("a")
    assert set(errors) == {"a", "b"}
    assert errors["a"].status == 400 and "grammar is too ambiguous" in errors["a"].message
    clock.now += 100 * FORGET_SECONDS
    assert refused(suspects, with_grammar("d", "root ::= x", 9)) == "grammar_too_ambiguous"
    assert not refused(suspects, other)


def test_without_a_grammar_the_request_itself_is_refused(suspects: Suspects) -> None:
    suspects.watch(KILLER)
    assert "grammar" not in suspects.worker_stuck("a")["a"].message
    assert refused(suspects, ALIKE) == "request_stops_worker"
    assert not any(refused(suspects, work) for work in OTHERS)
    assert suspects.worker_stuck("unknown") == {}


def test_what_is_refused_for_good_has_a_bound(suspects: Suspects) -> None:
    for i in range(MOST_STUCK + 1):
        work = with_grammar("a", f"root ::= {i}")
        suspects.watch(work)
        suspects.worker_stuck("a")
    assert refused(suspects, work)
    assert not refused(suspects, with_grammar("a", "root ::= 0"))
