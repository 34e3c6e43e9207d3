"""Pieces of an answer, in the order in which they are streamed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContentDelta:
    text: str  # never empty


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str  # never empty


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """``id`` and ``name`` come with the first delta of call ``index`` (from 0) only; ``arguments`` add up to JSON."""

    index: int
    id: str | None
    name: str | None
    arguments: str


Delta = ContentDelta | ReasoningDelta | ToolCallDelta


def merged(deltas: list[Delta]) -> list[Delta]:
    """Neighbours of one kind as one delta."""
    out: list[Delta] = []
    for delta in deltas:
        last = out[-1] if out else None
        if isinstance(delta, ContentDelta) and isinstance(last, ContentDelta):
            out[-1] = ContentDelta(last.text + delta.text)
        elif isinstance(delta, ReasoningDelta) and isinstance(last, ReasoningDelta):
            out[-1] = ReasoningDelta(last.text + delta.text)
        elif isinstance(delta, ToolCallDelta) and isinstance(last, ToolCallDelta) and delta.id is None:
            out[-1] = ToolCallDelta(last.index, last.id, last.name, last.arguments + delta.arguments)
        else:
            out.append(delta)
    return out
