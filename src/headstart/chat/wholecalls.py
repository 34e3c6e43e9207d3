"""Tool calls that are read as a whole, up to their closing tag: LFM2's Python calls and GLM's key and value tags."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from typing import Any

from .fallback import dumps
from .jsoncalls import CallArguments, CallBegin, CallEvent, Step
from .tags import HERMES_END, PYTHON_END
from .xmlcalls import typed_value

# Name and arguments as JSON text of each call, or None where the text is no call.
Parse = Callable[[str], list[tuple[str, str]] | None]

_LONGEST_PYTHON = 200_000
_GLM_NAME = re.compile(r"\s*([\w.-]+)\s*")
_GLM_PAIR = re.compile(r"<arg_key>([^<]*)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*", re.DOTALL)


class WholeCalls:
    """Reads up to ``closer`` and has ``parse`` make calls of it."""

    def __init__(self, closer: str, parse: Parse) -> None:
        self._closer, self._parse = closer, parse
        self._seen = 0

    def read(self, text: str, *, final: bool) -> Step:
        at = text.find(self._closer, max(0, self._seen - len(self._closer)))
        self._seen = len(text)
        if at < 0:
            return Step([], 0, "broken" if final else "more")
        calls = self._parse(text[:at])
        if not calls:
            return Step([], 0, "broken")
        events: list[CallEvent] = []
        for name, arguments in calls:
            events += [CallBegin(name), CallArguments(arguments)]
        return Step(events, at + len(self._closer), "done")


def python_calls() -> WholeCalls:
    """``[name(key=value, ...), ...]`` with literal values."""
    return WholeCalls(PYTHON_END, _python)


def glm_calls(schemas: dict[str, dict[str, Any]]) -> WholeCalls:
    """``name<arg_key>k</arg_key><arg_value>v</arg_value>``.

    Values as in `xmlcalls`; names only those of ``schemas``.
    """

    def parse(text: str) -> list[tuple[str, str]] | None:
        head = _GLM_NAME.match(text)
        if head is None or head[1] not in schemas:
            return None
        values, at = {}, head.end()
        while (pair := _GLM_PAIR.match(text, at)) is not None:
            key = pair[1].strip()
            values[key], at = typed_value(schemas[head[1]].get(key), pair[2]), pair.end()
        return [(head[1], dumps(values))] if at == len(text) else None

    return WholeCalls(HERMES_END, parse)


def _python(text: str) -> list[tuple[str, str]] | None:
    if len(text) > _LONGEST_PYTHON:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's opinion of a model's string escapes
            tree = ast.parse(text.strip(), mode="eval").body
        nodes = tree.elts if isinstance(tree, ast.List) else [tree]
        return [_python_call(node) for node in nodes]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _python_call(node: ast.expr) -> tuple[str, str]:
    if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Name | ast.Attribute):
        raise ValueError("not a call with named arguments")
    values = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("not a named argument")
        values[keyword.arg] = ast.literal_eval(keyword.value)
    return ast.unparse(node.func), dumps(values)
