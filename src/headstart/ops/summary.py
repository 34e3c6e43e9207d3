"""A request in one line: what the events of its life add up to."""

from __future__ import annotations

from dataclasses import dataclass

from .. import events
from ..types import RequestId, Source

_ID = 6  # characters: enough to tell requests apart and to find one in a client's log


@dataclass(slots=True)
class _Life:
    source: Source = Source.NONE
    miss: events.Missed | None = None
    first: events.FirstToken | None = None


class Summaries:
    """Remembers running requests. Those of a worker that died stay, a few dozen bytes each."""

    def __init__(self) -> None:
        self._running: dict[RequestId, _Life] = {}

    def note(self, event: events.Event) -> str | None:
        """Take in ``event``; the line of its request if that is over now."""
        match event:
            case events.Attached():
                self._life(event.id).source = event.source
            case events.Missed():
                self._life(event.id).miss = event
            case events.FirstToken():
                self._life(event.id).first = event
            case events.Done():
                return _line(event, self._running.pop(event.id, _Life()))
            case _:
                pass
        return None

    def _life(self, request: RequestId) -> _Life:
        return self._running.setdefault(request, _Life())


def short(request: RequestId) -> str:
    """The beginning of an id's random part, and which choice it is unless the first."""
    name, _, choice = request.partition("/")
    kind, _, random = name.partition("-")
    return (random or kind)[:_ID] + (f"/{choice}" if choice not in ("", "0") else "")


def _line(done: events.Done, life: _Life) -> str:
    parts = [f"prompt {done.prompt_tokens}"]
    cached = life.first.cached if life.first is not None else 0
    if life.first is not None:
        parts.append(f"cached {cached} ({life.source})" if cached else "cached 0")
        parts.append(f"first token {life.first.queue_ms + life.first.prompt_ms:.0f} ms")
        speed = f" at {1e3 * done.generated / done.predicted_ms:.1f}/s" if done.predicted_ms > 0 else ""
        parts.append(f"{done.generated} {'token' if done.generated == 1 else 'tokens'}{speed}")
    parts.append(done.reason or "failed")
    if life.miss is not None:
        # Most prompts differ where the cached part ends.
        parts[-1] += f"; {life.miss.code}" + (f" at {life.miss.position}" if life.miss.position != cached else "")
    return f"{short(done.id)} {', '.join(parts)}"
