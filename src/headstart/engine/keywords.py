"""Readings of single JSON schema keywords, each tolerant of what clients send."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import RequestError

MAX_CHOICES = 1_000
MAX_REPEAT = 1_000
FORMATS = re.compile(r"uuid[1-5]?|date|time|date-time")
PARAM = "response_format"
# What narrows a schema and has no grammar here.
NARROWING = frozenset(
    "pattern multipleOf not if then else uniqueItems contains minContains maxContains minProperties maxProperties"
    " propertyNames patternProperties dependentRequired dependentSchemas dependencies unevaluatedItems"
    " unevaluatedProperties additionalItems".split()
)
NUMBER_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength"})
# Where one of these is read, in this order, what stands beside it is not.
WHOLE = ("$ref", "anyOf", "oneOf", "const", "enum", "allOf")
BESIDE = frozenset("type format properties required additionalProperties items prefixItems".split()).union(
    WHOLE, NUMBER_BOUNDS, COUNTS
)


def fail(path: str, why: str) -> NoReturn:
    """Raise the `RequestError` for the schema's ``path``."""
    raise RequestError(f"the JSON schema cannot be used at {(path or '#')[:200]}: {why}", param=PARAM)


def implied(node: dict[str, Any]) -> str | None:
    """The type that keywords speak of where "type" is missing."""
    if any(k in node for k in ("properties", "additionalProperties", "patternProperties", "required")):
        return "object"
    if any(k in node for k in ("items", "prefixItems", "minItems", "maxItems")):
        return "array"
    if any(k in node for k in ("pattern", "minLength", "maxLength")) or isinstance(node.get("format"), str):
        return "string"
    return node.get("type") if isinstance(node.get("type"), str) else None


def items(value: Any, path: str) -> list[Any]:
    """The list at ``path``, never empty nor too long."""
    if not isinstance(value, list) or not value or len(value) > MAX_CHOICES:
        fail(path, f"it must be a list of 1 to {MAX_CHOICES} entries")
    return list(value)


def length(value: Any, path: str) -> int:
    """Characters of a JSON value that may become a literal."""
    try:
        chars = len(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        fail(path, "a value is not JSON")
    if chars > 20_000:
        fail(path, "a value is too long")
    return chars


def bounds(node: dict[str, Any], low_key: str, high_key: str, path: str) -> tuple[int, int | None]:
    """Lower and upper count; what is no sane count does not bind."""
    low, high = node.get(low_key, 0), node.get(high_key)
    low = low if isinstance(low, int) and 0 <= low <= MAX_REPEAT else 0
    high = high if isinstance(high, int) and 0 <= high <= MAX_REPEAT else None
    if high is not None and high < low:
        fail(path, f"{low_key} is above {high_key}")
    return int(low), high


def integer(node: dict[str, Any], path: str) -> dict[str, Any]:
    """An integer schema, its bounds as "minimum" and "maximum", both included; what is no sane number does not bind."""
    lows = [_limit(node, "minimum", math.ceil), _limit(node, "exclusiveMinimum", lambda v: math.floor(v) + 1)]
    highs = [_limit(node, "maximum", math.floor), _limit(node, "exclusiveMaximum", lambda v: math.ceil(v) - 1)]
    low = max((v for v in lows if v is not None), default=None)
    high = min((v for v in highs if v is not None), default=None)
    if low is not None and high is not None and low > high:
        fail(path, "no integer lies between its bounds")
    return {"type": "integer"} | {k: v for k, v in (("minimum", low), ("maximum", high)) if v is not None}


def _limit(node: dict[str, Any], key: str, rounded: Callable[[float], int]) -> int | None:
    value = node.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 10**15:
        return None
    return rounded(value)


def refuse_loose(node: dict[str, Any], path: str) -> None:
    """Raise the `RequestError` for the first keyword of ``node`` that a grammar would not enforce."""
    whole = next((key for key in WHOLE if key in node), None)
    for key in node:
        beside = whole not in (None, key) and key in BESIDE and not (key == "type" and whole in ("enum", "const"))
        bound = key in NUMBER_BOUNDS and implied(node) != "integer"
        odd = key == "format" and not (isinstance(node[key], str) and FORMATS.fullmatch(node[key]))
        long = key in COUNTS and not (isinstance(node[key], int) and node[key] <= MAX_REPEAT)
        if key in NARROWING or beside or bound or odd or long:
            where = f" beside {whole!r}" if beside else ""
            fail(path, f"{key!r}{where} cannot be enforced; leave it out, or 'strict'")


def string(node: dict[str, Any], path: str) -> dict[str, Any]:
    """A string schema: its format or its length."""
    kind = node.get("format")
    if isinstance(kind, str) and FORMATS.fullmatch(kind):
        return {"type": "string", "format": kind}
    low, high = bounds(node, "minLength", "maxLength", path)
    if low or high is not None:
        return {"type": "string", "minLength": low, "maxLength": high}
    return {"type": "string"}
