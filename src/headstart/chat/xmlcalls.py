"""Tool calls written as tags: ``<function=name><parameter=key>value</parameter></function>`` (Qwen3-Coder, Qwen3.5)."""

from __future__ import annotations

import json
import re
from typing import Any

from .callobject import JsonScanner, call_of
from .fallback import dumps
from .jsoncalls import CallArguments, CallBegin, Step
from .tags import HERMES_END

_LONGEST_HEAD = 200
_HEAD = re.compile(r"\s*<function=([^>\n]+)>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>")
_VALUE_END = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>))")
_END = re.compile(r"\s*</function>")


def schemas_of(functions: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Function name -> parameter name -> schema."""
    out = {}
    for function in functions:
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        out[str(function.get("name"))] = properties if isinstance(properties, dict) else {}
    return out


class XmlCalls:
    """Reads one call from ``<function=`` on, and a ``</tool_call>`` after it. The call comes whole.

    Values of parameters that ``schemas`` (of `schemas_of`) types as strings stay text, others
    are JSON where they parse.
    """

    def __init__(self, schemas: dict[str, dict[str, Any]]) -> None:
        self._schemas = schemas
        self._tried = 0
        self._read = False

    def read(self, text: str, *, final: bool) -> Step:
        if self._read:
            return self._close(text, final)
        if _HEAD.match(text) is None and (">" in text or len(text) > _LONGEST_HEAD):
            return Step([], 0, "broken")
        # Nothing can complete without another end of a tag.
        if not final and "</function>" not in text[max(0, self._tried - len("</function>")) :]:
            self._tried = len(text)
            return Step([], 0, "more")
        self._tried = len(text)
        parsed = self._parse(text)
        if parsed is None:
            return Step([], 0, "broken" if final else "more")
        name, arguments, used = parsed
        self._read = True
        rest = self._close(text[used:], final)
        return Step([CallBegin(name), CallArguments(arguments)], used + rest.used, rest.status)

    def _close(self, text: str, final: bool) -> Step:
        body = text.lstrip()
        if body.startswith(HERMES_END):
            return Step([], len(text) - len(body) + len(HERMES_END), "done")
        return Step([], 0, "more" if HERMES_END.startswith(body) and not final else "done")

    def _parse(self, text: str) -> tuple[str, str, int] | None:
        head = _HEAD.match(text)
        if head is None:
            return None
        name, at = head[1].strip(), head.end()
        if text[at:].lstrip().startswith("{"):
            return _json_body(name, text, at)
        values: dict[str, Any] = {}
        while (parameter := _PARAMETER.match(text, at)) is not None:
            end = _VALUE_END.search(text, parameter.end())
            if end is None:
                return None
            key = parameter[1].strip()
            value = text[parameter.end() : end.start()].removeprefix("\n").removesuffix("\n")
            values[key] = typed_value(self._schemas.get(name, {}).get(key), value)
            at = end.end()
        close = _END.match(text, at)
        return None if close is None else (name, dumps(values), close.end())


def typed_value(schema: Any, text: str) -> Any:
    """A value written between tags: text where the schema says string, else JSON where it parses."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "string" or (isinstance(kind, list) and "string" in kind and text != "null"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"true": True, "false": False, "none": None}.get(text.strip().lower(), text)


def _json_body(name: str, text: str, at: int) -> tuple[str, str, int] | None:
    """``<function=name>{...}</function>``, Llama's older form."""
    start = text.index("{", at)
    end = JsonScanner().feed(text, start)
    close = _END.match(text, end) if end > 0 else None
    call = call_of(f'{{"name": {dumps(name)}, "arguments": {text[start:end]}}}') if close else None
    return None if call is None or close is None else (*call, close.end())
