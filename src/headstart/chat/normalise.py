"""Client messages in any of their accepted shapes -> one canonical shape, checked.

A canonical message is a fresh dict whose ``content`` is a list of texts (the parts; empty for null), whose roles are
system, user, assistant and tool, and whose tool calls have the nested ``function`` form with ``arguments`` as JSON
text. Other keys (name, tool_call_id, ...) are kept for templates that show them.
"""

from __future__ import annotations

import json
from typing import Any

from ..errors import RequestError
from .fallback import dumps
from .inputs import Message

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEXT_PARTS = frozenset(("text", "input_text", "output_text", "refusal"))
_REASONING_PARTS = frozenset(("thinking", "reasoning"))
# Serving hints of single requests; rendered, they would make equal tools differ.
_TOOL_HINTS = frozenset(("strict", "cache_control", "prompt_cache_breakpoint"))


def canonical_messages(messages: list[Message]) -> list[Message]:
    """Raises `RequestError` 400 that names the message at fault."""
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list with at least one message.", param="messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Message, where: str) -> Message:
    if not isinstance(message, dict):
        raise RequestError(f"{where} must be an object.", param=where)
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise RequestError(
            f"{where} has the role {role!r}; known are system, developer, user, assistant and tool.",
            param=f"{where}.role",
        )
    out = {key: value for key, value in message.items() if value is not None}
    out["role"] = _ROLES[role]
    out["content"], thoughts = _parts(message.get("content"), f"{where}.content")
    reasoning = out.pop("reasoning", None)
    if "reasoning_content" not in out and (isinstance(reasoning, str) or thoughts):
        out["reasoning_content"] = reasoning if isinstance(reasoning, str) else "\n".join(thoughts)
    calls = out.pop("tool_calls", None)
    legacy = out.pop("function_call", None)
    if not calls and isinstance(legacy, dict):
        calls = [{"type": "function", "function": legacy}]
    if calls:
        if not isinstance(calls, list):
            raise RequestError(f"{where}.tool_calls must be a list.", param=f"{where}.tool_calls")
        out["tool_calls"] = [_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)]
    return out


def _parts(content: Any, where: str) -> tuple[list[str], list[str]]:
    """The texts and the reasoning texts of a content value."""
    if content is None:
        return [], []
    if isinstance(content, str):
        return [content], []
    if not isinstance(content, list):
        raise RequestError(f"{where} must be a string, null or a list of parts.", param=where)
    texts: list[str] = []
    thoughts: list[str] = []
    for index, part in enumerate(content):
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
        if kind in _REASONING_PARTS:
            thoughts.append(str(part.get("thinking") or text or ""))
        elif kind == "refusal" and isinstance(part, dict):
            texts.append(str(part.get("refusal") or text or ""))
        elif kind in _TEXT_PARTS and isinstance(text, str):
            texts.append(text)
        elif kind in _TEXT_PARTS:
            raise RequestError(f"{where}[{index}] has no text.", param=f"{where}[{index}]")
        else:
            raise RequestError(
                f"{where}[{index}] is of type {kind!r}: this model takes text only.", param=f"{where}[{index}]"
            )
    return texts, thoughts


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestError(f"{where} needs a function with a name.", param=where)
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else dumps(arguments if arguments is not None else {})
    return {**call, "type": "function", "function": {**function, "arguments": text if text.strip() else "{}"}}


def canonical_tools(tools: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Function tools in the nested form, keys in their order, without per-request hints.

    Other tool types (web_search, ...) are left out: this server cannot run them. Raises `RequestError` 400 for a
    function without a name.
    """
    out = []
    for index, tool in enumerate(tools or []):
        if not isinstance(tool, dict):
            raise RequestError(f"tools[{index}] must be an object.", param=f"tools[{index}]")
        if tool.get("type", "function") != "function":
            continue
        function = tool.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError(f"tools[{index}] needs a function with a name.", param=f"tools[{index}]")
        kept = {key: value for key, value in function.items() if key not in _TOOL_HINTS}
        out.append({"type": "function", "function": kept})
    return out


def arguments_object(text: str) -> Any:
    """Arguments for templates that take them apart. What isn't a JSON object stays readable under one key."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": text}
