"""What a GBNF text must look like before the library may parse it: its parser recurses and its stacks multiply."""

from __future__ import annotations

import re
from functools import lru_cache

from ..errors import RequestError
from .gbnf_cost import check_cost

MAX_CHARS = 512 * 1024
MAX_DEPTH = 64  # nested groups; the library's parser recurses once for each
MAX_RULES = 5_000  # a chain of rules is followed recursively

_REPEAT = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")


@lru_cache(maxsize=16)  # every choice of a request brings the same text
def check_shape(gbnf: str) -> None:
    """Raise `RequestError` where the text is too long, nested too deep, ambiguous beyond bounds or not text."""
    if len(gbnf) > MAX_CHARS:
        raise RequestError(f"the grammar has {len(gbnf)} characters; at most {MAX_CHARS} are taken", param="grammar")
    if "\x00" in gbnf or any("\ud800" <= c <= "\udfff" for c in gbnf):
        raise RequestError("the grammar holds characters that are not text", param="grammar")
    if not gbnf.strip():
        raise RequestError("the grammar is empty", param="grammar")
    if gbnf.count("::=") > MAX_RULES:
        raise RequestError(f"the grammar has more than {MAX_RULES} rules", param="grammar")
    for low, high in _REPEAT.findall(gbnf):
        # The library would count down from the lower bound past zero.
        if int(low[:9]) > int(high[:9]) or len(low) > 9 or len(high) > 9:
            raise RequestError(f"the grammar repeats {{{low[:9]},{high[:9]}}}, which no count fits", param="grammar")
    if _depth(gbnf) > MAX_DEPTH:
        raise RequestError(f"the grammar nests groups deeper than {MAX_DEPTH}", param="grammar")
    check_cost(gbnf)


def _depth(gbnf: str) -> int:
    """Deepest nesting of groups outside literals, classes and comments."""
    depth = deepest = i = 0
    closing = ""
    while i < len(gbnf):
        c = gbnf[i]
        if closing:
            if c == "\\" and closing != "\n":
                i += 1
            elif c == closing:
                closing = ""
        elif c in '"[#':
            closing = {'"': '"', "[": "]", "#": "\n"}[c]
        elif c == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif c == ")":
            depth -= 1
        i += 1
    return deepest
