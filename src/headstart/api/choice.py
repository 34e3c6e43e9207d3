"""One choice of an answer while its tokens arrive."""

from __future__ import annotations

import time
from dataclasses import dataclass

from .. import messages
from ..chat.deltas import Delta
from ..chat.output import OutputStream
from ..chat.tokenizer import Tokenizer
from ..types import FinishReason
from .services import Reply


@dataclass(frozen=True, slots=True)
class TokenProb:
    """A generated token's bytes and log probability, and those of the most likely ones in its place, best first."""

    piece: bytes
    logprob: float
    top: list[tuple[bytes, float]]


class Choice:
    """Folds the worker's replies to one submit; ``top`` as in `jobs.Job`."""

    def __init__(self, work: messages.Submit, output: OutputStream, tokenizer: Tokenizer, top: int | None) -> None:
        self.work, self.output = work, output
        self.started: messages.Started | None = None
        self.finished: messages.Finished | None = None
        self.tokens: list[int] = []
        self._progress: messages.Progress | None = None
        self._tokenizer, self._top = tokenizer, top
        self._probs: list[TokenProb] = []
        self._first_at = 0.0
        self._began_at = time.monotonic()

    def feed(self, reply: Reply) -> list[Delta]:
        """What became certain with ``reply``."""
        match reply:
            case messages.Started():
                self.started = reply
            case messages.Progress():
                self._progress = reply
            case messages.Sampled() if not self.output.stopped:
                return self._token(reply)
            case messages.Finished():
                self.finished = reply
                return self.output.finish()
            case _:  # tokens that were on their way when a stop string was found
                pass
        return []

    def text_of(self, start: int, end: int) -> str:
        """The text of the prompt's tokens [start, end)."""
        return b"".join(map(self._tokenizer.piece, self.work.tokens[max(0, start) : end])).decode("utf-8", "replace")

    @property
    def tells_probs(self) -> bool:
        """Whether log probabilities were asked for, of which an empty answer has none."""
        return self._top is not None

    def take_probs(self) -> list[TokenProb]:
        """Log probabilities of the tokens since the last call."""
        probs, self._probs = self._probs, []
        return probs

    def take_progress(self) -> messages.Progress | None:
        """The latest prefill report since the last call."""
        progress, self._progress = self._progress, None
        return progress

    @property
    def n_tokens(self) -> int:
        """Tokens up to now, the last one of a stop string included."""
        return len(self.tokens)

    @property
    def reason(self) -> FinishReason | None:
        """None while it runs."""
        if self.finished is None:
            return None
        if self.output.stopped:
            return FinishReason.STOP
        # Ended by the server before the model was through: the same to a client as a limit.
        return FinishReason.LENGTH if self.finished.reason is FinishReason.ABORT else self.finished.reason

    @property
    def generated(self) -> int:
        """Tokens of the answer; those sampled after a stop string was complete don't count."""
        if self.finished is None or self.output.stopped:
            return self.n_tokens
        return self.finished.timings.predicted_n

    @property
    def timings(self) -> messages.Timings:
        """The worker's account, or the front's view of it so far."""
        if self.finished is not None:
            return self.finished.timings
        now = time.monotonic()
        cached = self.started.cached_tokens if self.started else 0
        return messages.Timings(
            cache_n=cached,
            prompt_n=len(self.work.tokens) - cached,
            prompt_ms=1000 * ((self._first_at or now) - self._began_at),
            predicted_n=self.n_tokens,
            predicted_ms=1000 * (now - self._first_at) if self._first_at else 0.0,
        )

    def _token(self, sampled: messages.Sampled) -> list[Delta]:
        if not self.tokens:
            self._first_at = time.monotonic()
        self.tokens.append(sampled.token)
        deltas = self.output.push(sampled.token)
        if self._top is not None and not self._tokenizer.is_end(sampled.token):
            piece = self._tokenizer.piece
            top = [(piece(token), logprob) for token, logprob in sampled.top[: self._top]]
            self._probs.append(TokenProb(piece(sampled.token), _finite(sampled.logprob), top))
        return deltas


def _finite(logprob: float | None) -> float:
    # JSON has no infinity; OpenAI writes this for "too unlikely to say".
    return -9999.0 if logprob is None or logprob < -9999.0 else logprob
