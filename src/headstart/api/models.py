"""GET /v1/models and /health: who we are and whether we serve."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..errors import EngineError, RequestError
from .respond import json_response
from .services import Services


async def models(_request: Request, services: Services) -> Response:
    """The list of the one model."""
    return json_response({"object": "list", "data": [model_card(services)]})


async def model(request: Request, services: Services) -> Response:
    """The model by name."""
    card = model_card(services)
    name = request.path_params["id"]
    if name != card["id"]:
        raise RequestError(f"The model '{name}' does not exist.", status=404, code="model_not_found", param="model")
    return json_response(card)


def model_card(services: Services) -> dict[str, Any]:
    """The model with its true context length under every name that clients look for. Raises `EngineError` 503."""
    info = services.ready_model()
    return {
        "id": services.model_id,
        "object": "model",
        "created": services.created,
        "owned_by": "headstart",
        "max_model_len": info.n_ctx,
        "context_length": info.n_ctx,
        "meta": {
            "n_ctx": info.n_ctx,
            "n_ctx_train": info.n_ctx_train,
            "n_vocab": info.n_vocab,
            "n_embd": info.n_embd,
            "n_params": info.n_params,
            "size": info.size_bytes,
            "description": info.description,
            "memory": info.kind.value,
        },
    }


async def health(_request: Request, services: Services) -> Response:
    """200 when requests are served, else 503."""
    try:
        services.ready_model()
    except EngineError as error:
        # llama-server's shape, which its clients and health checks compare with.
        body = {"error": {"code": error.status, "message": error.message, "type": "unavailable_error"}}
        return json_response(body, error.status)
    return json_response({"status": "ok"})


async def root(_request: Request, services: Services) -> Response:
    """A sign of life that is nobody else's."""
    return json_response({"server": "headstart", "version": services.version, "api": "/v1"})
