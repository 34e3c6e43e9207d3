"""A request once it's understood: what to compute, and how the client wants to hear of it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import structs
from starlette.requests import Request
from starlette.types import Receive

from .. import messages
from ..chat.output import OutputStream
from ..chat.prompt import Prompt
from ..errors import RequestError
from ..types import Cut, CutReason
from .limits import MAX_CHOICES, check_tokens_fit
from .sampling import seeded
from .services import Services
from .wire_sampling import CommonFields

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Job:
    """``works`` holds n submits for each prompt, choices of one prompt in a row; its index is the choice's index.

    ``output`` makes the parser of one choice. ``top`` is the number of alternatives per token that were asked for,
    None where logprobs were not.
    """

    id: str
    model: str
    works: list[messages.Submit]
    n: int
    output: Callable[[int], OutputStream]
    keep: Callable[[list[int]], None] | None = None  # told each choice's tokens once it's complete, on a pool thread
    stream: bool = False
    include_usage: bool = False
    timings_per_token: bool = False
    progress: bool = False
    top: int | None = None
    echoes: list[str] = field(default_factory=list)  # text put before each choice's
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def prompt_tokens(self) -> int:
        """Every prompt counted once, however many choices it has."""
        return sum(len(work.tokens) for work in self.works[:: self.n])


async def on_pool(request: Request, pool: Executor, work: Callable[[], Result]) -> Result:
    """Run ``work`` on a thread of ``pool``. A client that leaves while it waits is not worked for: few threads serve
    everybody. The request's body has to be read by then."""
    result = asyncio.wrap_future(pool.submit(work))
    watcher = asyncio.create_task(hung_up(request.receive))
    try:
        either: tuple[asyncio.Future[Any], ...] = (result, watcher)
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise gone()
        return result.result()
    finally:
        result.cancel()  # on the pool too, unless it runs
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)


async def hung_up(receive: Receive) -> None:
    """Return when the client has left. Its request's body has to be read by then."""
    while (await receive())["type"] != "http.disconnect":
        pass


def gone() -> RequestError:
    """What ends the work for a client that has left; nobody reads it."""
    return RequestError("The client left before its request was served.", status=499)


def new_id(prefix: str) -> str:
    """An id that nobody can guess: whoever knows it could abort the request."""
    return f"{prefix}-{secrets.token_urlsafe(18)}"


def check_model(request: CommonFields, services: Services) -> None:
    """Any name is served, as llama-server does, unless the server was told to be strict."""
    if services.config.strict_model and request.model not in (None, services.model_id):
        raise RequestError(
            f"The model '{request.model}' does not exist; this server has '{services.model_id}'.",
            status=404,
            code="model_not_found",
            param="model",
        )


def submits(
    request: CommonFields,
    prompts: list[Prompt],
    sampling: messages.Sampling,
    *,
    id: str,
    n_ctx: int,
    limit: int | None,
    param: str,
) -> list[messages.Submit]:
    """n submits for each prompt. ``limit`` is clamped to the context. Raises `RequestError` 400."""
    n = request.n or 1
    if n * len(prompts) > MAX_CHOICES:
        raise RequestError(
            f"Invalid value for 'n': at most {MAX_CHOICES} choices over all prompts", param="n", code="invalid_value"
        )
    works: list[messages.Submit] = []
    for prompt in prompts:
        check_tokens_fit(len(prompt.tokens), n_ctx, param)
        room = n_ctx - len(prompt.tokens)
        for choice in range(n):
            works.append(
                messages.Submit(
                    id=f"{id}/{len(works)}",
                    tokens=prompt.tokens,
                    cuts=cuts_of(prompt, request),
                    sampling=seeded(sampling, choice),
                    max_tokens=room if limit is None else min(limit, room),
                    reuse=request.cache_prompt is not False,
                    write=not request.explicit,
                    salt=request.cache_salt or "",
                )
            )
    return works


def cuts_of(prompt: Prompt, request: CommonFields) -> list[Cut]:
    """The prompt's cuts as ``prompt_cache_options`` wants them.

    In explicit mode marks alone are kept, so that a request without marks writes nothing. The lifetime that the
    request names is for the implicit ones too; marks have got it already.
    """
    if request.explicit:
        return [cut for cut in prompt.cuts if cut.reason is CutReason.EXPLICIT]
    ttl = request.prompt_cache_options.ttl if request.prompt_cache_options is not None else None
    if ttl is None:
        return prompt.cuts
    implicit = (CutReason.HEAD, CutReason.LAST_PART)
    return [structs.replace(cut, ttl=ttl) if cut.reason in implicit else cut for cut in prompt.cuts]


def presentation(request: CommonFields) -> dict[str, Any]:
    """The fields of a `Job` that say how its answer is to be told."""
    return {
        "stream": bool(request.stream),
        "include_usage": request.include_usage,
        "timings_per_token": bool(request.timings_per_token),
        "progress": bool(request.return_progress),
    }
