"""Each way to miss has its code, and its sentence goes to the client."""

from __future__ import annotations

from headstart.events import Miss, Missed
from headstart.types import MemoryKind
from tests.core.run import Run, words

HEAD = words(300)


def second(run: Run, tokens: list[int], **more: object) -> Missed | None:
    """What is said of a prompt that comes once ``HEAD`` and some more has been answered."""
    run.submit("one", [*HEAD, *words(30, 1)], head=len(HEAD))
    run.finish()
    run.submit("two", tokens, **more)
    run.finish()
    found = [event for event in run.events if isinstance(event, Missed) and event.id == "two"]
    if not found:
        assert run.started["two"].reason == ""
        return None
    assert found[0].reason == run.started["two"].reason != ""
    return found[0]


def code(run: Run, tokens: list[int], **more: object) -> Miss | None:
    missed = second(run, tokens, **more)
    return missed.code if missed is not None else None


def test_every_miss_has_a_code() -> None:
    assert code(Run(), words(50, 9)) is Miss.NO_MATCH
    assert code(Run(), [*HEAD, *words(80, 2)]) is Miss.DIFFERS
    assert code(Run(), HEAD) is Miss.EXACT
    assert code(Run(), [*HEAD, *words(80, 2)], reuse=False) is Miss.BYPASS
    assert code(Run(sharing=False), [*HEAD, *words(80, 2)]) is Miss.SHARING_OFF
    assert code(Run(MemoryKind.HYBRID), [*HEAD, *words(30, 1), *words(9, 3), 1], max_tokens=1) is not None
    assert code(Run(MemoryKind.HYBRID), [*HEAD[:280], *words(80, 2)]) is Miss.NO_STATE


def test_numbers_stay_in_the_sentence() -> None:
    missed = second(Run(), [*HEAD, *words(80, 2)])
    assert missed is not None
    assert "token 300" in missed.reason and missed.position == 300 and missed.tokens == 80
