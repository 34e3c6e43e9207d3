"""The library alone, in a process of its own, measured in the same run as the server.

Only one of the two works at a time: the other waits for its next job without taking a core.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import msgspec

from ..engine.settings import EngineSettings
from ..errors import HeadstartError
from ..messages import Sampling


class Yardstick:
    """Measures with `engine.bare`. A context manager: the process ends with the block. Times are seconds."""

    def __init__(self, settings: EngineSettings, sampling: Sampling) -> None:
        self._first = {"settings": asdict(settings), "sampling": msgspec.to_builtins(sampling)}

    def __enter__(self) -> Yardstick:
        command = [sys.executable, "-m", "headstart.engine.bare"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.library = str(self._ask(self._first)["library"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    @property
    def pid(self) -> int:
        """The measuring process."""
        return self._process.pid

    def cold(self, tokens: int, hold: int) -> float:
        """A whole prompt on an empty cache, first token sampled. Its first ``hold`` tokens stay for what follows."""
        return float(self._ask({"job": "cold", "tokens": tokens, "hold": hold})["ms"]) / 1e3

    def attach(self, own: int, busy: int = 0, repeat: int = 5) -> list[float]:
        """Attach to what `cold` held, prefill ``own`` tokens, sample, while ``busy`` others decode in the same step."""
        times = self._ask({"job": "attach", "own": own, "busy": busy, "repeat": repeat})["ms"]
        return [ms / 1e3 for ms in times]

    def decode(self, sessions: int, own: int, tokens: int) -> tuple[float, float]:
        """``sessions`` generate ``tokens`` each, sampling included: when that began and ended, `time.perf_counter`."""
        answer = self._ask({"job": "decode", "sessions": sessions, "own": own, "tokens": tokens})
        return float(answer["began"]), float(answer["ended"])

    def chunk(self, own: int, reading: int, step_ms: float, smallest: int, repeat: int = 5) -> tuple[float, int]:
        """One small chunk beside a decode: seconds, and its prompt tokens."""
        job = {"job": "chunk", "own": own, "reading": reading, "step_ms": step_ms, "smallest": smallest}
        answer = self._ask({**job, "repeat": repeat})
        return float(answer["ms"]) / 1e3, int(answer["tokens"])

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its last words say why
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the measuring process ended without a word"}
        if "error" in answer:
            raise HeadstartError(f"yardstick: {answer['error']}")
        return answer
