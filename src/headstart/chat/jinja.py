"""The sandbox that chat templates run in, with the names that Hugging Face's renderer gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import RequestError

# A template may repeat text; a product above this many elements is an attack or a bug.
MAX_REPEAT = 10_000_000


class GenerationTag(Extension):
    """``{% generation %}...{% endgeneration %}`` marks training targets; here it is its body."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it as a plain attribute, which a ClassVar cannot override

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """Immutable inputs, no private attributes, no huge repetitions and no powers."""

    intercepted_binops = frozenset(("**", "*"))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        # Some templates keep queues of their own; what they are given is made anew for each render.
        if type(obj) is list and attr in ("append", "extend", "insert", "pop"):
            return True
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise SecurityError("powers are not available in chat templates")
        for sequence, times in ((left, right), (right, left)):
            if (
                isinstance(sequence, (str, list, tuple))
                and isinstance(times, int)
                and len(sequence) * times > MAX_REPEAT
            ):
                raise SecurityError("repetition is too long")
        return super().call_binop(context, operator, left, right)


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Hugging Face's filter writes it: keys in their order, no HTML escapes, text as it is."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> str:
    raise TemplateError(message)


def environment() -> Sandbox:
    """A fresh sandbox; templates compiled in it may render on several threads at once."""
    env = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, LoopControls])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = _raise_exception
    return env


class CompiledTemplate:
    """One template source. Raises `jinja2.TemplateError` from the constructor when it does not compile."""

    def __init__(self, source: str, bos_text: str, eos_text: str) -> None:
        env = environment()
        self.source = source
        self._template = env.from_string(source)
        self._names = _names(env.parse(source))
        self._texts = {"bos_token": bos_text, "eos_token": eos_text}

    def mentions(self, name: str) -> bool:
        return name in self._names

    def render(self, variables: dict[str, Any], now: datetime) -> str:
        """Raises `RequestError` 400 in the template's words; ``now`` is what strftime_now shows.

        Lists in ``variables`` may be changed by the template.
        """
        try:
            return self._template.render({**self._texts, **_clock(now), **variables})
        except TemplateError as error:
            raise RequestError(f"The chat template refused the request: {error}", param="messages") from error
        except RecursionError as error:
            raise RequestError("The request is nested too deeply for the chat template.", param="messages") from error
        except Exception as error:  # a template runs any expression, so any error may come out of it
            detail = f"{type(error).__name__}: {error}"
            raise RequestError(f"The chat template cannot render the request: {detail}", param="messages") from error


def _clock(now: datetime) -> dict[str, Callable[[str], str] | str]:
    # ``datetime`` stops at the day, as a time would make every prompt a new one.
    return {"strftime_now": now.strftime, "datetime": now.strftime("%b %d %Y")}


def _names(tree: nodes.Template) -> frozenset[str]:
    """Every variable, attribute and string constant in the template."""
    names = {node.name for node in tree.find_all(nodes.Name)}
    names |= {node.attr for node in tree.find_all(nodes.Getattr)}
    names |= {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
    return frozenset(names)
