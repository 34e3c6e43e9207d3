"""Doubles of what the HTTP layer is given: a byte tokenizer, a prompt builder, a worker that follows a script."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import SimpleNamespace

try:  # what the openai SDK is built on decides which one its transport has to come from
    import httpx2 as httpx
except ImportError:
    import httpx

from headstart import messages
from headstart.api.app import create_app
from headstart.api.services import Services
from headstart.chat.inputs import Prompt
from headstart.errors import RequestError
from headstart.types import Cut, CutReason, FinishReason, MemoryKind, Source

BOS, EOS = 256, 257


class ByteTokenizer:
    n_vocab = 258
    bos, eos, bos_text, eos_text = BOS, EOS, "<s>", "</s>"
    adds_bos = True
    template = template_for_tools = None

    def encode(self, text, *, special=True, bos=False):
        return ([BOS] if bos else []) + list(text.encode())

    def piece(self, token):
        if not 0 <= token < self.n_vocab:
            raise ValueError(token)
        return [b"<s>", b"</s>"][token - BOS] if token >= BOS else bytes([token])

    def is_control(self, token):
        return token >= BOS

    is_special = is_control

    def is_end(self, token):
        return token == EOS


class PlainBuilder:
    """Renders ``role:content`` lines. Marks become explicit cuts after 10, 20, ... tokens."""

    reasoning_open = False

    def __init__(self):
        self.seen = []

    def render_text(self, chat):
        self.seen.append(chat)
        if any("refuse" in str(m["content"]) for m in chat.messages):
            raise RequestError("the template says no", param="messages")
        return "".join(f"{m['role']}:{m['content']}\n" for m in chat.messages)

    def chat(self, chat, *, limit=None):
        tokens = ByteTokenizer().encode(self.render_text(chat), bos=True)
        cuts = [Cut(5, CutReason.HEAD)] if chat.implicit else []
        cuts += [Cut(10 * (i + 1), CutReason.EXPLICIT, mark.ttl) for i, mark in enumerate(chat.marks)]
        return Prompt("", tokens, cuts, reasoning_open=self.reasoning_open)

    def text(self, prompt, salt="", *, limit=None):
        tokens = ByteTokenizer().encode(prompt, bos=True) if isinstance(prompt, str) else list(prompt)
        return Prompt(None, tokens, [])


class ScriptedWorker:
    """Answers every submit with ``text``; ``before`` maps a reply's number to something to await or raise first."""

    def __init__(
        self, text="Hello, world.", *, reason=FinishReason.STOP, cached=3, before=None, n_ctx=1000, progress=0
    ):
        self.text, self.reason, self.cached, self.before = text, reason, cached, before or {}
        self.progress = progress
        self.state = "ready"
        self.model = messages.ModelInfo(
            path="/models/tiny.gguf", description="tiny", kind=MemoryKind.ATTENTION, n_ctx=n_ctx, n_ctx_train=2 * n_ctx,
            n_seq=16, n_vocab=258, n_embd=8, n_params=1, size_bytes=1, kv_bytes_per_token=1, sharing=True,
        )  # fmt: skip
        self.submitted, self.opened, self.closed, self.aborted = [], [], [], []

    async def generate(self, work):
        self.submitted.append(work)
        self.opened.append(work.id)
        late = 0  # tokens that were on their way when the abort came
        try:
            for number, reply in enumerate(self.replies(work)):
                if (first := self.before.get(number)) is not None:
                    if isinstance(first, Exception):
                        raise first
                    await first.wait() if isinstance(first, asyncio.Event) else await asyncio.sleep(first)
                if work.id in self.aborted and isinstance(reply, messages.Sampled):
                    late += 1
                    if late > 2:
                        continue
                yield reply
                await asyncio.sleep(0)
        finally:
            self.closed.append(work.id)

    def replies(self, work):
        total = len(work.tokens)
        cached = min(self.cached, total - 1)
        if work.id.rpartition("/")[2] != "0" and work.tokens == self.submitted[0].tokens:
            cached = total - 1
        yield messages.Started(id=work.id, source=Source.HOLDER, cached_tokens=cached, source_tokens=9, reason="why")
        for i in range(self.progress):
            yield messages.Progress(id=work.id, total=total, cached=cached, processed=cached + i, time_ms=1.5)
        tokens = [*self.text.encode(), EOS] if self.reason is FinishReason.STOP else [*self.text.encode()]
        tokens = tokens[: work.max_tokens]
        sent = 0
        for token in tokens:
            sent += 1
            yield messages.Sampled(work.id, token, -0.5, ((token, -0.5), (33, -1.5)) if work.sampling.n_probs else ())
        timings = messages.Timings(
            cache_n=cached, prompt_n=total - cached, prompt_ms=8.0, predicted_n=sent, predicted_ms=4.0, queue_ms=1.0
        )
        yield messages.Finished(work.id, self.reason, timings, total - cached)

    async def abort(self, id, reason):
        self.aborted.append(id)
        self.reason = reason  # of the one who is stopped; scripts have one

    async def inspect(self):
        view = messages.SlotView(
            seq=1, state="decode", id="a", n_tokens=9, n_prompt=7, n_cached=3, n_decoded=2, own_cells=6
        )
        return messages.Snapshot(nonce=0, slots=[view], cells_used=9, cells_total=1000, running=1, queued=0, waiting=0)


def services(worker=None, **changes):
    config = {"alias": "tiny", "model": "/models/tiny.gguf", "api_key": (), "strict_model": False, "parallel": 4}
    config |= changes.pop("config", {})
    given = {
        "client": worker or ScriptedWorker(),
        "builder": PlainBuilder(),
        "tokenizer": ByteTokenizer(),
        "config": SimpleNamespace(**config),
        "metrics": lambda: b"llamacpp:prompt_tokens_total 1\n",
        "pool": ThreadPoolExecutor(1),
        "schema_to_gbnf": lambda schema, strict: f"root ::= {json.dumps(schema)}",
        "json_gbnf": lambda: 'root ::= "{}"',
        "check_gbnf": check_gbnf,
        "template_source": "{{ messages }}",
    }
    return Services(**(given | changes))


def check_gbnf(text):
    if "bad" in text:
        raise RequestError("cannot parse the grammar", param="grammar")


def run(test):
    """Let a coroutine be a test."""

    def runner():
        asyncio.run(asyncio.wait_for(test(), 20))

    runner.__name__ = test.__name__
    return runner


@asynccontextmanager
async def http(made, **options):
    transport = httpx.ASGITransport(app=create_app(made))
    async with httpx.AsyncClient(transport=transport, base_url="http://test", **options) as client:
        yield client


def chat(**fields):
    return {"messages": [{"role": "user", "content": "Say hello to the world."}], **fields}


def events(text):
    """Decoded data events of an event stream; comments and [DONE] stay strings."""
    out = []
    for block in filter(None, text.split("\n\n")):
        data = block.removeprefix("data: ")
        out.append(json.loads(data) if data.startswith("{") else data)
    return out


class Wire:
    """One request driven by hand, so that a test sees each piece when it's sent and can hang up."""

    def __init__(self, app, path, body, *, breaks=False):
        self._breaks = breaks
        self.sent, self.started = [], asyncio.Event()
        self._gone = asyncio.Event()
        self._body = json.dumps(body).encode()
        self._arrived = asyncio.Event()
        self._unread = True
        headers = [(b"content-type", b"application/json"), (b"host", b"test")]
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": headers, "server": ("test", 80), "client": ("test", 1),
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        if self._unread:
            self._unread = False
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        if self._breaks and message["type"] == "http.response.body":
            raise OSError("broken pipe")
        self.sent.append(message)
        self._arrived.set()

    def hang_up(self):
        self._gone.set()

    @property
    def status(self):
        return self.sent[0]["status"] if self.sent else None

    @property
    def text(self):
        return b"".join(m.get("body", b"") for m in self.sent).decode()

    async def until(self, condition):
        while not condition(self):
            self._arrived.clear()
            waiter = asyncio.create_task(self._arrived.wait())
            await asyncio.wait({waiter, self.task}, return_when=asyncio.FIRST_COMPLETED, timeout=10)
            waiter.cancel()
            if self.task.done() and not condition(self):
                raise AssertionError(f"ended first: {self.text}")
