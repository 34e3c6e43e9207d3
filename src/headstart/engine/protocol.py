"""What the worker asks of an engine. `engine.llama.LlamaEngine` drives the library, `engine.fake.FakeEngine` tests."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from ..core.plan import Action, Pick, Step
from ..messages import Failed, ModelInfo, Sampling
from ..types import RequestId, SeqId, Token


class StepResult(Struct, frozen=True):
    """``picks`` in the order of the step's sampling entries; ``failed`` names requests whose sampler broke."""

    picks: tuple[Pick, ...]
    ms: float
    failed: tuple[Failed, ...] = ()


class OutOfCells(Exception):
    """The library found no cells for the step; nothing of the step was kept, every sequence is as before."""


class Refused(Exception):
    """The library refused a memory action (or a saved state was unusable); the destination sequence is empty."""


class Engine(Protocol):
    """One model with one unified cache. Not thread-safe: one thread calls it."""

    @property
    def info(self) -> ModelInfo: ...

    def open(self, request: RequestId, sampling: Sampling, prompt: list[Token]) -> None:
        """Build the request's sampler and let its penalties see the prompt. Raises `RequestError` on bad settings."""

    def close(self, request: RequestId) -> None:
        """Free the sampler; unknown ids are fine."""

    def perform(self, action: Action) -> int:
        """Do one memory action. Returns bytes now held on the host for `Save`, else 0. Raises `Refused`."""

    def run(self, step: Step) -> StepResult:
        """Compute and sample. Raises `OutOfCells`."""

    def floors(self) -> dict[SeqId, int]:
        """With sliding windows: for each sequence the lowest position before which its window is still whole. Empty for
        other models."""

    def shutdown(self) -> None: ...
