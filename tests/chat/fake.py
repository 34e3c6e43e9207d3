"""A small tokenizer for tests: greedy longest match over words, byte fallback, special tokens."""

from __future__ import annotations

import re

SPECIAL = [
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<|channel|>",
    "<|end|>",
    "<|message|>",
    "<|start|>",
]
_PARTS = re.compile("(" + "|".join(map(re.escape, SPECIAL)) + ")")
_TEXT = (
    "the and hello world system user assistant tool call name argument arguments function get weather city a an in on "
    "ing er est he ll wor ld qu ick bro wn fox think im_ start end"
)
_WORDS = _TEXT.split()
_SIGNS = ['{"', '": "', '"} ', '", ', "\n\n", "```", "</", ">", "<", "|"]


class FakeTokenizer:
    """Satisfies `Tokenizer`. Longer pieces win, so appended text may merge with the last token."""

    def __init__(self, *, adds_bos: bool = True, template: str | None = None) -> None:
        words = dict.fromkeys([*_WORDS, *_SIGNS])
        spaced = [" " + word for word in words]
        extra = ["  ", "    ", "\n\n", " {", "12", "123", "é", "ü"]
        pieces = [s.encode() for s in SPECIAL] + [bytes([b]) for b in range(256)]
        pieces += [w.encode() for w in [*words, *spaced, *extra]]
        self._pieces = list(dict.fromkeys(pieces))
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self._longest = max(map(len, self._pieces))
        self.n_vocab = len(self._pieces)
        self.bos: int | None = 0
        self.eos: int | None = 1
        self.bos_text, self.eos_text = "<s>", "</s>"
        self.adds_bos = adds_bos
        self.template = template
        self.template_for_tools: str | None = None
        self.encoded_chars = 0  # how much text went through `encode`

    def encode(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        self.encoded_chars += len(text)
        out = [0] if bos and self.adds_bos and not text.startswith(self.bos_text) else []
        for part in _PARTS.split(text) if special else [text]:
            data = part.encode()
            if special and part in SPECIAL:
                out.append(self._ids[data])
            else:
                out += self._greedy(data)
        return out

    def _greedy(self, data: bytes) -> list[int]:
        out = []
        at = 0
        while at < len(data):
            size = min(self._longest, len(data) - at)
            while size > 1 and self._ids.get(data[at : at + size], 0) < len(SPECIAL):
                size -= 1
            out.append(self._ids[data[at : at + size]])
            at += size
        return out

    def piece(self, token: int) -> bytes:
        if not 0 <= token < self.n_vocab:
            raise ValueError(f"no token {token}")
        return self._pieces[token]

    def is_control(self, token: int) -> bool:
        return token < len(SPECIAL)

    def is_special(self, token: int) -> bool:
        return token < len(SPECIAL)

    def is_end(self, token: int) -> bool:
        return token in (1, 3)
