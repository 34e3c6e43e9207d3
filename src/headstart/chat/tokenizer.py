"""What chat asks of a tokenizer. `engine.vocab.Vocabulary` is one; tests have a small fake."""

from __future__ import annotations

from typing import Protocol


class Tokenizer(Protocol):
    """A model's vocabulary. Thread-safe for reading; long texts belong on a thread with a big stack."""

    n_vocab: int
    bos: int | None
    eos: int | None
    bos_text: str
    eos_text: str
    adds_bos: bool
    template: str | None  # the model's chat template, Jinja source
    template_for_tools: str | None  # a second one for requests with tools, where the model has it

    def encode(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """Tokens of ``text``; ``special`` parses special tokens written in it, ``bos`` puts a missing BOS before it."""

    def piece(self, token: int) -> bytes:
        """The token's bytes, special tokens as their text. Raises ValueError when out of range."""

    def is_control(self, token: int) -> bool: ...

    def is_special(self, token: int) -> bool:
        """True where the token's text is split off before anything is merged: control tokens and a model's own tags."""

    def is_end(self, token: int) -> bool:
        """True where the token ends a generation."""
