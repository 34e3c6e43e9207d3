"""Which grammar a request's answer has to follow."""

from __future__ import annotations

from typing import Any

from ..errors import RequestError
from .services import Services
from .wire_chat import ChatRequest, Tool
from .wire_sampling import SamplingFields


def plain_grammar(request: SamplingFields, services: Services) -> str | None:
    """``grammar`` or ``json_schema``, checked. May take long: call it on a pool thread."""
    if request.grammar and request.json_schema is not None:
        raise RequestError("Use either 'grammar' or 'json_schema', not both.", param="grammar", code="invalid_value")
    if request.grammar:
        services.check_gbnf(request.grammar)
        return request.grammar
    if request.json_schema is not None:
        return _converted(request.json_schema, "json_schema", services)
    return None


def chat_grammar(request: ChatRequest, services: Services) -> str | None:
    """As `plain_grammar`, with ``response_format`` and a ``tool_choice`` that forces a call."""
    forced = forced_tools(request)
    wanted = _response_grammar(request, services)
    plain = plain_grammar(request, services)
    if wanted and plain:
        raise RequestError(
            "Use either 'response_format' or a grammar of your own, not both.",
            param="response_format",
            code="invalid_value",
        )
    if forced:
        if plain:
            raise RequestError("A grammar cannot be combined with a forced tool call.", param="tool_choice")
        return _converted(call_schema(forced), "tools", services)
    return wanted or plain


def forced_tools(request: ChatRequest) -> list[Tool]:
    """The tools of which one has to be called; empty where the model may choose. Raises `RequestError` 400."""
    choice = request.tool_choice
    tools = [tool for tool in request.tools or [] if tool.function is not None]
    if choice in (None, "none", "auto"):
        return []
    name = choice["function"]["name"] if isinstance(choice, dict) else None
    matching = [tool for tool in tools if name is None or (tool.function and tool.function.name == name)]
    if not matching:
        what = f"'tools' has no function named {name!r}" if name else "it needs 'tools'"
        raise RequestError(f"Invalid value for 'tool_choice': {what}", param="tool_choice", code="invalid_value")
    return matching


def call_schema(tools: list[Tool]) -> dict[str, Any]:
    """The JSON that stands for one call of one of ``tools``."""
    calls: list[dict[str, Any]] = []
    defs: dict[str, Any] = {}
    for number, tool in enumerate(tools):
        if tool.function is None:
            continue
        arguments = tool.function.parameters or {"type": "object"}
        moved, found = _moved_refs(arguments, f"#/$defs/tool{number}")
        if found:
            defs[f"tool{number}"] = moved
            arguments = {"$ref": f"#/$defs/tool{number}"}
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": tool.function.name}, "arguments": arguments},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**schema, "$defs": defs} if defs else schema


def _moved_refs(schema: Any, root: str) -> tuple[Any, bool]:
    """``schema`` with its references as they must read once its root lies at ``root``, and whether it has any."""
    if isinstance(schema, dict):
        pairs = {key: _moved_refs(value, root) for key, value in schema.items()}
        moved = {key: value for key, (value, _) in pairs.items()}
        found = any(has for _, has in pairs.values())
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref.startswith("#"):
            moved["$ref"], found = root + ref[1:], True
        return moved, found
    if isinstance(schema, list):
        items = [_moved_refs(value, root) for value in schema]
        return [value for value, _ in items], any(has for _, has in items)
    return schema, False


def _response_grammar(request: ChatRequest, services: Services) -> str | None:
    form = request.response_format
    if form is None or form.type == "text":
        return None
    if form.type == "json_schema":
        schema = form.json_schema.schema_ if form.json_schema is not None else form.schema_
        if schema is None:
            raise RequestError(
                "Invalid value for 'response_format.json_schema': a schema is needed",
                param="response_format.json_schema",
                code="invalid_value",
            )
        strict = form.json_schema is not None and bool(form.json_schema.strict)
        return _converted(schema, "response_format", services, strict=strict)
    if form.schema_ is not None:
        return _converted(form.schema_, "response_format", services)
    return services.json_gbnf()


def _converted(schema: dict[str, Any], param: str, services: Services, *, strict: bool = False) -> str:
    try:
        return services.schema_to_gbnf(schema, strict)
    except RequestError as error:
        error.param = error.param or param
        raise
