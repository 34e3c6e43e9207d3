"""Who is held to be the cause of the worker's deaths."""

from __future__ import annotations

import pytest

from headstart.errors import RequestError
from headstart.messages import Sampling, Submit
from headstart.suspects import Suspects

KILLER = Submit(id="a", tokens=[1, 2, 3])
ALIKE = Submit(id="b", tokens=[1, 2, 3], max_tokens=9)  # the length of the answer does not matter to what is computed
OTHERS = [Submit(id="c", tokens=[1, 2]), Submit(id="d", tokens=[1, 2, 3], sampling=Sampling(top_k=1))]


def test_who_was_there_at_two_deaths_is_refused_under_any_id() -> None:
    suspects = Suspects()
    for work in (KILLER, ALIKE):
        suspects.watch(work.id, suspects.fingerprint(work))
        suspects.worker_died()
        suspects.clear(work.id)
    for work in (KILLER, ALIKE):
        with pytest.raises(RequestError, match="2 times") as caught:
            suspects.fingerprint(work)
        assert caught.value.code == "request_kills_worker"
    assert all(suspects.fingerprint(work) for work in OTHERS)


def test_choices_of_one_request_count_one_death() -> None:
    suspects = Suspects()
    for i in range(3):
        suspects.watch(str(i), suspects.fingerprint(KILLER))
    suspects.worker_died()
    assert suspects.fingerprint(KILLER)


def test_who_waits_or_is_over_is_none() -> None:
    suspects = Suspects()
    for _ in range(3):
        suspects.watch("a", suspects.fingerprint(KILLER))
        suspects.clear("a")
        suspects.worker_died()
    assert suspects.fingerprint(KILLER)
