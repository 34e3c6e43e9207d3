"""Call objects in JSON text, kept verbatim: ``{"name": ..., "arguments": {...}}`` and its relatives."""

from __future__ import annotations

import json
from typing import Any

_DECODER = json.JSONDecoder()


class JsonScanner:
    """Finds the end of an object or array whose text arrives in pieces."""

    def __init__(self, depth: int = 0) -> None:
        self._depth, self._string, self._escaped = depth, False, False

    def feed(self, text: str, start: int = 0) -> int:
        """Index after the closing bracket, or -1 while it is open."""
        for index in range(start, len(text)):
            char = text[index]
            if self._string:
                if self._escaped:
                    self._escaped = False
                elif char == "\\":
                    self._escaped = True
                elif char == '"':
                    self._string = False
            elif char == '"':
                self._string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return index + 1
        return -1


def unescaped(inner: str) -> str | None:
    """What JSON reads between the quotes, or None."""
    try:
        value = json.loads(f'"{inner}"')
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def call_of(text: str) -> tuple[str, str] | None:
    """Name and arguments (JSON text, verbatim) of a call object in any member order, or None."""
    members = _members(text)
    if members is None:
        return None
    if "function" in members and text[members["function"][1]] == "{":
        start, end = members["function"][1:]
        return call_of(text[start:end])
    name = members.get("name", members.get("function", (None, 0, 0)))[0]
    if not isinstance(name, str) or not name:
        return None
    for key in ("arguments", "parameters"):
        if key in members:
            value, start, end = members[key]
            if isinstance(value, dict):
                return name, text[start:end]
            return (name, value) if isinstance(value, str) and _members(value) is not None else None
    return name, "{}"


def _members(text: str) -> dict[str, tuple[Any, int, int]] | None:
    """Each member's value and the place of its text, or None where ``text`` is no JSON object."""
    out: dict[str, tuple[Any, int, int]] = {}
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        return None
    at = _skip(text, at + 1)
    try:
        if text[at : at + 1] == "}":
            return out
        while True:
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, at)
            if not isinstance(key, str) or text[at : at + 1] != ":":
                return None
            start = _skip(text, at + 1)
            value, end = _DECODER.raw_decode(text, start)
            out[key] = (value, start, end)
            at = _skip(text, end)
            if text[at : at + 1] == "}":
                return out if not text[at + 1 :].strip() else None
            if text[at : at + 1] != ",":
                return None
            at = _skip(text, at + 1)
    except (ValueError, RecursionError):
        return None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at
