"""POST /v1/completions."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..chat.deltas import ContentDelta, Delta
from ..chat.output import OutputStream
from ..errors import RequestError
from ..types import FinishReason
from .body import read
from .choice import Choice, TokenProb
from .grammar import plain_grammar
from .jobs import Job, check_model, new_id, on_pool, presentation, submits
from .limits import check_prompt_counts, check_text_fits, check_tokens_fit
from .sampling import sampling_of
from .services import Services
from .stream import Answer
from .wire import parse
from .wire_completions import CompletionRequest


async def completions(request: Request, services: Services) -> Response:
    """Continue texts. Raises `RequestError` and `EngineError` for what is known before queueing."""
    body = await read(request, services, lambda body: _understood(body, services))
    check_model(body, services)
    job = await on_pool(request, services.pool, lambda: completion_job(body, services))
    return Answer(job, TextDialect(job.echoes), services)


def _understood(body: dict[str, Any], services: Services) -> CompletionRequest:
    check_prompt_counts(body, services.ready_model().n_ctx)
    return parse(CompletionRequest, body)


def completion_job(body: CompletionRequest, services: Services) -> Job:
    """Tokenize and check ``body``. Takes milliseconds to seconds: call it on a pool thread."""
    n_ctx = services.ready_model().n_ctx
    n = body.n or 1
    if body.best_of is not None and body.best_of != n:
        raise RequestError("'best_of' other than 'n' is not supported.", param="best_of", code="unsupported_value")
    if body.echo and body.logprobs is not None:
        raise RequestError(
            "'echo' with 'logprobs' is not supported: the prompt's logprobs are not kept.",
            param="echo",
            code="unsupported_value",
        )
    grammar = plain_grammar(body, services)
    for prompt in body.prompt:
        _check(prompt, n_ctx, services.tokenizer.n_vocab)
    prompts = [services.builder.text(prompt, body.cache_salt or "", limit=n_ctx) for prompt in body.prompt]
    id = new_id("cmpl")
    sampling = sampling_of(body, services.tokenizer, n_ctx, grammar=grammar, n_probs=body.logprobs)
    return Job(
        id=id,
        model=body.model or services.model_id,
        works=submits(body, prompts, sampling, id=id, n_ctx=n_ctx, limit=body.token_limit, param="prompt"),
        n=n,
        output=lambda _index: OutputStream(services.tokenizer, stops=body.stop, parse_reasoning=False),
        top=body.logprobs,
        echoes=[_text(prompt, services) for prompt in body.prompt for _ in range(n)] if body.echo else [],
        **presentation(body),
    )


def _check(prompt: str | list[int], n_ctx: int, n_vocab: int) -> None:
    if isinstance(prompt, str):
        check_text_fits(len(prompt), n_ctx, "prompt")
        return
    check_tokens_fit(len(prompt), n_ctx, "prompt")
    for token in prompt:
        if not 0 <= token < n_vocab:
            raise RequestError(
                f"Invalid value for 'prompt': token {token} is not in the vocabulary of {n_vocab} tokens",
                param="prompt",
                code="invalid_value",
            )


def _text(prompt: str | list[int], services: Services) -> str:
    if isinstance(prompt, str):
        return prompt
    return b"".join(services.tokenizer.piece(token) for token in prompt).decode("utf-8", "replace")


class TextDialect:
    whole_kind = "text_completion"
    chunk_kind = "text_completion"

    def __init__(self, echoes: list[str]) -> None:
        self._echoes = echoes
        self._offsets: dict[int, int] = {}  # characters of each choice whose logprobs are out

    def opening(self, index: int) -> dict[str, Any] | None:
        return _entry(index, self._echoes[index]) if self._echoes else None

    def silence(self, index: int) -> dict[str, Any]:
        return _entry(index, "")

    def pieces(self, index: int, deltas: list[Delta], probs: list[TokenProb]) -> list[dict[str, Any]]:
        found = self._logprobs(index, probs) if probs else None
        return [{**_entry(index, _joined(deltas)), "logprobs": found}]

    def ending(self, index: int, choice: Choice, probs: list[TokenProb]) -> dict[str, Any]:
        found = self._logprobs(index, probs) if probs else None
        return {**_entry(index, ""), "logprobs": found, "finish_reason": _finish_reason(choice)}

    def whole(self, index: int, choice: Choice, deltas: list[Delta], probs: list[TokenProb]) -> dict[str, Any]:
        echo = self._echoes[index] if self._echoes else ""
        entry = _entry(index, echo + _joined(deltas))
        found = self._logprobs(index, probs) if choice.tells_probs else None
        return {**entry, "logprobs": found, "finish_reason": _finish_reason(choice)}

    def _logprobs(self, index: int, probs: list[TokenProb]) -> dict[str, Any]:
        tokens = [p.piece.decode("utf-8", "replace") for p in probs]
        offsets = []
        for token in tokens:
            offsets.append(self._offsets.get(index, 0))
            self._offsets[index] = offsets[-1] + len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [p.logprob for p in probs],
            "top_logprobs": [{piece.decode("utf-8", "replace"): value for piece, value in p.top} for p in probs],
            "text_offset": offsets,
        }


def _entry(index: int, text: str) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": None}


def _joined(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))


def _finish_reason(choice: Choice) -> str:
    return "length" if choice.reason is FinishReason.LENGTH else "stop"
