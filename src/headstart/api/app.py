"""The routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from . import chat_completions, completions, errors, llama_server, models
from .auth import KeyGuard
from .services import Services

Handler = Callable[[Request, Services], Awaitable[Response]]

ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", models.root),
    ("GET", "/health", models.health),
    ("GET", "/v1/health", models.health),
    ("GET", "/v1/models", models.models),
    ("GET", "/models", models.models),
    ("GET", "/v1/models/{id:path}", models.model),
    ("POST", "/v1/chat/completions", chat_completions.chat_completions),
    ("POST", "/chat/completions", chat_completions.chat_completions),
    ("POST", "/v1/completions", completions.completions),
    ("POST", "/completions", completions.completions),
    ("GET", "/props", llama_server.props),
    ("GET", "/v1/props", llama_server.props),
    ("GET", "/slots", llama_server.slots),
    ("GET", "/metrics", llama_server.metrics),
    ("POST", "/tokenize", llama_server.tokenize),
    ("POST", "/detokenize", llama_server.detokenize),
    ("POST", "/apply-template", llama_server.apply_template),
)


def create_app(services: Services) -> FastAPI:
    """The HTTP server of ``services``. Unknown paths are 404: agents take a 200 as a sign of another server."""
    app = FastAPI(title="headstart", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for method, path, handler in ROUTES:
        methods = ["GET", "HEAD"] if method == "GET" else [method]
        app.add_api_route(path, _endpoint(handler, services), methods=methods, response_model=None)
    errors.install(app)
    app.add_middleware(KeyGuard, keys=tuple(services.config.api_key or ()))
    return app


def _endpoint(handler: Handler, services: Services) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await handler(request, services)

    return endpoint
