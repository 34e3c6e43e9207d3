"""What differs between the OpenAI endpoints: how a choice looks, in pieces and as a whole."""

from __future__ import annotations

from typing import Any, Protocol

from ..chat.deltas import Delta
from .choice import Choice, TokenProb


class Dialect(Protocol):
    """Members return entries of ``choices``; ``index`` is the choice's place among them."""

    whole_kind: str  # the API's ``object`` for a whole body
    chunk_kind: str  # and for a stream chunk

    def opening(self, index: int) -> dict[str, Any] | None:
        """Sent before anything is computed."""

    def silence(self, index: int) -> dict[str, Any]:
        """An entry that adds nothing, for chunks that report progress."""

    def pieces(self, index: int, deltas: list[Delta], probs: list[TokenProb]) -> list[dict[str, Any]]:
        """Entries that together add ``deltas``; ``probs`` go with the first."""

    def ending(self, index: int, choice: Choice, probs: list[TokenProb]) -> dict[str, Any]:
        """The choice's last entry, with its finish_reason."""

    def whole(self, index: int, choice: Choice, deltas: list[Delta], probs: list[TokenProb]) -> dict[str, Any]:
        """The entry of a body that isn't streamed."""
