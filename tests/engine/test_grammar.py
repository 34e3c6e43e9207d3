"""Schemas to grammars, and grammars that would hurt the library."""

from __future__ import annotations

import json
import re
from concurrent.futures import wait
from typing import Literal

import llama_cpp.llama_cpp as C
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from headstart.core.plan import Decode, Prefill, Step
from headstart.engine.grammar import check_gbnf, json_gbnf, schema_to_gbnf
from headstart.engine.int_range import int_range
from headstart.engine.sampler import Candidates, start_grammar
from headstart.engine.vocab import Vocabulary, tokenizing_pool
from headstart.errors import RequestError
from headstart.messages import Sampling
from tests.engine.drive import engine, generate, tokens


@pytest.fixture(scope="module")
def vocab(demo_model):
    return Vocabulary(str(demo_model))


def takes(vocab: Vocabulary, gbnf: str, text: str) -> bool:
    """Whether the grammar allows exactly ``text`` as a whole answer."""
    grammar, candidates = start_grammar(vocab.handle, gbnf), Candidates(vocab.n_vocab)
    try:
        for token in [*vocab.encode(text, special=False), vocab.eos]:
            if not candidates.allowed(grammar, token):
                return False
            C.llama_sampler_accept(grammar, token)
        return True
    finally:
        C.llama_sampler_free(grammar)


TREE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name"],
        }
    },
}
NAMES = {"type": "object", "properties": {"root": {}, 'q"\\é': {"type": "null"}}, "required": ["root", "absent"]}
BOTH = [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "integer"}}}]
# A schema, an answer that follows it, and one that does not; what a grammar cannot say is loosened (patterns, formats).
GOOD = [
    ({"type": "integer", "minimum": 1000, "maximum": 1002}, 1001, "999"),
    ({"type": "integer", "exclusiveMinimum": 0}, 7, "0"),
    ({"type": "integer", "maximum": -3}, -12, "-2"),
    ({}, {"a": [1, "x", None]}, "{]"),
    (TREE, {"name": "a", "children": [{"name": "b"}]}, '{"children": []}'),
    (NAMES, {"root": [1], "absent": 2, 'q"\\é': None}, '{"root": [1]}'),
    ({"anyOf": [{"type": "string", "format": "email"}, {"type": ["integer", "null"], "exclusiveMinimum": 0}]}, 7, "{}"),
    ({"const": 'a"b\\c\n'}, 'a"b\\c\n', '"a"'),
    ({"enum": ["x", 1, None, True, {"a": [1]}]}, {"a": [1]}, "2"),
    ({"type": "string", "pattern": "^(?=x)\\d{5,2}$"}, "anything", "5"),
    (
        {"type": "object", "propertyNames": {"pattern": "^a"}, "additionalProperties": {"type": "integer"}},
        {"a": 1, "ab": 2},
        '{"a": "x"}',
    ),
    ({"type": "array", "prefixItems": [{"type": "string"}, True]}, ["x", 3], "[3, 3]"),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}, [1, 2], "[1]"),
    ({"type": "string", "minLength": 3, "maxLength": 900}, "abc", '"ab"'),
    ({"allOf": BOTH}, {"a": "x", "b": 1}, '{"a": 1}'),
]
BAD = [
    ({"$ref": "#"}, "#"),
    ({"$ref": "http://example.com/x"}, "#"),
    ({"properties": {"a": {"$ref": "#/nope"}}}, "#/properties/a"),
    ({"properties": {"a": {"type": "frob"}}}, "#/properties/a/type"),
    ({"items": False, "prefixItems": [False]}, "#/prefixItems/0"),
    ({"anyOf": []}, "#/anyOf"),
]


@pytest.mark.parametrize(("schema", "follows", "breaks"), GOOD, ids=lambda s: json.dumps(s)[:40])
def test_schemas_become_grammars(vocab, schema, follows, breaks):
    gbnf = schema_to_gbnf(schema)
    check_gbnf(vocab, gbnf)
    assert takes(vocab, gbnf, json.dumps(follows, ensure_ascii=False))
    assert not takes(vocab, gbnf, breaks)


@pytest.mark.parametrize(("schema", "path"), BAD, ids=lambda s: json.dumps(s)[:40])
def test_what_has_no_grammar_names_its_path(schema, path):
    with pytest.raises(RequestError) as caught:
        schema_to_gbnf(schema)
    assert f"at {path}:" in caught.value.message


@given(st.none() | st.integers(-3000, 3000), st.none() | st.integers(0, 3000), st.data())
@settings(max_examples=300, deadline=None)
def test_an_integer_range_takes_its_numbers_alone(low, width, data):
    if low is None:
        low, high = None, width
    else:
        high = None if width is None else low + width
    value = data.draw(st.integers(-10_000, 10_000) | st.sampled_from([v for v in (low, high) if v is not None] or [0]))
    rule = re.compile(int_range(low, high).replace(" ", "").replace('"', ""))
    inside = (low is None or low <= value) and (high is None or value <= high)
    assert bool(rule.fullmatch(str(value))) == inside
    assert not rule.fullmatch(f"0{abs(value)}") and not rule.fullmatch("")


STRICT = [
    ({"type": "string", "pattern": "^a$"}, "#", "'pattern'"),
    ({"type": "object", "properties": {"a": {"type": "number", "minimum": 0}}}, "#/properties/a", "'minimum'"),
    ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "#", "'uniqueItems'"),
    ({"type": "string", "format": "email"}, "#", "'format'"),
    ({"type": "string", "maxLength": 100_000}, "#", "'maxLength'"),
    ({"anyOf": [{"type": "string"}], "minLength": 3}, "#", "'minLength' beside 'anyOf'"),
    (
        {"allOf": [{"properties": {"a": {}}, "minProperties": 2}, {"properties": {"b": {}}}]},
        "#/allOf",
        "'minProperties'",
    ),
    ({"allOf": [{"properties": {"a": {}}}, {"properties": {"a": {"type": "null"}}}]}, "#/allOf", "'a' in two parts"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "#", "'allOf'"),
]


@pytest.mark.parametrize(("schema", "path", "what"), STRICT, ids=lambda s: json.dumps(s)[:40])
def test_what_a_grammar_cannot_enforce_is_refused_where_that_matters(schema, path, what):
    assert schema_to_gbnf(schema)
    with pytest.raises(RequestError, match=f"at {re.escape(path)}: {re.escape(what)}.*cannot be enforced"):
        schema_to_gbnf(schema, True)


def test_strict_takes_what_typed_clients_write(vocab):
    class City(BaseModel):
        name: str = Field(max_length=20)
        people: int = Field(ge=1)
        kind: Literal["old", "new"] = "old"
        near: list[City] = Field(default=[], max_length=3)
        founded: int | None = None

    gbnf = schema_to_gbnf(City.model_json_schema(), True)
    city = {"name": "X", "people": 12, "kind": "new", "near": [], "founded": None}
    assert takes(vocab, gbnf, json.dumps(city))
    assert not takes(vocab, gbnf, json.dumps(city | {"people": 0}))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 5, "maximum": 1},
        {"type": "integer", "exclusiveMinimum": 1, "maximum": 1},
        {"type": "string", "minLength": 5, "maxLength": 1},
        {"type": "array", "minItems": 2, "maxItems": 1},
    ],
)
def test_bounds_that_nothing_satisfies_are_refused(schema):
    with pytest.raises(RequestError, match="at #: "):
        schema_to_gbnf(schema)


def test_deep_schemas_are_refused():
    schema: dict = {"type": "string"}
    for _ in range(3000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(RequestError, match="deeper"):
        schema_to_gbnf(schema)


KEYS = [
    "type",
    "properties",
    "items",
    "anyOf",
    "allOf",
    "enum",
    "const",
    "$ref",
    "required",
    "minItems",
    "pattern",
    "a",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["object", "array", "string", "#", "#/a", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=150, deadline=None)
def test_any_json_is_a_grammar_or_a_request_error(vocab, schema):
    try:
        check_gbnf(vocab, schema_to_gbnf(schema))
    except RequestError as error:
        assert error.status == 400


@pytest.mark.parametrize(
    "gbnf",
    ["", "%%%", 'root ::= root "a"', "root ::= foo", 'x ::= "a"', 'root ::= "a"{5,2}', 'root ::= "\\xZZ"', "root ::= [",
     "root ::= " + "(" * 5000 + '"a"' + ")" * 5000, 'root ::= "\ud800"', 'root ::= "a"{100000}'],
)  # fmt: skip
def test_broken_grammars_are_refused(vocab, gbnf):
    with pytest.raises(RequestError):
        check_gbnf(vocab, gbnf)


CHAIN = "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40))
FORKS = "\n".join(f"r{i} ::= r{i + 1} | r{i + 1}" for i in range(40))


@pytest.mark.parametrize(
    "gbnf",
    ['root ::= (("a"?){500}){500}', 'root ::= "b" (("a"?){500}){500}', f'{CHAIN}\nr40 ::= "a"?\nroot ::= r0',
     f'{FORKS}\nr40 ::= "a"\nroot ::= "b" r0', "root ::= " + " | ".join(f'"{i}"' for i in range(40_000)),
     'root ::= a root "x" | "b"\na ::= b\nb ::= "y"?'],
    ids=["repeated", "repeated-later", "chain", "forks", "wide", "hidden-left-recursion"],
)  # fmt: skip
@pytest.mark.timeout(10)  # the library itself would need hours
def test_grammars_that_go_on_in_too_many_ways_are_refused(vocab, gbnf):
    with pytest.raises(RequestError):
        check_gbnf(vocab, gbnf)


@pytest.mark.parametrize(
    ("gbnf", "follows", "breaks"),
    [('root ::= ((("a"*)*)*)*', "aaa", "b"),
     ('root ::= "a" root | "b"', "aab", "aa"),
     ('root ::= ws "a" ws # (\nws ::= | " " | "\\n" [ \\t]{0,20}', " a\n\t ", "a  "),
     ('root ::= [^\\]\\\\"a-z-] "\\"" [\\x00-\\x1F]{2,} (\n "x"\n | [0-9]+\n)', 'A"\x01\x0242', 'a"\x01\x02x'),
     ('root ::= "a"{1,900}', "a" * 900, ""),
     ("root ::= " + " | ".join(f'"{i}"' for i in range(1_000)), "999", "1000")],
)  # fmt: skip
def test_grammars_within_bounds_are_taken(vocab, gbnf, follows, breaks):
    check_gbnf(vocab, gbnf)
    assert takes(vocab, gbnf, follows)
    assert not takes(vocab, gbnf, breaks)


@pytest.mark.timeout(20)
def test_checks_at_the_same_time_do_not_wait_for_each_other(vocab):
    # The front calls it on the very threads that it would hand its work to.
    pool = tokenizing_pool()
    checks = [pool.submit(check_gbnf, vocab, gbnf) for gbnf in ['root ::= "a"', "root ::= foo"] * 3]
    assert not wait(checks, timeout=10).not_done
    assert [isinstance(check.exception(), RequestError) for check in checks] == [False, True] * 3


@pytest.mark.timeout(60)
def test_an_ambiguous_grammar_ends_before_it_holds_others_up(tiny_model):
    e = engine(tiny_model("llama"), n_ctx=1024)
    e.open("a", Sampling(temperature=0, grammar='root ::= e\ne ::= "a" | "a" e | "a" e e | "a" e e e'), tokens(30))
    result = e.run(Step((), (Prefill("a", 0, 0, tuple(tokens(30)), sample=True),)))
    position = 30
    while not result.failed:
        assert position < 60
        result = e.run(Step((Decode("a", 0, position, result.picks[0].token),), ()))
        position += 1
    assert result.failed[0].status == 400
    assert "ambiguous" in result.failed[0].message
    e.shutdown()


def test_answers_follow_the_grammar(tiny_model):
    path = tiny_model("llama")
    e, words = engine(path, n_ctx=1024), Vocabulary(path)
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yz"]}},
        "required": ["a", "b"],
    }
    for seed in range(4):
        sampling = Sampling(temperature=1.0, seed=seed, grammar=schema_to_gbnf(schema))
        out = generate(e, "a", 0, tokens(30), 40, sampling, stop=words.is_end)
        answer = json.loads(b"".join(words.piece(t) for t in out))
        assert isinstance(answer["a"], int)
        assert answer["b"] in ("x", "yz")
    any_object = generate(e, "b", 0, tokens(30), 20, Sampling(seed=1, grammar=json_gbnf()), stop=words.is_end)
    assert words.piece(any_object[0]).startswith(b"{")
    e.shutdown()
