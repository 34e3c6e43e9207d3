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
