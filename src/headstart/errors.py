"""Two families: `RequestError` is the caller's doing and carries an HTTP status, `EngineError` is ours."""

from __future__ import annotations


class HeadstartError(Exception):
    """Root of everything this package raises on purpose."""


class StartupError(HeadstartError):
    """The server cannot start; the message is one line that says what to do. The CLI exits with 2."""


class RequestError(HeadstartError):
    """The request cannot be served as it stands.

    ``status`` is the HTTP status, ``kind`` the API's error ``type``, ``code`` its machine-readable code or None,
    ``param`` the field at fault or None, ``retry_after`` seconds for a Retry-After header or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.kind = message, status, kind
        self.code, self.param, self.retry_after = code, param, retry_after


def context_length_exceeded(prompt_tokens: int, limit: int, *, at_least: bool = False) -> RequestError:
    """The wording that agent clients recognise; both numbers are named. ``at_least``: the prompt's was not counted."""
    count = f"at least {prompt_tokens}" if at_least else str(prompt_tokens)
    return RequestError(
        f"This model's maximum context length is {limit} tokens. However, your prompt has {count} tokens. "
        "Please reduce the length of the messages.",
        code="context_length_exceeded",
        param="messages",
    )


def queue_full(waiting: int, *, retry_after: int) -> RequestError:
    """Nobody else may queue for now; ``retry_after`` in seconds."""
    return RequestError(
        f"{waiting} requests are waiting already.",
        status=429,
        kind="rate_limit_error",
        code="queue_full",
        retry_after=retry_after,
    )


class EngineError(HeadstartError):
    """Our side failed. ``status`` is the HTTP status the client sees: 503 where a retry may succeed, else 500."""

    def __init__(self, message: str, *, status: int = 500) -> None:
        super().__init__(message)
        self.message, self.status = message, status
