"""What a GBNF text must be before the library may parse it: its parser recurses and its stacks multiply."""

from __future__ import annotations

import re
from functools import lru_cache

from .gbnf_paths import check_paths
from .gbnf_read import read
from .gbnf_text import refuse

_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
MAX_CHARS = 192 * 1024  # the library needs some 5 ms for it, up to 40 where stacks are many, for each choice anew


@lru_cache(maxsize=16)  # clients send the same text again and again
def check_shape(gbnf: str) -> None:
    """Raise `RequestError` where the text is too long, nested too deep, ambiguous beyond bounds or not text.

    Takes half a second at most.
    """
    if len(gbnf) > MAX_CHARS:
        refuse(f"has {len(gbnf)} characters; at most {MAX_CHARS} are taken")
    if _NO_TEXT.search(gbnf):
        refuse("holds characters that are not text")
    if not gbnf.strip():
        refuse("is empty")
    check_paths(read(gbnf))
