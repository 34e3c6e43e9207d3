"""Readings of single JSON schema keywords, each tolerant of what clients send."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from ..errors import RequestError

MAX_CHOICES = 1_000
MAX_REPEAT = 1_000
FORMATS = re.compile(r"uuid[1-5]?|date|time|date-time")
PARAM = "response_format"


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


def bounds(node: dict[str, Any], low_key: str, high_key: str) -> tuple[int, int | None]:
    """Lower and upper count; what is no sane count does not bind."""
    low, high = node.get(low_key, 0), node.get(high_key)
    low = low if isinstance(low, int) and 0 <= low <= MAX_REPEAT else 0
    high = high if isinstance(high, int) and low <= high <= MAX_REPEAT else None
    return int(low), high


def string(node: dict[str, Any], path: str) -> dict[str, Any]:
    """A string schema: its format or its length."""
    kind = node.get("format")
    if isinstance(kind, str) and FORMATS.fullmatch(kind):
        return {"type": "string", "format": kind}
    low, high = bounds(node, "minLength", "maxLength")
    if low or high is not None:
        return {"type": "string", "minLength": low, "maxLength": high}
    return {"type": "string"}
