"""Which requests the worker may have died of: one that was there at each of two deaths is refused from then on."""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec

from .errors import RequestError
from .messages import Submit
from .types import RequestId

DEATHS_ALLOWED = 2


class Suspects:
    """Knows a request again by its *fingerprint*, whoever sends it and under whatever id."""

    def __init__(self) -> None:
        # Those that run, and those that the worker has just been handed.
        self._present: dict[RequestId, str] = {}
        self._deaths: Counter[str] = Counter()

    def fingerprint(self, work: Submit) -> str:
        """Raises `RequestError` for a request that was there too often."""
        content = msgspec.msgpack.encode([work.tokens, work.sampling])
        fingerprint = hashlib.blake2b(content, digest_size=16).hexdigest()
        if self._deaths[fingerprint] >= DEATHS_ALLOWED:
            raise RequestError(
                f"This request was running each of the {DEATHS_ALLOWED} times that the worker died; it is refused.",
                code="request_kills_worker",
            )
        return fingerprint

    def watch(self, request: RequestId, fingerprint: str) -> None:
        """From now on the worker's death may be this request's doing."""
        self._present[request] = fingerprint

    def clear(self, request: RequestId) -> None:
        """The request waits, or is over."""
        self._present.pop(request, None)

    def worker_died(self) -> None:
        """Note who was there. The choices of one request have one fingerprint and count once."""
        self._deaths.update(set(self._present.values()))
