"""A worker whose library never comes back from any grammar, with a watchdog that is quick about it."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from headstart import worker
from headstart.engine.sampler import Sampler
from headstart.recorder import Watchdog

_sample = Sampler.sample


def _hang(self: Sampler, *arguments: Any) -> int:
    if self._grammar is not None:
        ctypes.CDLL(None).pause()
    return _sample(self, *arguments)


if __name__ == "__main__":
    Sampler.sample = _hang  # type: ignore[method-assign]
    Watchdog.__init__.__defaults__ = (1, os._exit)  # type: ignore[attr-defined]
    worker.main()
