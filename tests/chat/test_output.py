"""The answer parser: same result however the text is split, nothing lost."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.chat.deltas import ContentDelta, Delta, ReasoningDelta, ToolCallDelta
from headstart.chat.output import OutputStream

from .fake import SPECIAL, FakeTokenizer

TOKENIZER = FakeTokenizer()
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"properties": properties}}}
    for name, properties in {
        "get": {"city": {"type": "string"}, "n": {"type": "integer"}},
        "add": {"a": {}, "b": {}},
    }.items()
]


def answer(pieces, **settings):
    """(reasoning, content, [(name, arguments)], stream) of an answer fed in these texts, byte-split tokens."""
    stream = OutputStream(TOKENIZER, **{"parse_tools": True, "tools": TOOLS, **settings})
    deltas: list[Delta] = []
    for piece in pieces:
        for token in TOKENIZER.encode(piece):
            deltas += stream.push(token)
    deltas += stream.finish()
    reasoning = "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))
    content = "".join(d.text for d in deltas if isinstance(d, ContentDelta))
    calls: list[list[str]] = []
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            if delta.id is not None:
                assert delta.name and delta.index == len(calls) and delta.id.startswith("call_") and len(delta.id) == 29
                calls.append([delta.name, ""])
            else:
                assert delta.name is None
            assert delta.index == len(calls) - 1
            calls[-1][1] += delta.arguments
    assert stream.tool_calls == len(calls)
    return reasoning, content, [tuple(call) for call in calls], stream


def parsed(text, **settings):
    """Checks that one push, and a push for every character, give the same."""
    whole = answer([text], **settings)[:3]
    assert answer(list(text), **settings)[:3] == whole
    return whole


HERMES = '<tool_call>\n{"name": "get", "arguments": {"city": "Zürich </tool_call>", "n": 1.0}}\n</tool_call>'
GET = ("get", '{"city": "Zürich </tool_call>", "n": 1.0}')
XML = (
    "<tool_call>\n<function=get>\n<parameter=city>\n12\n</parameter>\n<parameter=n>\n3\n</parameter>\n"
    "</function>\n</tool_call>"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello  \n\n", ("", "hello  \n\n", [])),
        ("  \n", ("", "  \n", [])),
        ("a < b <tool", ("", "a < b <tool", [])),
        (HERMES, ("", "", [GET])),
        ("\n\nLet me look.  \n\n" + HERMES, ("", "\n\nLet me look.  \n", [GET])),
        (HERMES + "\n" + HERMES + "\n", ("", "", [GET, GET])),
        (HERMES + "\nDone.", ("", "\nDone.", [GET])),
        ("<think>\nhm\n</think>\n\n" + HERMES, ("hm", "", [GET])),
        ("<think>hm <b></think>\n\nhi", ("hm <b>", "hi", [])),
        ("<think>never closed", ("never closed", "", [])),
        ("I say <think> now", ("", "I say <think> now", [])),
        ("<tool_call>not json</tool_call>", ("", "<tool_call>not json</tool_call>", [])),
        ('<tool_call>\n{"name": 3}\n</tool_call>', ("", '<tool_call>\n{"name": 3}\n</tool_call>', [])),
        ('<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>', ("", "", [("add", '{"a": 1}')])),
        ('<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', ("", "", [("add", '{"a": 1}')])),
        ('<tool_call>{"name": "get"}</tool_call>', ("", "", [("get", "{}")])),
        ('<tool_call>[{"name": "get", "arguments": {}}]</tool_call>', ("", "", [("get", "{}")])),
        ('<tool_call>{"name": "get", "arguments": {"city', ("", "", [("get", '{"city')])),
        ('<tool_call>{"nam', ("", '<tool_call>{"nam', [])),
        ('<tool_call>{"name": "get", "arguments": {}, "id": 3} tail', ("", " tail", [("get", "{}")])),
        (XML, ("", "", [("get", '{"city": "12", "n": 3}')])),
        (XML[12:], ("", "", [("get", '{"city": "12", "n": 3}')])),
        ("<function=get>{}</function>", ("", "", [("get", "{}")])),
        ("see <function=x> and go", ("", "see <function=x> and go", [])),
        ('[TOOL_CALLS][{"name": "get", "arguments": {"n": 2}}]', ("", "", [("get", '{"n": 2}')])),
        ('[TOOL_CALLS]get[ARGS]{"n": 2}[TOOL_CALLS]add{}', ("", "", [("get", '{"n": 2}'), ("add", "{}")])),
        ("[TOOL_CALLS]!", ("", "[TOOL_CALLS]!", [])),
        ('<|python_tag|>{"name": "get", "parameters": {"n": 2}}', ("", "", [("get", '{"n": 2}')])),
        ("<|python_tag|>print(1)", ("", "<|python_tag|>print(1)", [])),
        ('{"name": "get", "parameters": {}}', ("", '{"name": "get", "parameters": {}}', [])),
    ],
)
def test_formats(text, expected):
    assert parsed(text) == expected


def test_bare_json_only_where_the_request_expects_it():
    text = '{"name": "get", "parameters": {"n": 1}}; {"name": "add", "parameters": {}}'
    assert parsed(text, bare_json=True) == ("", "", [("get", '{"n": 1}'), ("add", "{}")])
    assert parsed('{"name": "other", "parameters": {}}', bare_json=True)[1:] == (
        '{"name": "other", "parameters": {}}',
        [],
    )
    assert parsed("[a](b) {", bare_json=True) == ("", "[a](b) {", [])


def test_reasoning_that_the_prompt_opened():
    assert parsed("so\n</think>\n\nyes", reasoning_open=True) == ("so", "yes", [])
    assert parsed("<think>\nso</think>yes", reasoning_open=True) == ("so", "yes", [])


def test_calls_written_as_python():
    text = "<|tool_call_start|>[get(city='Bonn (x)', n=[1, None]), add()]<|tool_call_end|>Checking."
    assert parsed(text) == ("", "Checking.", [("get", '{"city": "Bonn (x)", "n": [1, null]}'), ("add", "{}")])
    for other in ("[get(x)]", "[get(*a)]", "[1]", "(" * 9999, "[get(n=" + "[" * 999 + "]" * 999 + ")]", "[a.b(n=1+x)]"):
        whole = f"<|tool_call_start|>{other}<|tool_call_end|>"
        assert answer([whole])[:3] == ("", whole, [])
    assert parsed("<|tool_call_start|>[get(") == ("", "<|tool_call_start|>[get(", [])


def test_calls_written_as_key_value_tags():
    pairs = [("city", "12"), ("n", "3")]
    text = "<tool_call>get" + "".join(f"\n<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>" for k, v in pairs)
    assert parsed(text + "\n</tool_call>") == ("", "", [("get", '{"city": "12", "n": 3}')])
    assert parsed("<tool_call>add\n</tool_call>") == ("", "", [("add", "{}")])
    endless = text + "<arg_key>n</arg_key><arg_value></arg_value>" * 40 + "!</tool_call>"
    for other in (text, endless, "<tool_call>what\n</tool_call>", "<tool_call>get <b></tool_call>"):
        assert parsed(other) == ("", other, [])


def test_channels():
    text = (
        "<|channel|>analysis<|message|>hm <b><|end|><|start|>assistant<|channel|>commentary to=functions.get "
        '<|constrain|>json<|message|>{"n": 1}<|end|><|start|>assistant<|channel|>final<|message|>yes <'
    )
    assert parsed(text) == ("hm <b>", "yes <", [("get", '{"n": 1}')])
    assert parsed("<|channel|>final") == ("", "<|channel|>final", [])
    assert parsed("<|start|>assistant to=functions.add<|channel|>commentary<|message|>{}") == ("", "", [("add", "{}")])


def test_plain_completions_are_left_alone():
    text = "<think>a</think>" + HERMES
    assert parsed(text, parse_tools=False, parse_reasoning=False) == ("", text, [])


def test_arguments_stream_before_the_call_ends():
    stream = OutputStream(TOKENIZER, parse_tools=True, tools=TOOLS)
    got = [d for t in TOKENIZER.encode('<tool_call>{"name": "get", "arguments": {"city": "B') for d in stream.push(t)]
    assert got[0].name == "get" and "".join(d.arguments for d in got) == '{"city": "B'


@settings(deadline=None)
@given(
    st.text(alphabet="abS é\n", max_size=30), st.lists(st.text(alphabet="abS \n", min_size=1, max_size=4), max_size=3)
)
def test_stop_strings(text, stops):
    _, content, _, stream = answer(list(text), stops=stops)
    _, cut = min(((text.find(s) + len(s), text.find(s)) for s in stops if s in text), default=(0, len(text)))
    assert content == text[:cut] == stream.text
    assert stream.stopped is (cut < len(text))


TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "\n", "x", " ", "é"]
JSON = ['{"name":"get","arguments":{', "}", '"a":"', '"', "\\", "{", "[", "]", ",", ";", "get", "<"]
XMLS = ["<function=get>", "<parameter=n>", "</parameter>", "</function>"]
FRAGMENTS = [*TAGS, *JSON, *XMLS]


@settings(deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14), st.booleans(), st.booleans())
def test_any_split_gives_the_same_and_no_word_is_lost(fragments, bare, open_):
    text = "".join(fragments)
    reasoning, content, calls = parsed(text, bare_json=bare, reasoning_open=open_)
    kept = reasoning + content + "".join(name + arguments for name, arguments in calls)
    assert sum(kept.count(c) for c in "xé") >= (0 if calls else text.count("x") + text.count("é"))
    if not calls and not reasoning and not open_:
        assert content == text or "think>" in text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(alphabet='a"\\\\{}[]<>/é\\n', max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), st.booleans(), st.sampled_from([None, 1]))
def test_any_arguments_come_out_verbatim(arguments, ascii_only, indent):
    written = json.dumps(arguments, ensure_ascii=ascii_only, indent=indent)
    call = f'{{"name": "get", "arguments": {written}}}'
    late = f'{{"arguments": {written}, "name": "get"}}'
    for text in (
        f"<tool_call>\n{call}\n</tool_call>",
        f"<tool_call>{late}</tool_call>\n",
        f"[TOOL_CALLS] [{call}]",
        f"[TOOL_CALLS]get[ARGS]{written}",
        f"<|python_tag|>{call}",
        f"<function=get>{written}</function>",
    ):
        assert parsed(text) == ("", "", [("get", written)])
    assert parsed(call, bare_json=True) == ("", "", [("get", written)])


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["city", "n", "other"]), st.text(alphabet="a1 \n<>/=é", max_size=12), max_size=3)
)
def test_any_xml_values_come_out(values):
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    _, content, calls = parsed(f"<tool_call>\n<function=get>\n{body}</function>\n</tool_call>")
    assert content == "" and calls[0][0] == "get"
    got = json.loads(calls[0][1])
    assert list(got) == list(values) and got.get("city", "") == values.get("city", "")


def test_utf8_across_tokens_and_a_tail_that_is_cut_off():
    stream = OutputStream(TOKENIZER)
    ids = [TOKENIZER.encode("x")[0], *(len(SPECIAL) + b for b in "日".encode()), len(SPECIAL) + 0xE6]
    texts = ["".join(d.text for d in stream.push(t)) for t in ids]
    assert texts == ["x", "", "", "日", ""] or "".join(texts) == "x日"
    assert stream.finish() == []


def test_bytes_that_begin_no_character_are_marked():
    stream = OutputStream(TOKENIZER)
    ids = [len(SPECIAL) + 0xFF, TOKENIZER.encode("x")[0]]
    assert "".join(d.text for t in ids for d in stream.push(t)) == "\ufffdx"


def test_control_tokens_are_hidden_unless_asked_for():
    ids = [*TOKENIZER.encode("hi"), TOKENIZER.encode("<|im_start|>")[0]]
    assert answer(["hi<|im_start|>"])[1] == "hi"
    assert answer(["hi<|im_start|>"], keep_special=True)[1] == "hi<|im_start|>"
    assert len(ids) >= 2


def test_streamed_arguments_are_valid_json():
    _, _, calls = parsed(HERMES)
    assert json.loads(calls[0][1]) == {"city": "Zürich </tool_call>", "n": 1.0}


def test_channel_tags_mean_nothing_in_other_answers():
    assert answer(["yes<|end|> no<|channel|>x"])[:3] == ("", "yes nox", [])
