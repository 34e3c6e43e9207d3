"""Which format the text after an opening tag is in."""

from __future__ import annotations

from typing import Any, Protocol

from .jsoncalls import JsonCalls, Step
from .tags import HERMES, HERMES_END, MISTRAL, PYTHON, XML
from .wholecalls import glm_calls, python_calls
from .xmlcalls import XmlCalls


class Reader(Protocol):
    def read(self, text: str, *, final: bool) -> Step:
        """What can be told from ``text``, which is everything after the opening tag that was not used yet."""


def reader_for(
    opener: str, text: str, schemas: dict[str, dict[str, Any]], known: frozenset[str], *, final: bool
) -> Reader | None:
    """The reader, or None while ``text`` is too short to tell. ``opener`` "" is a call without an opening tag."""
    body = text.lstrip()
    if opener == HERMES:
        if not final and XML.startswith(body):
            return None
        if body.startswith(XML):
            return XmlCalls(schemas)
        return glm_calls(schemas) if body[:1].isalpha() else JsonCalls(HERMES_END)
    if opener == PYTHON:
        return python_calls()
    if opener == MISTRAL:
        return JsonCalls("", named=True)
    if body.startswith(XML):
        return XmlCalls(schemas)
    return JsonCalls("", known=known)
