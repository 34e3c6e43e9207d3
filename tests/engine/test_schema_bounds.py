"""Schemas that are cheap to write and would keep the converter busy: they convert or are refused, both soon."""

from __future__ import annotations

import llama_cpp.llama_cpp as C
import pytest

from headstart.engine.gbnf import MAX_CHARS
from headstart.engine.grammar import _Converter, check_gbnf, schema_to_gbnf
from headstart.engine.sampler import Candidates, start_grammar
from headstart.engine.vocab import Vocabulary
from headstart.errors import RequestError

TEXT = {"type": "string"}


def object_of(names, **more):
    return {"type": "object", "properties": dict.fromkeys(names, TEXT), **more}


def nested(levels, name, width=0):
    schema = TEXT
    for i in range(levels):
        properties = {f"{i:02}{name}": schema, **{f"o{j}": TEXT for j in range(width)}}
        schema = {"type": "object", "properties": properties}
    return schema


def parts(each, count):
    return {"type": "object", "properties": {f"o{i}": each for i in range(count)}}


HUGE = {
    "long names": (object_of(f"{i:04}{'x' * 20_000}" for i in range(150)), "a name has more than"),
    "long names, nested": (nested(40, "n" * 50_000), "a name has more than"),
    "names": (parts(object_of(f"{i:03}{'x' * 500}" for i in range(190)), 5), "characters together"),
    "junk beside types": ({"type": ["null"] * 1000, **{f"junk{i}": i for i in range(200_000)}}, "keywords"),
    "types": (parts({"type": ["null"] * 1000}, 10), "parts"),
    "wide objects": (parts(object_of(f"a{j}" for j in range(198)), 24), "characters"),
    "the same values under many names": (
        {
            "$defs": {"a": {"enum": ["x" * 1000] * 1000}},
            "anyOf": [{"$ref": f"#/{'/' * i}$defs/a"} for i in range(900)],
        },
        "characters together",
    ),
    "required": (object_of("a", required=["x"] * 200_000), "at most"),
    "allOf of wide parts": (
        {"$defs": {"a": object_of(f"k{i}" for i in range(190))}}
        | {"anyOf": [{"allOf": [{"$ref": "#/$defs/a"}] * 400} for _ in range(900)]},
        "parts",
    ),
    "allOf of a huge part": ({"allOf": [object_of(f"k{i}" for i in range(100_000))] * 2}, "at most 200"),
    "a long reference": ({"$ref": "#" + "/" * 100_000}, "references"),
}
LARGE = {
    "wide object": object_of(f"a{j}" for j in range(200)),
    "wide objects": parts(object_of(f"a{j}" for j in range(198)), 4),
    "deep": nested(40, "n" * 400),
    "deep and wide": nested(40, "n", 20),
    "names that become the same in a rule": parts(object_of(chr(0x4E00 + j) * 3 for j in range(198)), 4),
    "strings with a common beginning": {"type": "array", "items": {"enum": [f"item {i}" for i in range(1000)]}},
    "long strings": object_of([]) | {"properties": {f"a{j}": {**TEXT, "maxLength": 900} for j in range(100)}},
    "strings of many lengths": {"anyOf": [{**TEXT, "minLength": i} for i in range(50)]},
    "types": {"type": "array", "items": {"type": ["object", "array", "string", "number", "boolean", "null"]}},
    "tools": {
        "anyOf": [
            {
                "type": "object",
                "properties": {"name": {"const": f"tool_{i}"}, "arguments": object_of(f"arg_{j}" for j in range(10))},
                "required": ["name", "arguments"],
            }
            for i in range(100)
        ]
    },
}


@pytest.fixture(scope="module")
def vocab(demo_model):
    return Vocabulary(str(demo_model))


@pytest.mark.parametrize("name", HUGE)
@pytest.mark.timeout(10)
def test_huge_schemas_are_refused_soon(name):
    schema, why = HUGE[name]
    with pytest.raises(RequestError, match=why) as caught:
        schema_to_gbnf(schema)
    assert caught.value.status == 400


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.timeout(10)
def test_large_schemas_are_taken(vocab, name):
    gbnf = schema_to_gbnf(LARGE[name])
    check_gbnf(vocab, gbnf)
    assert len(gbnf) <= MAX_CHARS


def test_a_list_of_strings_that_are_read_in_fifty_ways_is_refused():
    # Each string that ends and begins again multiplies the ways; the library needed minutes for one token.
    choices = [{**TEXT, "minLength": i % 2, "maxLength": 40 + i} for i in range(50)]
    with pytest.raises(RequestError, match="ambiguous"):
        schema_to_gbnf({"type": "array", "items": {"anyOf": choices}})


@pytest.mark.parametrize("optional", [50, 100])
def test_each_property_makes_as_many_rules_in_a_wide_object(monkeypatch, optional):
    made = []
    add = _Converter._add_rule
    monkeypatch.setattr(_Converter, "_add_rule", lambda self, name, rule: made.append(name) or add(self, name, rule))
    schema_to_gbnf(object_of(f"a{j}" for j in range(optional)))
    assert len(made) < 4 * optional


ANSWERS = [
    ('{"a": "x"}', True),
    ('{"a": "x", "b": "y"}', True),
    ('{"b": "y", "more": 1, "most": [2]}', True),
    ('{"more": 1, "most": 2}', True),
    ("{}", True),
    ('{"b": "y" "more": 1}', False),
    ('{"a": "x", }', False),
]


@pytest.mark.parametrize(("answer", "fits"), ANSWERS)
def test_optional_and_additional_properties_are_separated_by_commas(vocab, answer, fits):
    gbnf = schema_to_gbnf(object_of(["a", "b"], additionalProperties={}))
    grammar, candidates = start_grammar(vocab.handle, gbnf), Candidates(vocab.n_vocab)
    taken = True
    try:
        for token in [*vocab.encode(answer, special=False), vocab.eos]:
            taken = taken and candidates.allowed(grammar, token)
            if taken:
                C.llama_sampler_accept(grammar, token)
    finally:
        C.llama_sampler_free(grammar)
    assert taken == fits
