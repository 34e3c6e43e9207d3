"""Canonical messages -> what one template can show, by its capabilities."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

from .fallback import call_text, dumps, response_text, tools_text
from .inputs import Message
from .normalise import arguments_object


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template was found to show when it was tried. Everything False is a template for users alone."""

    system: bool = True  # a first system message
    system_run: bool = True  # several system messages at the start
    mid_system: bool = True  # a system message between others
    repeats: bool = True  # several messages of one role in a row
    typed: bool = False  # content only as a list of parts
    tools: bool = True
    calls: Literal["text", "object"] | None = "text"  # past tool calls, and the form of their arguments
    tool_role: bool = True
    short_ids: bool = False  # tool call ids of nine letters and digits
    parallel_calls: bool = True  # several calls in one message
    functions_text: bool = False  # the variable ``functions`` as JSON text
    empty_tools: bool = False  # an empty list instead of none where there are no tools


def adapt(
    messages: list[Message], tools: list[dict[str, Any]], caps: Capabilities
) -> tuple[list[Message], list[dict[str, Any]]]:
    """Messages and tools for the template's variables; the input stays as it is."""
    out = [dict(message) for message in messages]
    if not caps.tools or caps.calls is None:
        out = [_call_as_text(message) for message in out]
    elif not caps.parallel_calls:
        out = _one_call_each(out)
    if not caps.tools or not caps.tool_role:
        out = _results_as_user(out)
    if tools and not caps.tools:
        out, tools = _with_tools(out, tools), []
    out = _place_system(out, caps)
    if not caps.repeats:
        out = _merge_repeats(out)
    return [_finish(message, caps) for message in out], tools


def variables(
    messages: list[Message], tools: list[dict[str, Any]], caps: Capabilities, *, generate: bool
) -> dict[str, Any]:
    """What the template sees. ``functions`` is what a few templates call the tools."""
    given = list(tools) if tools or caps.empty_tools else None
    functions = (dumps(tools) if tools else "") if caps.functions_text else given
    return {"messages": messages, "tools": given, "functions": functions, "add_generation_prompt": generate}


def _call_as_text(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        return message
    blocks = [call_text(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    content = [part for part in message["content"] if part]
    return {**rest, "content": [*content, *blocks]}


def _one_call_each(messages: list[Message]) -> list[Message]:
    """A message with several calls as several messages, each followed by its call's result."""
    out: list[Message] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        calls = message.get("tool_calls", [])
        if len(calls) < 2:
            out.append(message)
            continue
        results: list[Message] = []
        while at < len(messages) and messages[at]["role"] == "tool":
            results.append(messages[at])
            at += 1
        for number, call in enumerate(calls):
            first = message if number == 0 else {"role": "assistant", "content": []}
            own = [r for r in results if r.get("tool_call_id") == call.get("id")] or results[:1]
            results = [r for r in results if r not in own]
            out += [{**first, "tool_calls": [call]}, *own]
        out += results
    return out


def _results_as_user(messages: list[Message]) -> list[Message]:
    """Tool results as user messages; the results of one turn share one."""
    out: list[Message] = []
    open_results = False
    for message in messages:
        if message["role"] != "tool":
            out.append(message)
            open_results = False
            continue
        block = response_text(_joined(message))
        if open_results:
            out[-1]["content"].append(block)
        else:
            out.append({"role": "user", "content": [block]})
        open_results = True
    return out


def _with_tools(messages: list[Message], tools: list[dict[str, Any]]) -> list[Message]:
    text = tools_text(tools)
    first = messages[0] if messages else None
    if first is None or first["role"] != "system":
        return [{"role": "system", "content": [text]}, *messages]
    return [{**first, "content": [text + "\n\n" + _joined(first)]}, *messages[1:]]


def _place_system(messages: list[Message], caps: Capabilities) -> list[Message]:
    run = 0
    while run < len(messages) and messages[run]["role"] == "system":
        run += 1
    lead, rest = messages[:run], messages[run:]
    if not caps.mid_system:
        rest = [{**message, "role": "user"} if message["role"] == "system" else message for message in rest]
    if not caps.system and lead:
        text = _joined_all(lead)
        if rest and rest[0]["role"] == "user":
            return [{**rest[0], "content": [text + "\n\n" + _joined(rest[0])]}, *rest[1:]]
        return [{"role": "user", "content": [text]}, *rest]
    if len(lead) > 1 and not caps.system_run:
        lead = [{**lead[0], "content": [_joined_all(lead)]}]
    return lead + rest


def _merge_repeats(messages: list[Message]) -> list[Message]:
    out: list[Message] = []
    for message in messages:
        last = out[-1] if out else None
        mergeable = message["role"] in ("user", "assistant") and last is not None
        if last is None or not mergeable or last["role"] != message["role"] or "tool_calls" in last:
            out.append(message)
        else:
            out[-1] = {**last, **message, "content": [_joined_all([last, message])]}
    return out


def _finish(message: Message, caps: Capabilities) -> Message:
    text = _joined(message)
    message["content"] = [{"type": "text", "text": text}] if caps.typed else text
    if "reasoning_content" in message:
        message.setdefault("thinking", message["reasoning_content"])
    if "tool_calls" in message:
        message["tool_calls"] = [_call(call, caps) for call in message["tool_calls"]]
    if caps.short_ids and isinstance(message.get("tool_call_id"), str):
        message["tool_call_id"] = _short_id(message["tool_call_id"])
    return message


def _call(call: dict[str, Any], caps: Capabilities) -> dict[str, Any]:
    function = call["function"]
    if caps.calls == "object":
        call = {**call, "function": {**function, "arguments": arguments_object(function["arguments"])}}
    if caps.short_ids:
        call = {**call, "id": _short_id(str(call.get("id", "")))}
    return call


def _short_id(call_id: str) -> str:
    if len(call_id) == 9 and call_id.isalnum():
        return call_id
    return hashlib.blake2b(call_id.encode("utf-8", "replace"), digest_size=8).hexdigest()[:9]


def _joined(message: Message) -> str:
    """Parts on lines of their own, as llama-server joins them."""
    return "\n".join(message["content"])


def _joined_all(messages: list[Message]) -> str:
    return "\n\n".join(text for text in map(_joined, messages) if text)
