"""What goes into a prompt and what comes out: plain values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..types import Cut

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """An explicit cache mark: keep the prefix that ends after this content.

    ``message`` indexes ``ChatInput.messages``; None means the end of the tools. ``part`` indexes that message's
    content list; None means the end of its content. ``ttl`` is in seconds, None leaves it to the server.
    """

    message: int | None
    part: int | None = None
    ttl: float | None = None


@dataclass(frozen=True, slots=True)
class ChatInput:
    """One chat request in OpenAI's wire shape, as plain dicts. Nothing in it is changed by rendering.

    ``tools`` stand in the prompt whatever the model may do with them, or a request that allows no call would lose the
    head that it shares. ``template_kwargs`` reach the template as variables (enable_thinking, reasoning_effort, ...).
    ``continue_final`` goes on with the last message, an assistant's, instead of opening a new turn. ``implicit`` False
    (mode explicit) cuts at marks only. Tokens remembered under one ``salt`` are not used under another.
    """

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final: bool = False
    marks: list[Mark] = field(default_factory=list)
    implicit: bool = True
    salt: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """``tokens`` is never empty. ``cuts`` are ascending by position, unique, inside (0, len(tokens)).

    ``text`` is None where the caller gave token ids. ``reasoning_open`` says that the text ends inside <think>, so
    the answer starts as reasoning. ``bare_json`` says that the template asks for tool calls as untagged JSON.
    Pass both on to `OutputStream`. ``answered`` says that what is generated is the assistant's: only that may be
    remembered, since everything else would be put into somebody else's mouth.
    """

    text: str | None
    tokens: list[int]
    cuts: list[Cut]
    reasoning_open: bool = False
    bare_json: bool = False
    answered: bool = False
    salt: str = ""
