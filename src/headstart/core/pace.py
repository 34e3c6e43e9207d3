"""How many prompt tokens fit in a step, and whose come first."""

from __future__ import annotations

from collections.abc import Iterable

from .plan import Step
from .requests import Request

SMALLEST_CHUNK = 32  # tokens; smaller chunks waste more on overhead than they save in latency
AGING = 2.0  # seconds of remaining work that one second of waiting outweighs
MEMORY = 0.3  # weight of the newest measurement
MEASURABLE = 16  # prompt tokens from which a step says something about prefill speed


class Pace:
    """Measured speed of the engine. ``step_ms`` is the target for a step while someone decodes."""

    def __init__(self, n_batch: int, step_ms: float, smallest: int = SMALLEST_CHUNK) -> None:
        """``smallest``: no chunk is made smaller than this to meet ``step_ms``."""
        self.n_batch, self.step_ms, self.smallest = n_batch, step_ms, smallest
        self.decode_ms = 0.0  # of a step without prefill
        self.token_ms: float | None = None  # of one more prompt token in a step; None until measured

    def observe(self, step: Step, ms: float) -> None:
        """Learn from a finished step."""
        prefill = step.n_tokens - len(step.decodes)
        if prefill == 0:
            self.decode_ms = _blend(self.decode_ms or None, ms)
        elif prefill >= MEASURABLE:
            own = max(ms - (self.decode_ms if step.decodes else 0.0), 0.1 * ms)
            self.token_ms = _blend(self.token_ms, own / prefill)

    def chunk(self, decoding: int) -> int:
        """Prompt tokens for the next step beside ``decoding`` decodes."""
        room = max(1, self.n_batch - decoding)
        if not decoding:
            return room
        if self.token_ms is None:
            return min(room, self.smallest)
        wanted = int((self.step_ms - self.decode_ms) / self.token_ms)
        return min(room, max(self.smallest, wanted))

    def seconds(self, tokens: int) -> float:
        """Expected time to prefill ``tokens``, alone."""
        return tokens * (self.token_ms if self.token_ms is not None else 1.0) / 1e3

    def order(self, prefills: Iterable[Request], now: float) -> list[Request]:
        """Short remainders first. Time since admission lifts a request past shorter ones, so that none starves."""

        def key(request: Request) -> float:
            waited = now - (request.admitted if request.admitted is not None else now)
            return self.seconds(request.remaining) - AGING * waited

        return sorted(prefills, key=key)


def _blend(old: float | None, new: float) -> float:
    return new if old is None else (1 - MEMORY) * old + MEMORY * new
