"""DRY samplers: built once for equal settings, then cloned, and refused where building one would stop everybody.

For each breaker the library looks at every token of the vocabulary, and where a token ends in the way that the breaker
begins it tokenizes the breaker's rest, one token after the other. "ss" is half a second that way; a clone is nothing.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp.llama_cpp as C

from ..errors import RequestError
from ..messages import Sampling
from .lib import Handle

MAX_BREAKERS, MAX_BREAKER_CHARS = 8, 40  # the library cuts longer ones off at 40 bytes
MAX_OVERLAPS = 3000  # of all breakers together, about a tenth of a millisecond each
TEMPLATES = 8
_LONGEST = 256  # bytes; longer tokens are runs of one sign, and few


class Dry:
    """Makes DRY samplers for one vocabulary. Holds C objects: call `close`."""

    def __init__(self, vocab: Handle, n_vocab: int, n_ctx: int) -> None:
        self._vocab, self._n_vocab, self._n_ctx = vocab, n_vocab, n_ctx
        self._templates: dict[tuple[Any, ...], Any] = {}
        self._endings: bytes | None = None

    def sampler(self, s: Sampling) -> Handle:
        """A sampler of the caller's own. Raises `RequestError` for breakers that take too long to prepare."""
        last = self._n_ctx if s.dry_penalty_last_n < 0 else min(s.dry_penalty_last_n, self._n_ctx)
        # Half of a surrogate pair has no UTF-8 form and can break no token sequence.
        texts = [b.encode("utf-8", "ignore") for b in s.dry_sequence_breakers]
        texts = [t for t in dict.fromkeys(texts) if t and 0 not in t]
        numbers = (s.dry_multiplier, s.dry_base, s.dry_allowed_length, last)
        key = (*numbers, *texts)
        template = self._templates.pop(key, None)
        if template is None:
            self._check(texts)
            array = (ctypes.c_char_p * max(1, len(texts)))(*texts)
            template = C.llama_sampler_init_dry(self._vocab, *numbers, array, len(texts))
            if not template:
                raise RequestError("the library refused these DRY settings", param="dry_multiplier")
        self._templates[key] = template  # the latest is last
        if len(self._templates) > TEMPLATES:
            C.llama_sampler_free(self._templates.pop(next(iter(self._templates))))
        return C.llama_sampler_clone(template)

    def _check(self, texts: list[bytes]) -> None:
        overlaps = 0
        for text in texts:
            # A breaker of one character is found inside tokens, or not at all.
            own = sum(self._tokens_ending_in(text[:n]) for n in range(1, min(len(text), MAX_BREAKER_CHARS)))
            overlaps += own
            if overlaps > MAX_OVERLAPS:
                raise RequestError(
                    f"dry_sequence_breakers: {text.decode()!r} begins as too many tokens of the vocabulary end "
                    f"({own}, with the others {overlaps}, at most {MAX_OVERLAPS}). One that begins with a space, a "
                    "capital letter or a sign costs less.",
                    param="dry_sequence_breakers",
                )

    def _tokens_ending_in(self, text: bytes) -> int:
        if self._endings is None:
            self._endings = b"\0".join([*map(self._text, range(self._n_vocab)), b""])
        return self._endings.count(text + b"\0")

    def _text(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(_LONGEST)
        size = int(C.llama_token_to_piece(self._vocab, token, buffer, _LONGEST, 0, True))
        return buffer.raw[: max(0, size)]

    def close(self) -> None:
        """Free the templates; samplers that were handed out are their owners'."""
        for template in self._templates.values():
            C.llama_sampler_free(template)
        self._templates.clear()
