"""Which requests the worker may have died of: one that the library worked on at two deaths in a row is refused.

Suspicion passes: after a while, and at once when the same request ends well. A request that the library never came back
from is refused for good, with everything else that brings its grammar.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import msgspec

from .errors import RequestError
from .messages import Submit
from .types import RequestId

DEATHS_ALLOWED = 2
FORGET_SECONDS = 600.0
MOST_STUCK = 1024  # the oldest are forgotten, so that nobody can fill the memory


class Suspects:
    """Knows a request again by its *fingerprint*, whoever sends it and under whatever id."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._present: dict[RequestId, Submit] = {}
        self._deaths: dict[str, list[float]] = {}
        self._stuck: dict[str, None] = {}

    def check(self, work: Submit) -> None:
        """Raises `RequestError` for a request that the worker is not to see again."""
        if _cause(work) in self._stuck:
            raise stuck_error(work)
        self._forget()
        if self._deaths and len(self._deaths.get(_fingerprint(work), ())) >= DEATHS_ALLOWED:
            raise RequestError(
                f"The worker died each of the {DEATHS_ALLOWED} times that it last ran this request; it is refused for "
                f"{FORGET_SECONDS / 60:.0f} minutes.",
                code="request_kills_worker",
            )

    def watch(self, work: Submit) -> None:
        """From now on the worker's death may be this request's doing."""
        self._present[work.id] = work

    def clear(self, request: RequestId) -> None:
        """The request is over."""
        self._present.pop(request, None)

    def ended_well(self, request: RequestId) -> None:
        """The worker has computed all of it and lives."""
        work = self._present.get(request)
        if work is not None and self._deaths:
            self._deaths.pop(_fingerprint(work), None)

    def worker_died(self, working: frozenset[RequestId] | None) -> None:
        """Note who it worked on (None: nobody knows, it may have been any). The choices of one request have one
        fingerprint and count once."""
        self._forget()
        there = [work for id, work in self._present.items() if working is None or id in working]
        for mark in {_fingerprint(work) for work in there}:
            self._deaths[mark] = [*self._deaths.get(mark, []), self._clock()]

    def _forget(self) -> None:
        since = self._clock() - FORGET_SECONDS
        recent = {mark: [at for at in times if at > since] for mark, times in self._deaths.items()}
        self._deaths = {mark: times for mark, times in recent.items() if times}

    def worker_stuck(self, request: RequestId) -> dict[RequestId, RequestError]:
        """The library never came back from this one. Returns the error for each that is present and like it."""
        guilty = self._present.get(request)
        if guilty is None:
            return {}
        cause = _cause(guilty)
        self._stuck[cause] = None
        if len(self._stuck) > MOST_STUCK:
            del self._stuck[next(iter(self._stuck))]
        return {id: stuck_error(work) for id, work in self._present.items() if _cause(work) == cause}


def stuck_error(work: Submit) -> RequestError:
    """What the client is told about a request that the library does not come back from."""
    if work.sampling.grammar is not None:
        message = "The request's grammar is too ambiguous: the library did not come back from it."
        return RequestError(message, code="grammar_too_ambiguous", param="grammar")
    message = "The library did not come back from this request's sampling settings."
    return RequestError(message, code="request_stops_worker")


def _cause(work: Submit) -> str:
    """What the library does not come back from: the grammar, whatever the prompt; without one the whole request."""
    return _digest(work.sampling.grammar) if work.sampling.grammar is not None else _fingerprint(work)


def _fingerprint(work: Submit) -> str:
    return _digest([work.tokens, work.sampling])


def _digest(content: object) -> str:
    return hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=16).hexdigest()
