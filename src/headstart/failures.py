"""Errors across the wire: what the worker sends for one, and what the front raises for that."""

from __future__ import annotations

from .errors import EngineError, RequestError
from .messages import Failed
from .types import RequestId


def to_reply(request: RequestId, error: RequestError) -> Failed:
    """The reply for a request that its own content rules out."""
    return Failed(
        id=request,
        message=error.message,
        status=error.status,
        kind=error.kind,
        code=error.code,
        retry_after=error.retry_after,
    )


def to_error(reply: Failed) -> RequestError | EngineError:
    """Whose doing it was shows in the status."""
    if reply.status >= 500:
        return EngineError(reply.message, status=reply.status)
    return RequestError(
        reply.message, status=reply.status, kind=reply.kind, code=reply.code, retry_after=reply.retry_after
    )
