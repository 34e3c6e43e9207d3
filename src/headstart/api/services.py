"""What the HTTP layer needs from the rest of the house, handed in by whoever composes the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .. import messages
from ..chat.prompt import PromptBuilder
from ..chat.tokenizer import Tokenizer
from ..errors import EngineError
from ..types import FinishReason
from .limits import Inbox

if TYPE_CHECKING:
    from ..config import Config

Reply = messages.Started | messages.Progress | messages.Sampled | messages.Finished


class Worker(Protocol):
    """The part of `client.Client` that requests use."""

    @property
    def state(self) -> Literal["loading", "ready", "down"]: ...

    @property
    def model(self) -> messages.ModelInfo | None: ...

    def generate(self, work: messages.Submit) -> AsyncIterator[Reply]:
        """Replies up to `Finished`. Raises `RequestError` or `EngineError`; closing it early aborts the request."""

    async def abort(self, id: str, reason: FinishReason) -> None:
        """Ask for an early `Finished` with this reason; unknown ids are no error."""

    async def inspect(self) -> messages.Snapshot: ...


@dataclass(frozen=True, kw_only=True)
class Services:
    """``pool`` has threads with stacks that a tokenizer may recurse on. Times are seconds.

    ``schema_to_gbnf``, ``json_gbnf`` and ``check_gbnf`` raise `RequestError`; they're handed in because only the
    engine knows the library. ``keepalive`` is the longest silence of a stream. ``peek`` is how long a stream's
    headers wait for a refusal that deserves an HTTP status of its own. ``parser`` is where large bodies are
    understood. ``body_silence`` is the longest wait for more of a body, ``body_seconds`` for all of it,
    ``inspect_seconds`` for the worker's state.
    """

    client: Worker
    builder: PromptBuilder
    tokenizer: Tokenizer
    config: Config
    metrics: Callable[[], bytes]
    pool: Executor
    schema_to_gbnf: Callable[[dict[str, Any], bool], str]
    json_gbnf: Callable[[], str]
    check_gbnf: Callable[[str], None]
    template_source: str = ""
    version: str = "0"
    keepalive: float = 5.0
    peek: float = 0.05
    body_limit: int = 64 * 1024 * 1024
    body_silence: float = 30.0
    body_seconds: float = 300.0
    inspect_seconds: float = 5.0
    inbox: Inbox = field(default_factory=Inbox)
    parser: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "parser"))
    created: int = field(default_factory=lambda: int(time()))

    def ready_model(self) -> messages.ModelInfo:
        """The loaded model. Raises `EngineError` 503 while there is none."""
        if self.client.state == "ready" and self.client.model is not None:
            return self.client.model
        what = "Loading model" if self.client.state == "loading" else "The worker is down and being restarted"
        raise EngineError(what, status=503)

    @property
    def n_ctx(self) -> int:
        """The context's length in tokens, 0 while no model is known."""
        return self.client.model.n_ctx if self.client.model is not None else 0

    @property
    def model_id(self) -> str:
        """The name that clients see: the alias, else the file's name."""
        if self.config.alias:
            return str(self.config.alias)
        path = self.client.model.path if self.client.model is not None else str(self.config.model or "model")
        return Path(path).name

    @property
    def fingerprint(self) -> str:
        return f"headstart-{self.version}"
