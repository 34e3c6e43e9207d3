"""An error says the same on both sides of the wire."""

from __future__ import annotations

import pytest

from headstart.errors import EngineError, RequestError, context_length_exceeded, queue_full
from headstart.failures import to_error, to_reply
from headstart.messages import Failed


@pytest.mark.parametrize("error", [queue_full(7, retry_after=3), context_length_exceeded(9, 8)], ids=lambda e: e.code)
def test_the_front_raises_what_the_worker_met(error: RequestError) -> None:
    reply = to_reply("r", error)
    assert reply.id == "r"
    raised = to_error(reply)
    assert isinstance(raised, RequestError)
    for name in ("message", "status", "kind", "code", "retry_after"):
        assert getattr(raised, name) == getattr(error, name)


def test_our_own_failures_are_not_the_callers() -> None:
    raised = to_error(Failed(id="r", message="no room", status=503))
    assert isinstance(raised, EngineError)
    assert (raised.message, raised.status) == ("no room", 503)
