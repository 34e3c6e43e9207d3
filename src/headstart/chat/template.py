"""A model's Jinja chat template in a sandbox."""

from __future__ import annotations

from typing import Any

from .inputs import Message


class ChatTemplate:
    """A compiled template and what it was found to accept. Immutable, thread-safe."""

    knows_tools: bool

    def __init__(self, source: str, *, bos_text: str = "", eos_text: str = "", tools_source: str | None = None) -> None:
        """Compiles and probes. Raises `StartupError` when the source is not a template."""
        raise NotImplementedError

    @classmethod
    def load(cls, source: str | None, *, bos_text: str, eos_text: str, tools_source: str | None = None) -> ChatTemplate:
        """Like the constructor, but takes the built-in template, with ``notes`` saying why, where there is none that works."""
        raise NotImplementedError

    notes: tuple[str, ...]  # lines for the start-up banner
    source: str

    def mentions(self, name: str) -> bool:
        """True when the template uses the variable or key ``name`` (enable_thinking, reasoning_effort, ...)."""
        raise NotImplementedError

    def render(
        self,
        messages: list[Message],
        tools: list[dict[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        kwargs: dict[str, Any] | None = None,
    ) -> str:
        """The prompt's text. Raises `RequestError` 400 with the template's own words when it refuses."""
        raise NotImplementedError
