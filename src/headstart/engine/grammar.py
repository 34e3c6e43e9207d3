"""Grammars for constrained answers: from JSON schemas, for any JSON object, and the check of a client's own GBNF."""

from __future__ import annotations

import json
from typing import Any

import llama_cpp.llama_cpp as C
from llama_cpp import llama_grammar as converter

from ..errors import RequestError
from .gbnf import check_shape
from .keywords import PARAM
from .sampler import start_grammar
from .schema import Loosener
from .vocab import Vocabulary, on_big_stack

# The converter's own rule lets raw control characters into strings, which is not JSON.
CHAR = r'[^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})'

_Base: Any = converter.SchemaConverter  # its methods carry no types


class _Converter(_Base):  # type: ignore[misc]  # a subclass of Any, for the reason above
    """The library's converter, with counted repetition and escapes that its literals need."""

    def _format_literal(self, literal: str) -> str:
        if len(literal) > 1 and literal.startswith('"'):  # names of properties come with escapes that no model writes
            literal = json.dumps(json.loads(literal), ensure_ascii=False)
        return json.dumps(literal, ensure_ascii=False)

    def _generate_constant_rule(self, value: Any) -> str:
        return self._format_literal(json.dumps(value, ensure_ascii=False)) + " space"

    def _add_primitive(self, name: str, rule: Any) -> Any:
        if rule is converter.PRIMITIVE_RULES["char"]:
            rule = converter.BuiltinRule(CHAR, [])
        return super()._add_primitive(name, rule)

    def visit(self, schema: dict[str, Any], name: str) -> Any:
        rule_name = name + "-" if name in converter.RESERVED_NAMES else name or "root"
        kind = schema.get("type")
        if kind == "string" and "minLength" in schema:
            char = self._add_primitive("char", converter.PRIMITIVE_RULES["char"])
            times = _times(schema["minLength"], schema["maxLength"])
            return self._add_rule(rule_name, rf'"\"" {char}{times} "\"" space')
        if kind == "array" and "items" in schema:
            item = self.visit(schema["items"], f"{name}{'-' if name else ''}item")
            return self._add_rule(
                rule_name, f'"[" space {_listed(item, schema["minItems"], schema["maxItems"])} "]" space'
            )
        if kind == "object" and schema.get("properties") == {} and "additionalProperties" not in schema:
            return self._add_rule(rule_name, '"{" space "}" space')
        return super().visit(schema, name)


def schema_to_gbnf(schema: dict[str, Any]) -> str:
    """GBNF whose answers satisfy ``schema`` as far as a grammar can tell; see `schema` for what is loosened.

    Raises `RequestError` naming the path of what cannot be expressed.
    """
    try:
        loose = Loosener(schema).run()
        made = _Converter(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
        resolved = made.resolve_refs(loose, "")
        made.visit({k: v for k, v in resolved.items() if k != "$defs"}, "")
        gbnf = str(made.format_grammar())
    except RecursionError:
        raise RequestError("the JSON schema nests too deep", param=PARAM) from None
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RequestError(f"the JSON schema has no grammar: {str(error)[:200]}", param=PARAM) from None
    check_shape(gbnf)
    return gbnf


def json_gbnf() -> str:
    """GBNF of any JSON object."""
    return schema_to_gbnf({"type": "object"})


def check_gbnf(vocab: Vocabulary, gbnf: str) -> None:
    """Raise `RequestError` where the library would not take ``gbnf``."""
    check_shape(gbnf)
    C.llama_sampler_free(on_big_stack(lambda: start_grammar(vocab.handle, gbnf)))


def _times(low: int, high: int | None) -> str:
    return f"{{{low},{'' if high is None else high}}}"


def _listed(item: str, low: int, high: int | None) -> str:
    if high == 0:
        return ""
    rest = f'("," space {item}){_times(max(low - 1, 0), None if high is None else high - 1)}'
    return f"{item} {rest}" if low else f"({item} {rest})?"
