"""llama-server's own endpoints: /props, /slots, /metrics, /tokenize, /detokenize, /apply-template."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from .. import messages
from ..errors import EngineError, RequestError
from .body import read
from .chat_input import read_chat
from .jobs import on_pool
from .limits import check_text_fits
from .respond import json_response
from .services import Services
from .wire import Int, Wire, parse


class TokenizeRequest(Wire):
    content: Any = ""
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class DetokenizeRequest(Wire):
    tokens: Annotated[list[Int], Field(max_length=1 << 20, default_factory=list)]


async def props(_request: Request, services: Services) -> Response:
    """llama-server's properties: what clients read the context length and the template from."""
    info = services.ready_model()
    defaults = msgspec.to_builtins(messages.Sampling())
    params = {**defaults, "n_predict": -1, "max_tokens": -1, "stream": True, "stop": [], "seed": 0xFFFFFFFF}
    return json_response(
        {
            "default_generation_settings": {
                "id": 0,
                "id_task": -1,
                "n_ctx": info.n_ctx,
                "speculative": False,
                "is_processing": False,
                "params": params,
                "next_token": {"has_next_token": True, "n_remain": -1, "n_decoded": 0},
            },
            "total_slots": services.config.parallel,
            "model_alias": services.model_id,
            "model_path": info.path,
            "modalities": {"vision": False, "audio": False},
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "chat_template": services.template_source,
            "bos_token": services.tokenizer.bos_text,
            "eos_token": services.tokenizer.eos_text,
            "build_info": services.fingerprint,
            "is_sleeping": False,
        }
    )


async def slots(request: Request, services: Services) -> Response:
    """One entry for each live request and holder."""
    info = services.ready_model()
    snapshot = await _snapshot(services)
    if request.query_params.get("fail_on_no_slot") and snapshot.running >= services.config.parallel:
        raise EngineError("no slot available", status=503)
    return json_response([_slot(view, info.n_ctx) for view in snapshot.slots])


async def _snapshot(services: Services) -> messages.Snapshot:
    """The worker answers between two steps, and a step may be long."""
    try:
        async with asyncio.timeout(services.inspect_seconds) as limit:
            return await services.client.inspect()
    except (TimeoutError, EngineError):
        if limit.expired():  # the client says that the worker died when its wait is cut off
            raise EngineError("The worker is busy.", status=503) from None
        raise


def _slot(view: messages.SlotView, n_ctx: int) -> dict[str, Any]:
    """llama-server's keys first, what only we know after them."""
    busy = view.state in ("prefill", "decode", "waiting")
    return {
        "id": view.seq,
        "id_task": view.id if view.id is not None else -1,
        "n_ctx": n_ctx,
        "speculative": False,
        "is_processing": busy,
        "n_prompt_tokens": view.n_prompt,
        "n_prompt_tokens_cache": view.n_cached,
        "n_prompt_tokens_processed": max(0, min(view.n_tokens, view.n_prompt) - view.n_cached),
        "next_token": [{"has_next_token": busy, "n_remain": -1, "n_decoded": view.n_decoded}],
        "state": view.state,
        "n_tokens": view.n_tokens,
        "own_cells": view.own_cells,
        "hits": view.hits,
        "reason": view.reason,
    }


async def metrics(_request: Request, services: Services) -> Response:
    """Prometheus text."""
    return Response(services.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def tokenize(request: Request, services: Services) -> Response:
    """Ids of a text, or of texts mixed with ids."""
    body = await read(request, services, lambda body: parse(TokenizeRequest, body))
    return await on_pool(request, services.pool, lambda: _tokenized(body, services))


def _tokenized(body: TokenizeRequest, services: Services) -> Response:
    tokens = _tokens(body, services)
    if body.with_pieces:
        return json_response({"tokens": [{"id": t, "piece": _piece(t, services)} for t in tokens]})
    return json_response({"tokens": tokens})


def _tokens(body: TokenizeRequest, services: Services) -> list[int]:
    parts = body.content if isinstance(body.content, list) else [body.content]
    n_vocab = services.tokenizer.n_vocab
    if not all(isinstance(p, str) or (type(p) is int and 0 <= p < n_vocab) for p in parts):
        raise RequestError(
            "Invalid value for 'content': expected a text, or a list of texts and token ids",
            param="content",
            code="invalid_value",
        )
    check_text_fits(sum(len(p) for p in parts if isinstance(p, str)), max(services.n_ctx, 1 << 16), "content")
    tokens: list[int] = []
    special = body.parse_special is not False
    for i, part in enumerate(parts):
        if isinstance(part, int):
            tokens.append(part)
        else:
            tokens += services.tokenizer.encode(part, special=special, bos=i == 0 and bool(body.add_special))
    return tokens


def _piece(token: int, services: Services) -> str | list[int]:
    piece = services.tokenizer.piece(token)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


async def detokenize(request: Request, services: Services) -> Response:
    """The text of ids."""
    body = await read(request, services, lambda body: parse(DetokenizeRequest, body))
    return await on_pool(request, services.pool, lambda: _detokenized(body, services))


def _detokenized(body: DetokenizeRequest, services: Services) -> Response:
    n_vocab = services.tokenizer.n_vocab
    for token in body.tokens:
        if not 0 <= token < n_vocab:
            raise RequestError(
                f"Invalid value for 'tokens': token {token} is not in the vocabulary of {n_vocab} tokens",
                param="tokens",
                code="invalid_value",
            )
    text = b"".join(services.tokenizer.piece(token) for token in body.tokens)
    return json_response({"content": text.decode("utf-8", "replace")})


async def apply_template(request: Request, services: Services) -> Response:
    """The prompt of a chat request as text."""
    _, source = await read(request, services, lambda body: read_chat(body, services))
    prompt = await on_pool(request, services.pool, lambda: services.builder.render_text(source))
    return json_response({"prompt": prompt})
