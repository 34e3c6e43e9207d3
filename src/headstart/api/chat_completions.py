"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..chat.deltas import ContentDelta, Delta, ReasoningDelta, ToolCallDelta
from ..chat.inputs import ChatInput, Prompt
from ..chat.output import OutputStream
from ..types import FinishReason
from .body import read
from .chat_input import read_chat
from .choice import Choice, TokenProb
from .grammar import chat_grammar, forced_tools
from .jobs import Job, check_model, new_id, on_pool, presentation, submits
from .sampling import sampling_of
from .services import Services
from .stream import Answer
from .wire_chat import ChatRequest


async def chat_completions(request: Request, services: Services) -> Response:
    """Answer a conversation. Raises `RequestError` and `EngineError` for what is known before queueing."""
    chat, source = await read(request, services, lambda body: read_chat(body, services))
    check_model(chat, services)
    job = await on_pool(request, services.pool, lambda: chat_job(chat, source, services))
    return Answer(job, ChatDialect(), services)


def chat_job(chat: ChatRequest, source: ChatInput, services: Services) -> Job:
    """Render, tokenize and check ``chat``. Takes milliseconds to seconds: call it on a pool thread."""
    n_ctx = services.ready_model().n_ctx
    top = (chat.top_logprobs or 0) if chat.logprobs else None
    grammar = chat_grammar(chat, services)
    prompt = services.builder.chat(source, limit=n_ctx)
    id = new_id("chatcmpl")
    sampling = sampling_of(chat, services.tokenizer, n_ctx, grammar=grammar, n_probs=top)
    works = submits(chat, [prompt], sampling, id=id, n_ctx=n_ctx, limit=chat.token_limit, param="messages")
    return Job(
        id=id,
        model=chat.model or services.model_id,
        works=works,
        n=chat.n or 1,
        output=lambda _index: chat_output(chat, prompt, source.tools, grammar, services),
        keep=lambda generated: services.builder.remember(prompt, generated),
        top=top,
        **presentation(chat),
    )


def chat_output(
    chat: ChatRequest, prompt: Prompt, tools: list[dict[str, Any]] | None, grammar: str | None, services: Services
) -> OutputStream:
    """The parser of one choice."""
    forced = bool(forced_tools(chat))
    return OutputStream(
        services.tokenizer,
        stops=chat.stop,
        # A grammar of the answer binds from the first token on, so there is no reasoning before it.
        reasoning_open=prompt.reasoning_open and grammar is None,
        parse_tools=bool(tools) and chat.tool_choice != "none",
        tools=tools,
        bare_json=prompt.bare_json or forced,
    )


class ChatDialect:
    whole_kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any]:
        return _entry(index, {"role": "assistant", "content": ""})

    def silence(self, index: int) -> dict[str, Any]:
        return _entry(index, {})

    def pieces(self, index: int, deltas: list[Delta], probs: list[TokenProb]) -> list[dict[str, Any]]:
        entries = [_entry(index, _delta(delta)) for delta in deltas]
        if probs:
            entries[0]["logprobs"] = _logprobs(probs)
        return entries

    def ending(self, index: int, choice: Choice, probs: list[TokenProb]) -> dict[str, Any]:
        entry = _entry(index, {})
        if probs:
            entry["logprobs"] = _logprobs(probs)
        return {**entry, "finish_reason": finish_reason(choice)}

    def whole(self, index: int, choice: Choice, deltas: list[Delta], probs: list[TokenProb]) -> dict[str, Any]:
        return {
            "index": index,
            "message": message_of(deltas),
            "logprobs": _logprobs(probs) if choice.tells_probs else None,
            "finish_reason": finish_reason(choice),
        }


def finish_reason(choice: Choice) -> str:
    """OpenAI's word for how the choice ended."""
    reason = choice.reason
    if reason is FinishReason.STOP and choice.output.tool_calls:
        return "tool_calls"
    return "length" if reason is FinishReason.LENGTH else "stop"


def message_of(deltas: list[Delta]) -> dict[str, Any]:
    """The message that ``deltas`` add up to."""
    content = "".join(d.text for d in deltas if isinstance(d, ContentDelta))
    reasoning = "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            call = calls.setdefault(
                delta.index, {"id": delta.id, "type": "function", "function": {"name": delta.name, "arguments": ""}}
            )
            call["function"]["arguments"] += delta.arguments
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return message


def _entry(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def _delta(delta: Delta) -> dict[str, Any]:
    match delta:
        case ContentDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text}
        case ToolCallDelta(index, id, name, arguments):
            call: dict[str, Any] = {"index": index}
            if id is not None:
                call |= {"id": id, "type": "function"}
            call["function"] = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
            return {"tool_calls": [call]}


def _logprobs(probs: list[TokenProb]) -> dict[str, Any]:
    return {
        "content": [
            {**_prob(p.piece, p.logprob), "top_logprobs": [_prob(piece, value) for piece, value in p.top]}
            for p in probs
        ],
        "refusal": None,
    }


def _prob(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}
