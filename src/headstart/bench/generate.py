"""Write a random-weight GGUF of a chosen architecture, with the tokenizer of an existing one.

Text from such a model is noise; logits, caches, speed and memory behave as on a trained model of that shape.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from .models.shape import ARCHITECTURES, Shape
from .models.writer import ModelWriter, read_tokenizer

Quant = Literal["f16", "q8_0"]
__all__ = ["ARCHITECTURES", "Quant", "Shape", "generate"]


def generate(
    arch: str,
    out: str | Path,
    *,
    source: str | Path,
    seed: int = 0,
    quant: Quant = "f16",
    template: str | None = None,
    vocab: int | None = None,
    shape: Shape | None = None,
) -> Path:
    """Write ``arch`` to ``out`` and return its path.

    ``source`` is any GGUF with a gpt2-style tokenizer. ``template`` None takes the generator's own chat template,
    which knows tools and reasoning. ``vocab`` keeps only the first so many tokens of the tokenizer. The same
    arguments write the same weights. Raises ValueError for an unknown architecture.
    """
    if arch not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {arch!r}; use one of {', '.join(ARCHITECTURES)}")
    path = Path(out)
    tokenizer = read_tokenizer(str(source), vocab)
    ModelWriter(arch, path, tokenizer, shape or Shape(), seed=seed, quant=quant, template=template).write()
    return path
