"""API keys."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import RequestError
from .errors import error_response

# llama-server leaves these open too: probes and model pickers ask before they have a key.
PUBLIC = frozenset({"/", "/health", "/v1/health", "/models", "/v1/models"})


class KeyGuard:
    """Refuses requests without one of ``keys``, sent as ``Authorization: Bearer KEY`` or ``x-api-key: KEY``."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys if key]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._keys or scope["path"] in PUBLIC or self._admits(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        refusal = RequestError("Invalid API Key", status=401, kind="authentication_error", code="invalid_api_key")
        await error_response(refusal)(scope, receive, send)

    def _admits(self, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        offered = (bearer.strip() if scheme.lower() == "bearer" else "") or headers.get("x-api-key", "")
        given = offered.encode("latin-1", "replace")
        # Every key is compared, so that the time taken does not tell which one came close.
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        return any(matches)
