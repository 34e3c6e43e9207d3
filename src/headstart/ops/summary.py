"""A request in one line: what the events of its life add up to."""

from __future__ import annotations

from dataclasses import dataclass

from .. import events
from ..types import RequestId, Source

_ID = 6  # characters: enough to tell requests apart and to find one in a client's log
_FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Summary:
    """A request that is over. ``miss`` and ``reason`` say why no more was reused than ``cached``, ``miss_at`` up to
    which position something in the cache agreed. None: it never came to that."""

    id: RequestId
    prompt: int
    cached: int
    source: Source
    miss: str | None
    miss_at: int | None
    reason: str | None
    first_token_ms: float | None
    tokens: int
    tokens_per_s: float | None
    finish: str

    @property
    def failed(self) -> bool:
        return self.finish == _FAILED

    def line(self) -> str:
        """In short, for people."""
        parts = [f"prompt {self.prompt}"]
        if self.first_token_ms is not None:
            parts.append(f"cached {self.cached} ({self.source})" if self.cached else "cached 0")
            parts.append(f"first token {self.first_token_ms:.0f} ms")
            speed = f" at {self.tokens_per_s:.1f}/s" if self.tokens_per_s is not None else ""
            parts.append(f"{self.tokens} {'token' if self.tokens == 1 else 'tokens'}{speed}")
        parts.append(self.finish)
        if self.miss is not None:
            # Most prompts differ where the cached part ends.
            parts[-1] += f"; {self.miss}" + (f" at {self.miss_at}" if self.miss_at != self.cached else "")
        return f"{short(self.id)} {', '.join(parts)}"


@dataclass(slots=True)
class _Life:
    source: Source = Source.NONE
    miss: events.Missed | None = None
    first: events.FirstToken | None = None


class Summaries:
    """Remembers requests between their first event and their last. Those of a worker that died stay, a few dozen bytes
    each."""

    def __init__(self) -> None:
        self._running: dict[RequestId, _Life] = {}

    def note(self, event: events.Event) -> Summary | None:
        """Take in ``event``; the summary of its request if that is over now."""
        match event:
            case events.Queued():
                self._running[event.id] = _Life()
            case events.Attached():
                self._life(event.id).source = event.source
            case events.Missed():
                self._life(event.id).miss = event
            case events.FirstToken():
                self._life(event.id).first = event
            case events.Done():
                life = self._life(event.id)
                self._running.pop(event.id, None)
                return _summary(event, life)
            case _:
                pass
        return None

    def _life(self, request: RequestId) -> _Life:
        # One that is over already is not remembered again: nothing would ever end it.
        return self._running.get(request) or _Life()


def short(request: RequestId) -> str:
    """The beginning of an id's random part, and which choice it is unless the first."""
    name, _, choice = request.partition("/")
    kind, _, random = name.partition("-")
    return (random or kind)[:_ID] + (f"/{choice}" if choice not in ("", "0") else "")


def _summary(done: events.Done, life: _Life) -> Summary:
    first, miss = life.first, life.miss
    cached = first.cached if first is not None else 0
    return Summary(
        id=done.id,
        prompt=done.prompt_tokens,
        cached=cached,
        source=life.source if cached else Source.NONE,
        miss=miss.code if miss is not None else None,
        miss_at=miss.position if miss is not None else None,
        reason=miss.reason if miss is not None else None,
        first_token_ms=first.queue_ms + first.prompt_ms if first is not None else None,
        tokens=done.generated,
        tokens_per_s=1e3 * done.generated / done.predicted_ms if done.predicted_ms > 0 else None,
        finish=done.reason or _FAILED,
    )
