"""Any conversation that agents send is shown by any template, in order."""

import json
from datetime import datetime

import pytest

from headstart.chat.template import ChatTemplate
from headstart.errors import RequestError, StartupError

from .models import ALL, CHATML_TOOLS, PARTS, PLAIN, SHORT_IDS, STRICT

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("look", "dig")]
CALLS = [
    {"id": f"call_{n}", "type": "function", "function": {"name": "look", "arguments": json.dumps({"at": f"ARG{n}"})}}
    for n in (1, 2)
]
TALK = [
    {"role": "developer", "content": [{"type": "text", "text": "SYS1"}, {"type": "text", "text": "SYS2"}]},
    {"role": "user", "content": "USER1"},
    {"role": "user", "content": [{"type": "input_text", "text": "USER2"}]},
    {"role": "system", "content": "MIDDLE"},
    {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "call_1", "content": "RESULT1", "name": "look"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "RESULT2"}]},
    {"role": "assistant", "content": "ANSWER"},
    {"role": "user", "content": "LAST"},
]
WORDS = ["SYS1", "SYS2", "USER1", "USER2", "MIDDLE", "ARG1", "ARG2", "RESULT1", "RESULT2", "ANSWER", "LAST"]


def template(source, **settings):
    return ChatTemplate(source, bos_text="<s>", eos_text="</s>", **settings)


def in_order(text, words):
    places = [text.find(word) for word in words]
    return -1 not in places and places == sorted(places)


@pytest.mark.parametrize("name", ALL)
def test_everything_is_shown_in_order(name):
    words = [w for w in WORDS if w not in ("ARG2", "RESULT1")]
    for tools in (None, TOOLS):
        text = template(ALL[name]).render(TALK, tools)
        assert in_order(text, words), text
        assert in_order(text, ["ARG1", "ARG2", "RESULT2"]) and in_order(text, ["ARG1", "RESULT1", "RESULT2"])
        assert not tools or ("look" in text and "dig" in text)


def test_capabilities():
    caps = {name: template(source).capabilities for name, source in ALL.items()}
    assert caps["chatml"].calls == "text" and caps["chatml"].tools and caps["chatml"].parallel_calls
    assert not caps["plain"].tools and caps["plain"].calls is None and caps["plain"].mid_system
    assert not caps["strict"].system and not caps["strict"].repeats and not caps["strict"].mid_system
    assert caps["short-ids"].short_ids and caps["short-ids"].calls == "object" and not caps["short-ids"].system_run
    assert caps["parts"].typed and not caps["parts"].parallel_calls and caps["parts"].tools


def test_fallback_writes_tools_into_the_system_message():
    knows_none = template(PLAIN)
    assert not knows_none.knows_tools and knows_none.notes
    text = knows_none.render(TALK, TOOLS)
    head = text.split("<|im_end|>")[0]
    assert in_order(head, ["<tools>", '"name": "look"', '"name": "dig"', "</tools>", "SYS1"])
    assert "You are helpful." not in text
    assert '<tool_call>\n{"name": "look", "arguments": {"at": "ARG1"}}\n</tool_call>' in text
    assert "<|im_start|>user\n<tool_response>\nRESULT1\n</tool_response>\n<tool_response>\nRESULT2" in text
    assert "<|im_start|>tool" not in text
    assert "<tools>" in knows_none.render([{"role": "user", "content": "hi"}], TOOLS).split("<|im_end|>")[0]


def test_arguments_stay_as_written_where_the_template_takes_text():
    call = {"id": "1", "function": {"name": "look", "arguments": '{"b":1.0,  "a": "é"}'}}
    talk = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert '{"b":1.0,  "a": "é"}' in template(CHATML_TOOLS).render(talk)
    assert '{"b": 1.0, "a": "é"}' in template(SHORT_IDS).render([*talk, {"role": "tool", "tool_call_id": "1"}])
    call["function"]["arguments"] = "not json"
    assert "<arguments=not json>" in template(PARTS).render(talk)


def test_bos_is_written_once_and_blanks_before_it_go():
    assert (
        template("  {{ ' ' + bos_token }}{{ messages[0].content }}").render([{"role": "user", "content": "x"}])
        == "<s>x"
    )


def test_variables_and_huggingface_names():
    source = (
        "{% generation %}{{ messages[0].content }}{% endgeneration %}{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}"
        "{% endif %}{{ i }}{% endfor %}|{{ {'b': '<é>', 'a': 1} | tojson }}|{{ [1] | tojson(indent=1) }}|"
        "{{ strftime_now('%Y-%m-%d') }}|{{ effort }}|{{ messages[0].name }}|"
        "{% set q = [] %}{% set _ = q.append(1) %}{{ q }}"
    )
    made = template(source, now=lambda: datetime(2026, 11, 29))
    text = made.render([{"role": "user", "content": "hi", "name": "Ann"}], kwargs={"effort": "low", "messages": "no"})
    assert text == 'hi1|{"b": "<é>", "a": 1}|[\n 1\n]|2026-11-29|low|Ann|[1]'
    assert made.mentions("effort") and not made.mentions("enable_thinking")


def test_requests_at_fault_get_400_with_the_reason():
    made = template(CHATML_TOOLS)
    for messages, word in [
        ([], "at least one"),
        ("hi", "list"),
        (["hi"], "messages[0]"),
        ([{"role": "user", "content": "a"}, {"role": "boss", "content": "b"}], "messages[1]"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "text only"),
        ([{"role": "user", "content": [{"type": "text"}]}], "no text"),
        ([{"role": "user", "content": 3}], "messages[0].content"),
        ([{"role": "assistant", "tool_calls": "x"}], "tool_calls"),
        ([{"role": "assistant", "tool_calls": [{"function": {}}]}], "tool_calls[0]"),
    ]:
        with pytest.raises(RequestError) as caught:
            made.render(messages)
        assert caught.value.status == 400 and word in caught.value.message
    with pytest.raises(RequestError, match="Roles must alternate"):
        template(STRICT).render([{"role": "assistant", "content": "first"}])
    with pytest.raises(RequestError, match=r"tools\[0\]"):
        made.render([{"role": "user", "content": "x"}], [{"type": "function"}])
    deep: dict = {}
    for _ in range(100_000):
        deep = {"d": deep}
    tool = {"type": "function", "function": {"name": "x", "parameters": deep}}
    with pytest.raises(RequestError, match="nested"):
        made.render([{"role": "user", "content": "x"}], [tool])


def test_the_sandbox_holds():
    for source in (
        "{{ 'x' * 999999999 }}",
        "{{ 2 ** 99999999 }}",
        "{{ messages.__class__.__mro__ }}",
        "{% for i in range(9**9) %}{% endfor %}",
    ):
        with pytest.raises(StartupError):
            template(source + "{{ messages[0].content }}")


def test_bad_templates_fall_back_with_a_reason():
    for source in (None, "{% if %}", "{{ nothing }}", "{{ raise_exception('no') }}"):
        made = ChatTemplate.load(source, bos_text="", eos_text="")
        assert "built-in" in made.notes[0]
        assert in_order(
            made.render([{"role": "user", "content": "hi"}]), ["<|im_start|>user\nhi<|im_end|>", "assistant"]
        )
    assert ChatTemplate.load(CHATML_TOOLS).notes == ()


def test_the_tool_template_is_used_for_tools():
    made = template(
        "plain {{ messages[0].content }}", tools_source="tools {{ tools | tojson }}{{ messages[0].content }}"
    )
    hi = [{"role": "user", "content": "hi"}]
    assert made.render(hi) == "plain hi" and made.render(hi, TOOLS).startswith("tools [")


def test_request_hints_do_not_reach_the_prompt():
    plain = {"type": "function", "function": {"name": "look"}}
    marked = {"type": "function", "cache_control": {"type": "ephemeral"}, "function": {"name": "look", "strict": False}}
    hi = [{"role": "user", "content": "hi"}]
    made = template(CHATML_TOOLS)
    assert made.render(hi, [marked, {"type": "web_search"}]) == made.render(hi, [plain])


def test_input_is_left_alone():
    before = json.dumps([TALK, TOOLS])
    for source in ALL.values():
        template(source).render(TALK, TOOLS)
    assert json.dumps([TALK, TOOLS]) == before
