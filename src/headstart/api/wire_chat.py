"""The body of a chat request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from .wire import HIDDEN, Int, Text, Wire
from .wire_sampling import Breakpoint, CommonFields

TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
# Replayed by clients of several servers; a model's own reasoning comes back as reasoning_content.
SILENT_PARTS = ("thinking", "redacted_thinking", "reasoning")


class Part(Wire):
    type: Text = "text"
    text: Text = ""
    prompt_cache_breakpoint: Breakpoint | None = None

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"type": "text", "text": value}
        if not isinstance(value, dict):
            raise ValueError("a content part is an object with a type")
        kind = value.get("type")
        kind = "text" if kind is None else kind
        if kind in SILENT_PARTS:
            return {"type": "text", "text": ""}
        if kind not in TEXT_PARTS:
            raise ValueError(f"content parts of type {str(kind)[:40]!r} are not supported by this model, only text")
        text = value.get("refusal") if kind == "refusal" else value.get("text")
        if not isinstance(text, str):
            raise ValueError("a text part needs a string 'text'")
        return {**value, "type": "text", "text": text}


def _content_kind(value: Any) -> str:
    return "~list" if isinstance(value, list) else "~text"


Content = Annotated[
    Annotated[str, Tag(HIDDEN + "text")] | Annotated[list[Part], Tag(HIDDEN + "list")], Discriminator(_content_kind)
]


class CalledFunction(Wire):
    name: Text
    arguments: Any = ""

    @field_validator("arguments")
    @classmethod
    def _arguments(cls, value: Any) -> Any:
        if value is None:
            return ""
        if not isinstance(value, str | dict):
            raise ValueError("arguments are a JSON text or an object")
        return value


class Call(Wire):
    id: Text | None = None
    type: Text | None = None
    function: CalledFunction | None = None


class Message(Wire):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: Text | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: Text | None = None
    reasoning_content: Text | None = None
    reasoning: Any = None  # vLLM's and OpenRouter's name for the same, where it's a text
    prompt_cache_breakpoint: Breakpoint | None = None


class ToolFunction(Wire):
    name: Annotated[Text, Field(min_length=1, max_length=256)]
    description: Text | None = None
    parameters: dict[str, Any] | None = None


class Tool(Wire):
    """Types that only one vendor's servers know (web_search, namespace, custom) have no function and are skipped."""

    type: Text = "function"
    function: ToolFunction | None = None

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("type") in ("function", None):
            if value.get("function") is None:
                raise ValueError("a function tool needs a 'function'")
            return value
        return {"type": value["type"]} if isinstance(value, dict) else value


class SchemaHolder(Wire):
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(Wire):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: SchemaHolder | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None  # llama-server's place for it


class ChatRequest(CommonFields):
    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[Tool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    max_completion_tokens: Annotated[Int, Field(ge=-1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[Int, Field(ge=0, le=20)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Text | None = None
    enable_thinking: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    @field_validator("tool_choice")
    @classmethod
    def _choice(cls, value: Any) -> Any:
        """ "none", "auto", "required", or the name of the one function to call as {"function": {"name": ...}}."""
        if value is None or value in ("none", "auto", "required"):
            return value
        if value == "any":  # Mistral's and Anthropic's word
            return "required"
        if isinstance(value, dict) and value.get("type") == "allowed_tools":
            allowed = value.get("allowed_tools")
            return "required" if isinstance(allowed, dict) and allowed.get("mode") == "required" else "auto"
        if isinstance(value, dict) and isinstance(value.get("function"), dict):
            name = value["function"].get("name")
            if isinstance(name, str) and name:
                return {"type": "function", "function": {"name": name}}
        raise ValueError("expected none, auto, required or a function to call")

    @property
    def token_limit(self) -> int | None:
        """None where there's no limit."""
        for value in (self.max_completion_tokens, self.max_tokens, self.n_predict):
            if value is not None:
                return None if value < 0 else value
        return None
