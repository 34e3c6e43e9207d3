"""One OpenAI-compatible server as the bench sees it: requests over real HTTP, and when each piece came back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from ..errors import HeadstartError

Body = dict[str, Any]


@dataclass
class Answer:
    """A streamed answer. ``times`` are the moments at which text arrived, on the clock of ``sent`` (seconds)."""

    sent: float
    times: list[float] = field(default_factory=list)
    text: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    headstart: dict[str, Any] = field(default_factory=dict)
    ended: float = 0.0

    @property
    def first(self) -> float:
        """Time to the first piece of text, seconds."""
        if not self.times:
            raise HeadstartError("a server answered without any text")
        return self.times[0] - self.sent

    @property
    def total(self) -> float:
        """Time to the end of the answer, seconds."""
        return self.ended - self.sent

    @property
    def prompt_tokens(self) -> int:
        return int(self.usage["prompt_tokens"])

    @property
    def generated(self) -> int:
        return int(self.usage["completion_tokens"])

    @property
    def cached(self) -> int:
        """Prompt tokens that the server says it had; 0 where it does not say."""
        details = self.usage.get("prompt_tokens_details") or {}
        return int(details.get("cached_tokens") or 0)

    @property
    def uncached(self) -> int:
        return self.prompt_tokens - self.cached

    @property
    def source(self) -> str:
        return str(self.headstart.get("source", ""))


class Target:
    """A server at ``url`` (without /v1). ``common`` is put under the fields of every request."""

    def __init__(self, url: str, common: Body, http: aiohttp.ClientSession) -> None:
        self.url, self.common, self._http = url.rstrip("/").removesuffix("/v1"), common, http

    async def chat(self, body: Body, *, on_text: Callable[[Answer], None] | None = None) -> Answer:
        """Send a chat request, streaming, and take the whole answer. Cancelling the task drops the connection."""
        answer = Answer(0.0)
        pieces: list[tuple[float, bytes]] = []
        async with aclosing(self._pieces(body, answer)) as stream:
            async for at, data in stream:
                # Parsing waits until the end: it would take a core from the server while it is being timed.
                pieces.append((at, data))
                if on_text is not None:
                    _fold(answer, at, data)
                    on_text(answer)
        if on_text is None:
            for at, data in pieces:
                _fold(answer, at, data)
        return answer

    async def _pieces(self, body: Body, answer: Answer) -> AsyncGenerator[tuple[float, bytes]]:
        wanted = {**self.common, **body, "stream": True, "stream_options": {"include_usage": True}}
        content = json.dumps(wanted).encode()
        answer.sent = time.perf_counter()
        headers = {"content-type": "application/json"}
        url = f"{self.url}/v1/chat/completions"
        async with self._http.post(url, data=content, headers=headers) as reply:
            if reply.status != 200:
                raise await _refused(self.url, reply)
            rest = b""
            async for block in reply.content.iter_any():
                now = time.perf_counter()
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:") and b"[DONE]" not in line:
                        yield now, line[5:]
        answer.ended = time.perf_counter()

    async def tokens(self, body: Body) -> list[int]:
        """The prompt of a chat request as token ids; for servers with llama-server's endpoints."""
        text = (await self._post("/apply-template", body))["prompt"]
        return await self.tokenize(text)

    async def tokenize(self, text: str) -> list[int]:
        """Ids of ``text``."""
        return list((await self._post("/tokenize", {"content": text}))["tokens"])

    async def metric(self, name: str) -> float:
        """A value from /metrics."""
        async with self._http.get(f"{self.url}/metrics") as reply:
            page = await reply.text()
        for line in page.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise HeadstartError(f"{self.url}/metrics has no {name}")

    async def idle(self) -> None:
        """Wait until the server has noticed that nobody wants anything from it."""
        for _ in range(200):
            async with self._http.get(f"{self.url}/slots") as reply:
                slots = await reply.json()
            if not any(slot["is_processing"] for slot in slots):
                return
            await asyncio.sleep(0.02)
        raise HeadstartError(f"{self.url} is still busy 4 s after the last request")

    async def _post(self, path: str, body: Body) -> dict[str, Any]:
        async with self._http.post(f"{self.url}{path}", json=body) as reply:
            if reply.status != 200:
                raise await _refused(f"{self.url}{path}", reply)
            found: dict[str, Any] = await reply.json()
            return found


async def _refused(url: str, reply: aiohttp.ClientResponse) -> HeadstartError:
    text = (await reply.read()).decode(errors="replace")
    return HeadstartError(f"{url} answered {reply.status}: {text[:300]}")


def _fold(answer: Answer, at: float, data: bytes) -> None:
    chunk = json.loads(data)
    if "error" in chunk:
        raise HeadstartError(f"the server gave up: {chunk['error']}")
    answer.usage = chunk.get("usage") or answer.usage
    answer.headstart = chunk.get("headstart") or answer.headstart
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
        if text or delta.get("tool_calls"):
            answer.times.append(at)
            answer.text += delta.get("content") or ""
