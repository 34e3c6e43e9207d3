"""A model's Jinja chat template in a sandbox, with what it takes to show it any conversation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import TemplateError

from ..errors import RequestError, StartupError
from .adapt import Capabilities, adapt, variables
from .fallback import CHATML
from .inputs import Message
from .jinja import CompiledTemplate
from .normalise import canonical_messages, canonical_tools
from .probe import find_capabilities

_PROBE_DATE = datetime(2024, 7, 26, 12)


@dataclass(frozen=True, slots=True)
class _Variant:
    compiled: CompiledTemplate
    caps: Capabilities


class ChatTemplate:
    """A compiled template and what it was found to accept. Immutable, thread-safe.

    ``tools_source`` is the model's second template for conversations with tools, where it has one. ``notes`` are
    lines for the start-up banner.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_text: str = "",
        eos_text: str = "",
        tools_source: str | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Compiles and probes. Raises `StartupError`, one line, when a source is not a usable template."""
        self._plain = _variant(source, bos_text, eos_text)
        self._tools = _variant(tools_source, bos_text, eos_text) if tools_source else self._plain
        self._now, self._bos_text = now, bos_text
        self.source = source
        self.notes: tuple[str, ...] = _notes(self._tools.caps)

    @classmethod
    def load(
        cls, source: str | None, *, bos_text: str = "", eos_text: str = "", tools_source: str | None = None
    ) -> ChatTemplate:
        """Like the constructor, but never fails: the built-in template stands in, and ``notes`` say why."""
        why = "the model has no chat template"
        if source:
            try:
                return cls(source, bos_text=bos_text, eos_text=eos_text, tools_source=tools_source)
            except StartupError as error:
                why = str(error)
        template = cls(CHATML, bos_text=bos_text, eos_text=eos_text)
        template.notes = (f"chat template: built-in ChatML, because {why}", *template.notes)
        return template

    @property
    def knows_tools(self) -> bool:
        """False where tools are written into the system message instead."""
        return self._tools.caps.tools

    @property
    def capabilities(self) -> Capabilities:
        """What the template for conversations without tools was found to show."""
        return self._plain.caps

    def mentions(self, name: str) -> bool:
        """True when the template uses the variable, key or text ``name`` (enable_thinking, reasoning_effort, ...)."""
        return self._plain.compiled.mentions(name) or self._tools.compiled.mentions(name)

    def contains(self, text: str) -> bool:
        """True when the source of the template contains ``text``."""
        return text in self._plain.compiled.source or text in self._tools.compiled.source

    def now(self) -> datetime:
        """The time that a request's renders should all show."""
        return self._now()

    def render(
        self,
        messages: list[Message],
        tools: list[dict[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        kwargs: dict[str, Any] | None = None,
    ) -> str:
        """The prompt's text. Raises `RequestError` 400 with the template's own words when it refuses."""
        return self.render_canonical(
            canonical_messages(messages),
            canonical_tools(tools),
            add_generation_prompt=add_generation_prompt,
            kwargs=kwargs or {},
            now=self.now(),
        )

    def render_canonical(
        self,
        messages: list[Message],
        tools: list[dict[str, Any]],
        *,
        add_generation_prompt: bool,
        kwargs: dict[str, Any],
        now: datetime,
    ) -> str:
        """`render` for messages and tools that `normalise` has already checked."""
        with_tools = bool(tools) or any(m["role"] == "tool" or "tool_calls" in m for m in messages)
        variant = self._tools if with_tools else self._plain
        shown, shown_tools = adapt(messages, tools, variant.caps)
        given = variables(shown, shown_tools, variant.caps, generate=add_generation_prompt)
        text = variant.compiled.render({**kwargs, **given}, now)
        # Blanks before BOS are the template's layout; kept, they would hide from the tokenizer that BOS is there.
        bare = text.lstrip()
        return bare if self._bos_text and bare.startswith(self._bos_text) else text


def _variant(source: str, bos_text: str, eos_text: str) -> _Variant:
    try:
        compiled = CompiledTemplate(source, bos_text, eos_text)
    except (TemplateError, RecursionError) as error:
        raise StartupError(f"the chat template does not compile: {' '.join(str(error).split())}") from error
    except Exception as error:  # Jinja hands some faults of a source on as the Python errors they cause
        raise StartupError(f"the chat template does not compile: {type(error).__name__}") from error

    def render(messages: list[Message], tools: list[dict[str, Any]], caps: Capabilities) -> str:
        return compiled.render(variables(messages, tools, caps, generate=True), _PROBE_DATE)

    try:
        return _Variant(compiled, find_capabilities(render))
    except RequestError as error:
        raise StartupError(f"the chat template fails on one user message: {error.message}") from error


def _notes(caps: Capabilities) -> tuple[str, ...]:
    lines = []
    if not caps.tools:
        lines.append("chat template knows no tools: they are written into the system message")
    if not caps.system:
        lines.append("chat template takes no system message: it is put before the first user message")
    return tuple(lines)
