"""One place that turns every failure into an HTTP answer."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..errors import EngineError, RequestError
from .respond import json_response

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """A failure without a dialect. ``retry_after`` is seconds."""

    status: int
    message: str
    kind: str
    code: str | None = None
    param: str | None = None
    retry_after: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        if self.status == 408:
            return {"Connection": "close"}  # what is missing may still come, and would be taken for a request
        if self.retry_after is not None:
            return {"Retry-After": str(self.retry_after)}
        return {}


def problem_of(error: BaseException) -> Problem:
    """What to tell the client about ``error``; an unknown one is logged and stays vague."""
    if isinstance(error, RequestError):
        retry = 1 if error.status == 429 and error.retry_after is None else error.retry_after
        return Problem(error.status, error.message, error.kind, error.code, error.param, retry)
    if isinstance(error, EngineError):
        return Problem(
            error.status, error.message, "unavailable_error" if error.status == 503 else "server_error",
            retry_after=1 if error.status == 503 else None,
        )  # fmt: skip
    if isinstance(error, HTTPException):
        return _of_http(error)
    log.error("unexpected failure while serving a request", exc_info=error)
    return Problem(500, "The server failed while handling this request.", "server_error", "internal_error")


def _of_http(error: HTTPException) -> Problem:
    if error.status_code == 404:
        return Problem(404, "Not found", "not_found_error", "not_found")
    if error.status_code == 405:
        return Problem(405, "Method not allowed", "invalid_request_error", "method_not_allowed")
    return Problem(error.status_code, str(error.detail), "invalid_request_error")


def openai_body(problem: Problem) -> dict[str, Any]:
    """The error object of the OpenAI API. Other dialects write their own from the same `Problem`."""
    return {
        "error": {
            "message": problem.message,
            "type": problem.kind,
            "param": problem.param,
            "code": problem.code,
        }
    }


def error_response(error: BaseException) -> Response:
    """The whole HTTP answer for ``error``, headers included."""
    problem = problem_of(error)
    return json_response(openai_body(problem), problem.status, problem.headers)


def install(app: FastAPI) -> None:
    """Let every failure of ``app`` leave as JSON."""

    async def handle(_request: Request, error: Exception) -> Response:
        answer = error_response(error)
        if isinstance(error, HTTPException) and error.headers:
            answer.headers.update(error.headers)
        return answer

    for family in (RequestError, EngineError, HTTPException, Exception):
        app.add_exception_handler(family, handle)
