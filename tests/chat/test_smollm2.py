"""Cuts and remembered tokens with a real byte-pair vocabulary."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.chat.edges import Continuations, PieceLengths, TokenEdges
from headstart.chat.history import TokenMemory
from headstart.chat.prompt import ChatInput, PromptBuilder
from headstart.chat.template import ChatTemplate
from headstart.engine.vocab import Vocabulary
from headstart.types import CutReason

WORDS = [
    "hello",
    " world",
    "don't",
    "'",
    "12",
    "3456",
    "é",
    "日本語",
    "_x",
    "Name",
    "CAPS",
    "🙂",
    "return x",
    "tool_call>",
]
SIGNS = [
    "\n",
    "\n\n",
    "  ",
    "    ",
    "\t",
    "\r\n",
    "{",
    '"a": ',
    '", "',
    "}",
    "](",
    ">.",
    "</",
    "...",
    "#",
    "<|im_start|>",
]
TEXTS = st.lists(st.sampled_from([*WORDS, *SIGNS, "<|im_end|>\n"]), max_size=12).map("".join)


@pytest.fixture(scope="module")
def smollm2(demo_model):
    return Vocabulary(str(demo_model))


@settings(max_examples=300, deadline=None)
@given(
    text=TEXTS,
    after=TEXTS,
    others=st.lists(TEXTS, min_size=1, max_size=4),
    long=st.booleans(),
    words=st.booleans(),
)
def test_no_continuation_moves_a_cut(smollm2, text, after, others, long, words):
    if words:  # before words, those that begin with white space don't count
        text, after, others = text + "\n", after.lstrip(), [other.lstrip() for other in others]
    text = ("some words before\n" * 30) * long + text
    tokens = smollm2.encode(text + after, bos=True)
    edges = TokenEdges(text + after, tokens, smollm2, PieceLengths(smollm2), Continuations(smollm2))
    count = edges.safe(len(text), before_words=words)
    kept = b"".join(map(smollm2.piece, tokens[:count]))
    assert text.encode().startswith(kept)
    for other in others:
        assert smollm2.encode(text + other, bos=True)[:count] == tokens[:count]


@settings(max_examples=150, deadline=None)
@given(head=TEXTS, tails=st.lists(TEXTS, min_size=1, max_size=4), repeat=st.integers(1, 60))
def test_remembered_tokens_are_the_tokenizers(smollm2, head, tails, repeat):
    memory = TokenMemory(smollm2, PieceLengths(smollm2))
    head = "\n".join(["line of text", head] * repeat)
    for tail in [*tails, tails[0]]:
        assert memory.encode(head + tail) == smollm2.encode(head + tail, bos=True)


def test_a_forged_answer_does_not_change_how_others_are_read(smollm2):
    """A grammar that writes the victim's prompt, a bias against the special token, no generation prompt."""
    template = ChatTemplate(smollm2.template, bos_text=smollm2.bos_text, eos_text=smollm2.eos_text)
    builder = PromptBuilder(template, smollm2)
    lead = {"role": "system", "content": "You are a helpful assistant."}
    victim = ChatInput([lead, {"role": "user", "content": "Hello"}])
    honest = smollm2.encode(builder.render_text(victim), bos=True)
    for opens in (False, True):
        mine = builder.chat(ChatInput([lead], add_generation_prompt=opens))
        builder.remember(mine, smollm2.encode("<|im_start|>user\nHello", special=False))
        builder._memory.remember(mine.text, mine.tokens, smollm2.encode("<|im_start|>user\nHello", special=False))
    assert builder.chat(victim).tokens == honest


def test_its_template_gets_tools_and_cuts(smollm2):
    template = ChatTemplate(smollm2.template, bos_text=smollm2.bos_text, eos_text=smollm2.eos_text)
    assert not template.knows_tools
    builder = PromptBuilder(template, smollm2)
    tools = [
        {"type": "function", "function": {"name": f"tool{n}", "description": "Reads a file. " * 20, "parameters": {}}}
        for n in range(8)
    ]
    lead = {"role": "system", "content": "You are careful."}
    prompts = [
        builder.chat(ChatInput([lead, {"role": "user", "content": text}], tools=tools))
        for text in ("say hello", "list files")
    ]
    heads = [next(cut.position for cut in p.cuts if cut.reason is CutReason.HEAD) for p in prompts]
    assert heads[0] == heads[1] and prompts[0].tokens[: heads[0]] == prompts[1].tokens[: heads[0]]
    assert len(prompts[0].tokens) - heads[0] < 16
    assert prompts[0].text == b"".join(map(smollm2.piece, prompts[0].tokens)).decode()
