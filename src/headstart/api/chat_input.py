"""A chat request to what the prompt builder takes."""

from __future__ import annotations

from typing import Any

from ..chat.fallback import dumps
from ..chat.inputs import ChatInput, Mark
from .limits import CHARS_PER_TOKEN, check_chat_counts, check_text_fits
from .services import Services
from .wire import parse
from .wire_chat import ChatRequest, Message, Tool
from .wire_sampling import Breakpoint


def read_chat(body: dict[str, Any], services: Services) -> tuple[ChatRequest, ChatInput]:
    """A chat request, refused here where it cannot fit whatever its tokens are. Raises `EngineError` without model."""
    n_ctx = services.ready_model().n_ctx
    check_chat_counts(body, n_ctx)
    chat = parse(ChatRequest, body)
    source = chat_input(chat)
    check_text_fits(text_size(source), n_ctx, "messages")
    return chat, source


def chat_input(chat: ChatRequest) -> ChatInput:
    """Only what templates know survives: ids, cache marks and vendor fields would make equal prompts differ."""
    tools = [tool_dict(tool) for tool in chat.tools or [] if tool.function is not None]
    continues = _continues(chat)
    opens = chat.add_generation_prompt is not False and not continues
    return ChatInput(
        messages=[message_dict(message) for message in chat.messages],
        tools=tools or None,
        template_kwargs=template_kwargs(chat),
        add_generation_prompt=opens,
        continue_final=continues,
        marks=marks_of(chat),
        implicit=not chat.explicit,
        salt=chat.cache_salt or "",
    )


def message_dict(message: Message) -> dict[str, Any]:
    """The message with the fields that templates read, content in the shape it came in."""
    content = message.content
    out: dict[str, Any] = {
        "role": message.role,
        "content": [{"type": "text", "text": part.text} for part in content] if isinstance(content, list) else content,
    }
    reasoning = message.reasoning_content
    if reasoning is None and isinstance(message.reasoning, str):
        reasoning = message.reasoning
    extras = {"name": message.name, "tool_call_id": message.tool_call_id, "reasoning_content": reasoning}
    out |= {key: value for key, value in extras.items() if value is not None}
    calls = [call for call in message.tool_calls or [] if call.function is not None]
    if calls:
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in calls
            if call.function is not None
        ]
    return out


def tool_dict(tool: Tool) -> dict[str, Any]:
    """A function tool with the fields that it came with, of those that templates read."""
    function = tool.function
    assert function is not None
    fields = {"name": function.name, "description": function.description, "parameters": function.parameters}
    return {"type": "function", "function": {key: value for key, value in fields.items() if value is not None}}


def text_size(source: ChatInput) -> int:
    """Characters that templates show; a message's frame counts as the longest that a token may have.

    Some leave old reasoning out, or parts of a tool. No client has that much of those and little else.
    """
    size = CHARS_PER_TOKEN * len(source.messages) + len(dumps(source.template_kwargs))
    for message in source.messages:
        content = message["content"]
        parts = content if isinstance(content, list) else [{"text": content or ""}]
        size += sum(len(part["text"]) for part in parts)
        size += sum(len(message.get(key) or "") for key in ("name", "tool_call_id", "reasoning_content"))
        for call in message.get("tool_calls", ()):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            size += len(name) + len(arguments if isinstance(arguments, str) else dumps(arguments))
    if source.tools:
        size += len(dumps(source.tools))
    return size


def template_kwargs(chat: ChatRequest) -> dict[str, Any]:
    """``chat_template_kwargs`` win over the fields of the same name."""
    kwargs: dict[str, Any] = {}
    if chat.reasoning_effort is not None:
        kwargs["reasoning_effort"] = chat.reasoning_effort
        if chat.reasoning_effort == "none":
            kwargs["enable_thinking"] = False
    if chat.enable_thinking is not None:
        kwargs["enable_thinking"] = chat.enable_thinking
    return {**kwargs, **(chat.chat_template_kwargs or {})}


def marks_of(chat: ChatRequest) -> list[Mark]:
    """Explicit cache marks in order; one without a lifetime has the request's."""
    default = chat.prompt_cache_options.ttl if chat.prompt_cache_options is not None else None

    def mark(point: Breakpoint, message: int, part: int | None) -> Mark:
        return Mark(message, part, default if point.ttl is None else point.ttl)

    marks: list[Mark] = []
    for i, message in enumerate(chat.messages):
        if isinstance(message.content, list):
            for j, part in enumerate(message.content):
                if part.prompt_cache_breakpoint is not None:
                    marks.append(mark(part.prompt_cache_breakpoint, i, j))
        if message.prompt_cache_breakpoint is not None:
            marks.append(mark(message.prompt_cache_breakpoint, i, None))
    return marks


def _continues(chat: ChatRequest) -> bool:
    """As in llama-server, a last message of the assistant's is a start to go on with."""
    if chat.continue_final_message is not None:
        return chat.continue_final_message and chat.messages[-1].role == "assistant"
    last = chat.messages[-1]
    spoken = last.role == "assistant" and bool(last.content) and not last.tool_calls
    return spoken and chat.add_generation_prompt is None
