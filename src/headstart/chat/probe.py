"""Finds out what a template shows by rendering small conversations with words that occur nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from ..errors import RequestError
from .adapt import Capabilities
from .inputs import Message

# Renders adapted messages and tools; raises RequestError where the template refuses.
Render = Callable[[list[Message], list[dict[str, Any]]], str]

_WORDS = ("kestrel", "marigold", "obsidian", "tamarind")
_TOOL = {
    "type": "function",
    "function": {
        "name": "probetool",
        "description": "Tries the template.",
        "parameters": {
            "type": "object",
            "properties": {"probearg": {"type": "string", "description": "Anything."}},
            "required": ["probearg"],
        },
    },
}
_ARGUMENTS_TEXT = '{"probearg": "probevalue"}'


def find_capabilities(render: Render) -> Capabilities:
    """Never raises: what cannot be shown is a missing capability."""
    typed = not _shows(render, [("user", 0)], typed=False) and _shows(render, [("user", 0)], typed=True)

    def shows(*turns: tuple[str, int]) -> bool:
        return _shows(render, list(turns), typed)

    system = shows(("system", 0), ("user", 1))
    caps = Capabilities(
        system=system,
        system_run=system and shows(("system", 0), ("system", 1), ("user", 2)),
        mid_system=shows(("user", 0), ("assistant", 1), ("system", 2), ("user", 3))
        and shows(("user", 0), ("system", 1), ("assistant", 2), ("user", 3)),
        repeats=shows(("user", 0), ("user", 1), ("assistant", 2), ("user", 3)),
        typed=typed,
    )
    return _with_tool_capabilities(render, caps)


def _content(text: str, typed: bool) -> Any:
    return [{"type": "text", "text": text}] if typed else text


def _shows(render: Render, turns: list[tuple[str, int]], typed: bool) -> bool:
    """True when every turn's word appears once, in the order of the turns."""
    messages = [{"role": role, "content": _content(_WORDS[word], typed)} for role, word in turns]
    try:
        text = render(messages, [])
    except RequestError:
        return False
    places = [text.find(_WORDS[word]) for _, word in turns]
    return -1 not in places and places == sorted(places)


def _with_tool_capabilities(render: Render, caps: Capabilities) -> Capabilities:
    user = {"role": "user", "content": _content("kestrel", caps.typed)}
    try:
        tools = "probetool" in render([user], [_TOOL])
    except RequestError:
        tools = False
    calls: Literal["text", "object"] | None = None
    tool_role = short_ids = False
    for ids in ("call_0123456789", "abcdefgh1"):
        for form in ("text", "object"):
            shown, result = _try_call(render, user, form, ids, caps.typed)
            if shown and (calls is None or (result and not tool_role)):
                calls, tool_role = ("text" if form == "text" else "object"), result
                short_ids = ids == "abcdefgh1"
        if calls is not None and tool_role:
            break
    return replace(caps, tools=tools, calls=calls, tool_role=tool_role, short_ids=short_ids)


def _try_call(render: Render, user: Message, form: str, call_id: str, typed: bool) -> tuple[bool, bool]:
    """Whether a past call in this form is shown as it should be, and its result."""
    arguments = _ARGUMENTS_TEXT if form == "text" else {"probearg": "probevalue"}
    call = {"id": call_id, "type": "function", "function": {"name": "probetool", "arguments": arguments}}
    asked = {"role": "assistant", "content": _content("", typed), "tool_calls": [call]}
    result = {"role": "tool", "name": "probetool", "tool_call_id": call_id, "content": _content("obsidian", typed)}
    last = {"role": "assistant", "content": _content("marigold", typed)}
    again = {"role": "user", "content": _content("tamarind", typed)}
    for messages in ([user, asked, result, last, again], [user, asked]):
        try:
            text = render(messages, [])
        except RequestError:
            continue
        shown = "probetool" in text and "probearg" in text and "probevalue" in text
        if form == "text":
            shown = shown and _ARGUMENTS_TEXT in text  # not escaped a second time
        else:
            shown = shown and "{'probearg'" not in text  # not printed as a Python object
        return shown, "obsidian" in text and len(messages) > 2
    return False, False
