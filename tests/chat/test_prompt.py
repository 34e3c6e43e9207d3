"""Prompts: the cuts are where they should be, whatever the template."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.chat.cuts import MIN_DISTANCE, Candidate, choose, with_geometric
from headstart.chat.prompt import ChatInput, Mark, PromptBuilder
from headstart.chat.template import ChatTemplate
from headstart.errors import RequestError
from headstart.types import CutReason

from .fake import FakeTokenizer
from .models import ALL, CHATML_TOOLS, PARTS, STRICT

TOOLS = [{"type": "function", "function": {"name": "look", "description": "d" * 200, "parameters": {"type": "object"}}}]
SYSTEM = {"role": "system", "content": "Rules of the house. " * 20}
FILL = "some words to read " * 8


@cache
def template_of(source):
    return ChatTemplate(source, bos_text="<s>", eos_text="</s>")


def builder(source=CHATML_TOOLS, **settings):
    tokenizer = FakeTokenizer()
    return PromptBuilder(template_of(source), tokenizer, **{"prefix_min_tokens": 16, **settings}), tokenizer


def shown(tokenizer, tokens):
    return b"".join(map(tokenizer.piece, tokens)).decode()


def cuts(prompt, reason):
    return [cut for cut in prompt.cuts if cut.reason is reason]


def check(prompt):
    places = [cut.position for cut in prompt.cuts]
    assert places == sorted(set(places)) and all(0 < p < len(prompt.tokens) for p in places)


def test_a_text_that_is_far_too_long_is_not_tokenized_to_its_end():
    made, tokenizer = builder()
    far, near, spread = "the" * 100_000, "the" * 300, " " * 5000
    for ask in (
        lambda text: made.text(text, limit=200),
        lambda text: made.chat(ChatInput([{"role": "user", "content": text}]), limit=200),
    ):
        for text, most in ((far, 2000), (near, 6000)):
            before = tokenizer.encoded_chars
            with pytest.raises(RequestError) as refused:
                ask(text)
            assert refused.value.code == "context_length_exceeded" and "200 tokens" in refused.value.message
            assert tokenizer.encoded_chars - before < most
    assert len(made.text(spread, limit=2000).tokens) == len(tokenizer.encode(spread, bos=True))
    assert len(made.text(near, limit=302).tokens) == 301


@pytest.mark.parametrize("name", ALL)
def test_the_head_is_what_siblings_share(name):
    made, tokenizer = builder(ALL[name])
    talks = [
        [SYSTEM, {"role": "user", "content": "fix the parser"}],
        [SYSTEM, {"role": "user", "content": "fine weather"}],
        [
            SYSTEM,
            {"role": "user", "content": FILL},
            {"role": "assistant", "content": FILL},
            {"role": "user", "content": "x"},
        ],
    ]
    prompts = [made.chat(ChatInput(talk, tools=TOOLS)) for talk in talks]
    for prompt in prompts:
        check(prompt)
        (head,) = cuts(prompt, CutReason.HEAD)
        assert "Rules of the house. Rules" in shown(tokenizer, prompt.tokens[: head.position])
        assert prompt.tokens[: head.position] == prompts[0].tokens[: head.position]
        assert shown(tokenizer, prompt.tokens).removeprefix("<s>") == prompt.text.removeprefix("<s>")
        assert prompt.tokens.count(tokenizer.bos) == 1


def test_cuts_of_a_conversation():
    made, tokenizer = builder()
    talk = [
        SYSTEM,
        {"role": "user", "content": FILL},
        {"role": "assistant", "content": FILL},
        {"role": "user", "content": FILL * 2},
    ]
    prompt = made.chat(ChatInput(talk, tools=TOOLS))
    check(prompt)
    by_reason = {cut.reason: shown(tokenizer, prompt.tokens[: cut.position]) for cut in prompt.cuts}
    assert by_reason[CutReason.HEAD].endswith("<|im_end|>\n<|im_start|>user\n")
    assert by_reason[CutReason.LAST_USER].endswith(FILL + "<|im_end|>\n<|im_start|>user\n")
    assert by_reason[CutReason.LAST_PART].rstrip().endswith("to read")
    assert CutReason.GEOMETRIC in by_reason


def test_generation_cut_lies_before_the_generation_prompt():
    made, tokenizer = builder()
    call = {"id": "1", "function": {"name": "look", "arguments": '{"at": "' + "x " * 90 + '"}'}}
    talk = [SYSTEM, {"role": "user", "content": FILL}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    prompt = made.chat(ChatInput(talk))
    (cut,) = cuts(prompt, CutReason.GENERATION)
    assert shown(tokenizer, prompt.tokens[: cut.position]).endswith("</tool_call><|im_end|>")


def test_no_head_when_short_or_off():
    talk = [SYSTEM, {"role": "user", "content": FILL}]
    for options in ({"auto_prefix": False}, {"prefix_min_tokens": 100_000}):
        prompt = builder(**options)[0].chat(ChatInput(talk))
        assert {cut.reason for cut in prompt.cuts} == {CutReason.LAST_PART}


def test_marks():
    made, tokenizer = builder()
    user = {"role": "user", "content": [{"type": "text", "text": f"part {i}. " + FILL} for i in range(6)]}
    marks = [Mark(None, ttl=60.0), Mark(0), *(Mark(1, part, ttl=float(part)) for part in range(6))]
    prompt = made.chat(ChatInput([SYSTEM, user], tools=TOOLS, marks=marks, implicit=False))
    check(prompt)
    assert [cut.reason for cut in prompt.cuts] == [CutReason.EXPLICIT] * 4
    assert [cut.ttl for cut in prompt.cuts] == [2.0, 3.0, 4.0, 5.0]
    assert "part 2" in shown(tokenizer, prompt.tokens[: prompt.cuts[0].position])
    assert "part 3" not in shown(tokenizer, prompt.tokens[: prompt.cuts[0].position])
    assert len(cuts(made.chat(ChatInput([SYSTEM, user], tools=TOOLS, marks=marks)), CutReason.EXPLICIT)) == 3
    assert made.chat(ChatInput([SYSTEM, user], implicit=False)).cuts == []
    (tools_end,) = made.chat(ChatInput([SYSTEM, user], tools=TOOLS, marks=marks[:1], implicit=False)).cuts
    text = shown(tokenizer, prompt.tokens[: tools_end.position])
    assert '"parameters"' in text and "Rules" not in text and tools_end.ttl == 60.0


def test_a_mark_on_a_message_without_content_or_out_of_range():
    made, _ = builder()
    call = {"id": "1", "function": {"name": "look", "arguments": "{}"}}
    talk = [
        SYSTEM,
        {"role": "user", "content": FILL},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "x"},
    ]
    prompt = made.chat(ChatInput(talk, marks=[Mark(2), Mark(9), Mark(0, 7)], implicit=False))
    assert [cut.reason for cut in prompt.cuts] == [CutReason.EXPLICIT] * 2


def test_continue_the_last_message():
    made, _ = builder()
    talk = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "It is"}]
    assert made.chat(ChatInput(talk, continue_final=True)).text.endswith("<|im_start|>assistant\nIt is")
    assert made.chat(ChatInput(talk)).text.endswith("It is<|im_end|>\n<|im_start|>assistant\n")
    thinker = builder(PARTS)[0]
    prompt = thinker.chat(ChatInput(talk, continue_final=True))
    assert prompt.text.endswith("<think>\n\n</think>\n\nIt is") and not prompt.reasoning_open
    talk[-1] = {"role": "assistant", "content": "", "reasoning_content": "Well"}
    prompt = thinker.chat(ChatInput(talk, continue_final=True))
    assert prompt.text.endswith("<think>\nWell") and prompt.reasoning_open


def test_reasoning_open():
    talk = [{"role": "user", "content": "a <think> b"}]
    assert builder(PARTS)[0].chat(ChatInput(talk)).reasoning_open
    made = builder()[0]
    assert not made.chat(ChatInput(talk)).reasoning_open
    assert not made.chat(ChatInput(talk, template_kwargs={"enable_thinking": False})).reasoning_open


def test_text_and_token_prompts():
    made, tokenizer = builder()
    assert made.text("hello").tokens == [0, *tokenizer.encode("hello")]
    assert made.text("<s>hello").tokens == made.text("hello").tokens
    assert made.text([5, 6]).tokens == [5, 6] and made.text([5, 6]).text is None
    for bad in ("", [], [-1], [tokenizer.n_vocab], [True], ["x"], "a\ud800"):
        with pytest.raises(RequestError) as caught:
            made.text(bad)
        assert caught.value.param == "prompt"
    with pytest.raises(RequestError, match="surrogate"):
        made.chat(ChatInput([{"role": "user", "content": "a\udfff"}]))


REASONS = st.sampled_from(
    [r for r in CutReason if r not in (CutReason.DIVERGENCE, CutReason.INTERVAL, CutReason.GEOMETRIC)]
)
CANDIDATES = st.lists(st.builds(Candidate, st.integers(-5, 900), REASONS, st.none() | st.floats(1, 9)), max_size=12)


@settings(deadline=None)
@given(CANDIDATES, st.booleans())
def test_choice_of_cuts(candidates, implicit):
    chosen = choose(with_geometric(candidates), 800, implicit=implicit)
    places = [cut.position for cut in chosen]
    assert places == sorted(set(places)) and all(0 < p < 800 for p in places)
    explicit = [cut for cut in chosen if cut.reason is CutReason.EXPLICIT]
    assert len(explicit) <= (3 if implicit else 4)
    wanted = sorted({c.position for c in candidates if c.reason is CutReason.EXPLICIT and 0 < c.position < 800})
    assert not wanted or wanted[-1] == explicit[-1].position
    for one in chosen:
        if one.reason not in (CutReason.EXPLICIT, CutReason.HEAD):
            assert all(abs(one.position - other.position) >= MIN_DISTANCE for other in chosen if other is not one)


CONTENT = st.text(alphabet='ab1 \n.,{}"é日<|', max_size=40)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(ALL)), CONTENT, CONTENT, CONTENT, CONTENT)
def test_cuts_hold_for_any_text(name, system, first, reply, last):
    """The head's tokens are the same for every other first message, but for the line end before one that begins with
    white space; and cuts never come out of order."""
    made, _ = builder(ALL[name])
    lead = {"role": "system", "content": FILL + system}
    talk = [
        lead,
        {"role": "user", "content": first},
        {"role": "assistant", "content": reply},
        {"role": "user", "content": last},
    ]
    prompt = made.chat(ChatInput(talk, tools=TOOLS))
    check(prompt)
    (head,) = cuts(prompt, CutReason.HEAD)
    other = made.chat(ChatInput([lead, {"role": "user", "content": last}], tools=TOOLS))
    if name != "strict" or last.strip():
        kept = head.position - last[:1].isspace()
        assert other.tokens[:kept] == prompt.tokens[:kept]


def test_strict_template_trims_without_losing_the_cuts():
    made, tokenizer = builder(STRICT)
    talk = [
        SYSTEM,
        {"role": "user", "content": "  " + FILL},
        {"role": "assistant", "content": FILL},
        {"role": "user", "content": FILL},
    ]
    prompt = made.chat(ChatInput(talk))
    reasons = {cut.reason for cut in prompt.cuts}
    assert {CutReason.HEAD, CutReason.LAST_USER, CutReason.LAST_PART} <= reasons
    assert shown(tokenizer, prompt.tokens).startswith("<s><|im_start|>user\nRules")
