"""Grammars for constrained answers: from JSON schemas, for any JSON object, and the check of a client's own GBNF.

All that leaves here has passed `gbnf.check_shape`, and only that reaches the worker, which does not check again.
"""

from __future__ import annotations

import json
from typing import Any

import llama_cpp.llama_cpp as C
from llama_cpp import llama_grammar as converter

from ..errors import RequestError
from .gbnf import check_shape
from .int_range import int_range
from .keywords import PARAM
from .sampler import start_grammar
from .schema import Loosener
from .vocab import Vocabulary, on_big_stack

# Instead of the converter's own: its strings may hold raw control characters, which is not JSON, and each of its
# digits can be read in two ways.
PRIMITIVES = {
    "char": r'[^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})',
    "integral-part": "[0] | [1-9] [0-9]{0,15}",
    "decimal-part": "[0-9]{1,16}",
}

MAX_RULE_NAME = 40
MAX_PART = 12  # of it, for each of what lies outside and the property

_Base: Any = converter.SchemaConverter  # its methods carry no types


class _Converter(_Base):  # type: ignore[misc]  # a subclass of Any, for the reason above
    """The library's converter, with counted repetition, escapes that its literals need, and work that stays
    proportional to the schema: names of rules do not grow with depth, and optional properties are listed once."""

    def __init__(self) -> None:
        super().__init__(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
        self._taken: dict[tuple[str, str], str] = {}
        self._same_name: dict[str, int] = {}

    def _add_rule(self, name: str, rule: str) -> str:
        name = converter.INVALID_RULE_CHARS_RE.sub("-", name[:MAX_RULE_NAME])
        key = self._taken.get((name, rule), name)
        while self._rules.get(key, rule) != rule:
            number = self._same_name[name] = self._same_name.get(name, -1) + 1
            key = f"{name}{number}"
        self._taken[name, rule] = key
        self._rules[key] = rule
        return key

    def _format_literal(self, literal: str) -> str:
        if len(literal) > 1 and literal.startswith('"'):  # names of properties come with escapes that no model writes
            literal = json.dumps(json.loads(literal), ensure_ascii=False)
        return json.dumps(literal, ensure_ascii=False)

    def _generate_constant_rule(self, value: Any) -> str:
        return self._format_literal(json.dumps(value, ensure_ascii=False)) + " space"

    def _add_primitive(self, name: str, rule: Any) -> Any:
        content = next((own for known, own in PRIMITIVES.items() if rule is converter.PRIMITIVE_RULES[known]), None)
        return super()._add_primitive(name, rule if content is None else converter.BuiltinRule(content, []))

    def _build_object_rule(self, properties: list[tuple[str, Any]], required: set[str], name: str, more: Any) -> str:
        prefix = f"{name}-" if name else ""
        pairs = {prop: self._pair(prefix, prop, schema) for prop, schema in properties}
        needed = [pair for prop, pair in pairs.items() if prop in required]
        optional = [(prop, pair) for prop, pair in pairs.items() if prop not in required]
        starts: list[str] = []
        rest = ""
        if more:
            value = self.visit({} if more is True else more, f"{prefix}additional-value")
            string = self._add_primitive("string", converter.PRIMITIVE_RULES["string"])
            pair = self._add_rule(f"{prefix}additional-kv", f'{string} ":" space {value}')
            rest = self._add_rule(f"{prefix}additional-kvs", f'( "," space {pair} )*')
            starts.append(f"{pair} {rest}")
        for prop, pair in reversed(optional):
            starts.append(f"{pair} {rest}".rstrip())
            name = f"{prefix[:MAX_PART]}{prop[:MAX_PART]}-rest"
            rest = self._add_rule(name, f'( "," space {pair} )? {rest}'.rstrip())
        body = ' "," space '.join(needed)
        if starts:
            choice = " | ".join(reversed(starts))
            body += f' ( "," space ( {choice} ) )?' if needed else f"( {choice} )?"
        return f'"{{" space {body} "}}" space'

    def _pair(self, prefix: str, prop: str, schema: Any) -> str:
        name = f"{prefix[:MAX_PART]}{prop[:MAX_PART]}"
        value = self.visit(schema, name)
        return self._add_rule(f"{name}-kv", f'{self._format_literal(json.dumps(prop))} space ":" space {value}')

    def visit(self, schema: dict[str, Any], name: str) -> Any:
        name = name[:MAX_RULE_NAME]
        rule_name = name + "-" if name in converter.RESERVED_NAMES else name or "root"
        kind = schema.get("type")
        if kind == "string" and "minLength" in schema:
            char = self._add_primitive("char", converter.PRIMITIVE_RULES["char"])
            times = _times(schema["minLength"], schema["maxLength"])
            # A rule that all strings of these lengths share: a long one is large.
            text = self._add_rule(f"string-{times[1:-1]}", rf'"\"" {char}{times} "\"" space')
            return self._add_rule("root", text) if rule_name == "root" else text
        if kind == "integer" and ("minimum" in schema or "maximum" in schema):
            digits = int_range(schema.get("minimum"), schema.get("maximum"))
            return self._add_rule(rule_name, f"({digits}) space")
        if kind == "array" and "items" in schema:
            item = self.visit(schema["items"], f"{name}{'-' if name else ''}item")
            return self._add_rule(
                rule_name, f'"[" space {_listed(item, schema["minItems"], schema["maxItems"])} "]" space'
            )
        if kind == "object" and schema.get("properties") == {} and "additionalProperties" not in schema:
            return self._add_rule(rule_name, '"{" space "}" space')
        return super().visit(schema, name)


def schema_to_gbnf(schema: dict[str, Any], strict: bool = False) -> str:
    """GBNF whose answers satisfy ``schema`` as far as a grammar can tell; see `schema` for what is loosened where that
    is not ``strict``.

    Raises `RequestError` naming the path of what cannot be expressed.
    """
    try:
        loose = Loosener(schema, strict=strict).run()
        made = _Converter()
        resolved = made.resolve_refs(loose, "")
        made.visit({k: v for k, v in resolved.items() if k != "$defs"}, "")
        gbnf = str(made.format_grammar())
    except RecursionError:
        raise RequestError("the JSON schema nests too deep", param=PARAM) from None
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RequestError(f"the JSON schema has no grammar: {str(error)[:200]}", param=PARAM) from None
    try:
        check_shape(gbnf)
    except RequestError as error:
        raise RequestError(f"the JSON schema cannot be used: {error.message}", param=PARAM) from None
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
