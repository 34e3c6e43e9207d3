"""From a request to prompt tokens with cut points."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import RequestError, context_length_exceeded
from ..types import CutReason
from .cuts import MAX_WRITES, Candidate, choose, with_geometric
from .edges import Continuations, PieceLengths, TokenEdges
from .history import TokenMemory
from .inputs import ChatInput, Mark, Message, Prompt
from .normalise import canonical_messages, canonical_tools
from .places import Place, PlaceFinder, common_prefix
from .template import ChatTemplate
from .tokenizer import Tokenizer

__all__ = ["ChatInput", "Mark", "Message", "Prompt", "PromptBuilder"]

_LONGEST_OPENING = 64  # characters of a generation prompt that opens the reasoning
_PROBE_CHARS = 8  # for each token that there is room for; ordinary text has about four
_PROBE_SLACK = 64  # tokens that the word at the probe's end may have more than when it is whole
_MORE_TOOLS = {"type": "function", "function": {"name": "another", "description": "", "parameters": {}}}


@dataclass(frozen=True, slots=True)
class _Job:
    """A request, checked, with one clock reading for all its renders. ``final`` is the answer to go on with."""

    messages: list[Message]
    tools: list[dict[str, Any]]
    kwargs: dict[str, Any]
    generate: bool
    now: datetime
    final: Message | None


class PromptBuilder:
    """Renders, tokenizes and cuts. Thread-safe; run `chat` and `text` on a thread with a big stack.

    As in llama-server, special tokens that are written out in a message are tokenized as special tokens.
    """

    def __init__(
        self, template: ChatTemplate, tokenizer: Tokenizer, *, auto_prefix: bool = True, prefix_min_tokens: int = 256
    ) -> None:
        """``prefix_min_tokens``: shorter heads are not cut. ``auto_prefix`` False cuts no head at all."""
        self.template = template
        self._tokenizer = tokenizer
        self._auto_prefix, self._prefix_min = auto_prefix, prefix_min_tokens
        self._lengths, self._continuations = PieceLengths(tokenizer), Continuations(tokenizer)
        self._memory = TokenMemory(tokenizer, self._lengths)
        self._finder = PlaceFinder()
        self._bare_json = template.contains("python_tag") or template.contains('{"name": function name')

    def render_text(self, chat: ChatInput) -> str:
        """The prompt as text. Raises `RequestError` 400 for what the model's template cannot take."""
        return self._text(self._job(chat))

    def chat(self, chat: ChatInput, *, limit: int | None = None) -> Prompt:
        """The prompt of a chat request. Raises `RequestError` as `render_text` does, and for ``limit`` tokens or
        more as soon as that is certain."""
        job = self._job(chat)
        text = self._text(job)
        tokens = self._encode(text, "messages", chat.salt, limit)
        candidates, generation = self._candidates(chat, job, text, tokens)
        return Prompt(
            text=text,
            tokens=tokens,
            cuts=choose(candidates, len(tokens), implicit=chat.implicit),
            reasoning_open=_ends_in_reasoning(text[generation:]),
            bare_json=self._bare_json and bool(job.tools),
            answered=job.generate,
            salt=chat.salt,
        )

    def text(self, prompt: str | list[int], salt: str = "", *, limit: int | None = None) -> Prompt:
        """The prompt of a completion request: text (BOS added where the model wants one) or token ids as they are.

        Raises `RequestError` 400 on an empty prompt, ids outside the vocabulary, or a text of ``limit`` tokens or more.
        """
        if isinstance(prompt, str):
            return Prompt(text=prompt, tokens=self._encode(prompt, "prompt", salt, limit), cuts=[])
        if not prompt:
            raise RequestError("The prompt is empty.", param="prompt")
        n_vocab = self._tokenizer.n_vocab
        bad = next((t for t in prompt if not isinstance(t, int) or isinstance(t, bool) or not 0 <= t < n_vocab), None)
        if bad is not None:
            raise RequestError(f"The prompt has the token {bad!r}; ids go from 0 to {n_vocab - 1}.", param="prompt")
        return Prompt(text=None, tokens=list(prompt), cuts=[])

    def remember(self, prompt: Prompt, generated: list[int]) -> None:
        """Keep the tokens of an answer, for when a later prompt holds it as history. Call once it is complete."""
        if prompt.text is not None and prompt.answered and generated:
            self._memory.remember(prompt.text, prompt.tokens, generated, prompt.salt)

    def _job(self, chat: ChatInput) -> _Job:
        messages = canonical_messages(chat.messages)
        tools = canonical_tools(chat.tools)
        final = None
        if chat.continue_final and len(messages) > 1 and messages[-1]["role"] == "assistant":
            final = messages.pop()
        generate = chat.add_generation_prompt or final is not None
        return _Job(messages, tools, chat.template_kwargs, generate, self.template.now(), final)

    def _render(self, job: _Job, messages: list[Message], *, generate: bool, more: bool = False) -> str:
        tools = [*job.tools, _MORE_TOOLS] if more else job.tools
        return self.template.render_canonical(
            messages, tools, add_generation_prompt=generate, kwargs=job.kwargs, now=job.now
        )

    def _text(self, job: _Job) -> str:
        text = self._render(job, job.messages, generate=job.generate)
        if job.final is None:
            return text
        content = "\n".join(job.final["content"])
        if _ends_in_reasoning(text[-_LONGEST_OPENING:]):
            text += job.final.get("reasoning_content", "") + "\n</think>\n\n" * bool(content)
        return text + content

    def _encode(self, text: str, param: str, salt: str, limit: int | None) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError("The text holds half a surrogate pair, which is no character.", param=param) from error
        if limit is not None and len(text) > limit * _PROBE_CHARS:
            # Its beginning alone may be too long, and a text of megabytes takes a thread for seconds.
            probe = self._tokenizer.encode(text[: limit * _PROBE_CHARS])
            _check_length(len(probe) - _PROBE_SLACK, limit, param)
        tokens = self._memory.encode(text, salt) if text else []
        if not tokens:
            raise RequestError("The prompt is empty.", param=param)
        if limit is not None:
            _check_length(len(tokens), limit, param)
        return tokens

    def _candidates(self, chat: ChatInput, job: _Job, text: str, tokens: list[int]) -> tuple[list[Candidate], int]:
        """Every cut that the request asks for or that usually pays, and the offset of the generation prompt."""
        wanted = self._wanted(chat, job)
        places = [place for place, _, _ in wanted]
        offsets, generation = self._finder.find(
            lambda messages: self._render(job, messages, generate=False), job.messages, text, places
        )
        edges = TokenEdges(text, tokens, self._tokenizer, self._lengths, self._continuations)
        found = [
            Candidate(edges.safe(offset, before_words=place.edge == "start"), reason, ttl)
            for offset, (place, reason, ttl) in zip(offsets, wanted, strict=True)
            if offset
        ]
        found = [c for c in found if c.reason is not CutReason.HEAD or c.position >= self._prefix_min]
        if chat.implicit:
            found.append(Candidate(edges.safe(generation), CutReason.GENERATION))
        for mark in chat.marks:
            if mark.message is None and job.tools:
                end = common_prefix(text, self._render(job, job.messages, generate=False, more=True))
                found.append(Candidate(edges.safe(end), CutReason.EXPLICIT, mark.ttl))
        return with_geometric(found), generation

    def _wanted(self, chat: ChatInput, job: _Job) -> list[tuple[Place, CutReason, float | None]]:
        messages, wanted = job.messages, list[tuple[Place, CutReason, float | None]]()
        for mark in chat.marks[-2 * MAX_WRITES :]:
            if mark.message is not None and 0 <= mark.message < len(messages):
                place = _marked_place(messages, mark.message, mark.part)
                if place is not None:
                    wanted.append((place, CutReason.EXPLICIT, mark.ttl))
        if not chat.implicit:
            return wanted
        first = next((i for i, m in enumerate(messages) if m["role"] != "system"), None)
        if first is not None and self._auto_prefix:
            wanted.append((Place(first, "start"), CutReason.HEAD, None))
        users = [i for i, m in enumerate(messages) if m["role"] == "user"]
        if users and users[-1] != first:
            wanted.append((Place(users[-1], "start"), CutReason.LAST_USER, None))
        full = [i for i, m in enumerate(messages) if m["content"]]
        if full:
            wanted.append((Place(full[-1], "end"), CutReason.LAST_PART, None))
        return wanted


def _check_length(count: int, limit: int, param: str) -> None:
    if count >= limit:
        error = context_length_exceeded(count, limit)
        error.param = param
        raise error


def _ends_in_reasoning(text: str) -> bool:
    opened = text.rfind("<think>")
    return opened >= 0 and opened > text.rfind("</think>")


def _marked_place(messages: list[Message], index: int, part: int | None) -> Place | None:
    """The end of the marked part; for a message without content, the start of the next one that has some."""
    parts = messages[index]["content"]
    if parts:
        return Place(index, "end", None if part is None else max(0, min(part, len(parts) - 1)))
    following = (i for i in range(index + 1, len(messages)) if messages[i]["content"])
    return next((Place(i, "start") for i in following), None)
