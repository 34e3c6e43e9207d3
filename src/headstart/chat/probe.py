"""Finds out what a template shows by rendering small conversations with words that occur nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from ..errors import RequestError
from .adapt import Capabilities
from .fallback import dumps
from .inputs import Message

# Renders adapted messages and tools; raises RequestError where the template refuses.
Render = Callable[[list[Message], list[dict[str, Any]], Capabilities], str]
Try = Callable[[list[Message], list[dict[str, Any]]], str]

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
    """What cannot be shown is a missing capability. Raises `RequestError` when not even a user message works."""
    base = _base(render)

    def attempt(messages: list[Message], tools: list[dict[str, Any]]) -> str:
        return render(messages, tools, base)

    def shows(*turns: tuple[str, int]) -> bool:
        return _shows(attempt, list(turns), base.typed)

    system = shows(("system", 0), ("user", 1))
    caps = replace(
        base,
        system=system,
        system_run=system and shows(("system", 0), ("system", 1), ("user", 2)),
        mid_system=shows(("user", 0), ("assistant", 1), ("system", 2), ("user", 3))
        and shows(("user", 0), ("system", 1), ("assistant", 2), ("user", 3)),
        repeats=shows(("user", 0), ("user", 1), ("assistant", 2), ("user", 3)),
    )
    return _with_tool_capabilities(attempt, caps)


def _base(render: Render) -> Capabilities:
    """The first way of passing content and missing tools in which one user message comes out."""
    refused: RequestError | None = None
    for empty_tools, functions_text in ((False, False), (True, False), (True, True)):
        for typed in (False, True):
            caps = Capabilities(typed=typed, empty_tools=empty_tools, functions_text=functions_text)
            try:
                text = render([{"role": "user", "content": _content(_WORDS[0], typed)}], [], caps)
            except RequestError as error:
                refused = refused or error
                continue
            if _WORDS[0] in text:
                return caps
    raise refused or RequestError("it does not show the message")


def _content(text: str, typed: bool) -> Any:
    return [{"type": "text", "text": text}] if typed else text


def _shows(render: Try, turns: list[tuple[str, int]], typed: bool) -> bool:
    """True when every turn's word appears once, in the order of the turns."""
    messages = [{"role": role, "content": _content(_WORDS[word], typed)} for role, word in turns]
    try:
        text = render(messages, [])
    except RequestError:
        return False
    places = [text.find(_WORDS[word]) for _, word in turns]
    return -1 not in places and places == sorted(places)


def _with_tool_capabilities(render: Try, caps: Capabilities) -> Capabilities:
    user = {"role": "user", "content": _content("kestrel", caps.typed)}
    tools = _contains(render, [user], "probetool", [_TOOL])
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
    if calls is None:
        answer = {"role": "assistant", "content": _content("marigold", caps.typed)}
        given = {"role": "tool", "name": "probetool", "content": _content("obsidian", caps.typed)}
        tool_role = _contains(render, [user, answer, given], "obsidian")
    caps = replace(caps, tools=tools, calls=calls, tool_role=tool_role, short_ids=short_ids)
    return replace(caps, parallel_calls=calls is None or _shows_parallel(render, user, caps))


def _shows_parallel(render: Try, user: Message, caps: Capabilities) -> bool:
    """Whether one assistant message may hold two calls."""
    ids, values = ("abcdefgh1", "abcdefgh2"), ("marigold", "tamarind")
    arguments: list[Any] = [{"probearg": value} for value in values]
    if caps.calls == "text":
        arguments = list(map(dumps, arguments))
    calls = [
        {"id": i, "type": "function", "function": {"name": "probetool", "arguments": given}}
        for i, given in zip(ids, arguments, strict=True)
    ]
    asked = {"role": "assistant", "content": _content("", caps.typed), "tool_calls": calls}
    results = [
        {"role": "tool", "name": "probetool", "tool_call_id": i, "content": _content("obsidian", caps.typed)}
        for i in ids
    ]
    return all(_contains(render, [user, asked, *results], value) for value in values)


def _contains(render: Try, messages: list[Message], word: str, tools: list[dict[str, Any]] | None = None) -> bool:
    try:
        return word in render(messages, tools or [])
    except RequestError:
        return False


def _try_call(render: Try, user: Message, form: str, call_id: str, typed: bool) -> tuple[bool, bool]:
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
