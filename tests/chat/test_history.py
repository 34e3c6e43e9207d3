"""Remembered tokens are the tokenizer's own, except for generated text, which keeps the tokens it was made of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.chat.edges import PieceLengths
from headstart.chat.history import TokenMemory
from headstart.chat.prompt import ChatInput, PromptBuilder
from headstart.chat.template import ChatTemplate

from .fake import FakeTokenizer
from .models import CHATML_TOOLS

LINES = st.lists(
    st.sampled_from(
        [
            "hello world ",
            "the é日 ",
            "\n",
            "\n\n",
            "x" * 300 + "\n",
            "<|im_start|>",
            "<|im_end|>\n",
            "<",
            "|im_",
            "end|>",
        ]
    ),
    max_size=10,
).map("".join)


def memory(**settings):
    tokenizer = FakeTokenizer()
    return TokenMemory(tokenizer, PieceLengths(tokenizer), **settings), tokenizer


def text_of(tokenizer, tokens):
    return b"".join(map(tokenizer.piece, tokens)).decode().removeprefix("<s>")


@settings(max_examples=60, deadline=None)
@given(LINES, st.lists(LINES, min_size=1, max_size=6))
def test_prompts_get_the_tokens_of_the_tokenizer(head, tails):
    kept, tokenizer = memory()
    for tail in [*tails, *tails]:
        assert kept.encode(head + tail) == tokenizer.encode(head + tail, bos=True)


@settings(max_examples=60, deadline=None)
@given(LINES, st.lists(st.integers(8, 300), min_size=1, max_size=8), LINES)
def test_generated_tokens_come_back(prompt, generated, after):
    kept, tokenizer = memory()
    tokens = kept.encode(prompt)
    kept.remember(prompt, tokens, generated)
    try:
        answer = b"".join(map(tokenizer.piece, generated)).decode()
    except UnicodeDecodeError:
        return
    whole = prompt + answer + "<|im_end|>" + after
    again = kept.encode(whole)
    assert text_of(tokenizer, again) == whole.removeprefix("<s>")
    if "<|im_end|>" not in answer:
        assert again[: len(tokens) + len(generated)] == tokens + generated
    assert kept.encode(whole) == again  # also when it is found as a prompt


def test_only_the_new_end_is_tokenized():
    kept, tokenizer = memory()
    head = "<|im_start|>system\n" + "hello world " * 500 + "<|im_end|>\n<|im_start|>user\n"
    kept.encode(head + "one<|im_end|>")
    before = tokenizer.encoded_chars
    assert kept.encode(head + "two<|im_end|>") == tokenizer.encode(head + "two<|im_end|>", bos=True)
    assert tokenizer.encoded_chars - before - len(head) < 100
    lines = ("x" * 60 + "\n") * 100
    kept.encode(lines + "one")
    before = tokenizer.encoded_chars
    kept.encode(lines + "two")
    assert tokenizer.encoded_chars - before < 700


def test_memory_is_bounded():
    kept, _ = memory(max_chars=1000, max_texts=5)
    for number in range(50):
        kept.encode(f"{number} " * 30)
        assert kept._chars == sum(len(text) for _, text in kept._entries) <= 1000 and len(kept._entries) <= 5
    kept.encode("x" * 2000)
    assert kept._chars == 0


def test_a_conversation_keeps_what_the_model_said():
    tokenizer = FakeTokenizer()
    builder = PromptBuilder(ChatTemplate(CHATML_TOOLS, bos_text="<s>", eos_text="</s>"), tokenizer)
    talk = [{"role": "user", "content": "hello"}]
    prompt = builder.chat(ChatInput(talk))
    odd = [
        token for letter in "hello world" for token in tokenizer.encode(letter)
    ]  # letter by letter, as no tokenizer would
    assert odd != tokenizer.encode("hello world")
    builder.remember(prompt, odd)
    talk += [{"role": "assistant", "content": "hello world"}, {"role": "user", "content": "more"}]
    again = builder.chat(ChatInput(talk))
    assert again.tokens[: len(prompt.tokens) + len(odd)] == prompt.tokens + odd


HEAD = "<|im_start|>system\nYou help.<|im_end|>\n"


def letters(tokenizer, text):
    """The text in tokens of single letters, whatever special token it spells."""
    return [tokenizer.encode(letter, special=False)[0] for letter in text]


@pytest.mark.parametrize(
    ("prompt", "answer", "after"),
    [
        (HEAD, "<|im_start|>user\nhello", "<|im_end|>\n"),
        (HEAD, "start <|im_end|>", "<|im_end|>\n"),
        (HEAD + "<|im_", "start|>user\nhello", "<|im_end|>\n"),  # the text of the token begins in the prompt
    ],
)
def test_letters_never_stand_for_a_special_token(prompt, answer, after):
    kept, tokenizer = memory()
    kept.remember(prompt, kept.encode(prompt), letters(tokenizer, answer))
    whole = prompt + answer + after
    assert kept.encode(whole) == tokenizer.encode(whole, bos=True)


def test_an_answer_with_its_special_tokens_is_kept():
    kept, tokenizer = memory()
    answer = letters(tokenizer, "hello") + tokenizer.encode("<|im_end|>")
    tokens = kept.encode(HEAD)
    kept.remember(HEAD, tokens, answer)
    assert kept.encode(HEAD + "hello<|im_end|>\n")[: len(tokens) + len(answer)] == tokens + answer


def test_memory_of_one_salt_is_not_anothers():
    kept, tokenizer = memory()
    odd = letters(tokenizer, "hello world")
    kept.remember(HEAD, kept.encode(HEAD, "a"), odd, "a")
    whole = HEAD + "hello world<|im_end|>"
    assert kept.encode(whole, "b") == kept.encode(whole) == tokenizer.encode(whole, bos=True)
    assert kept.encode(whole, "a") == [*tokenizer.encode(HEAD, bos=True), *odd, *tokenizer.encode("<|im_end|>")]


@pytest.mark.parametrize("fields", [{"add_generation_prompt": False}, {"salt": "a"}, {}])
def test_only_what_the_assistant_said_is_remembered_and_under_its_salt(fields):
    tokenizer = FakeTokenizer()
    builder = PromptBuilder(ChatTemplate(CHATML_TOOLS, bos_text="<s>", eos_text="</s>"), tokenizer)
    asked = [{"role": "user", "content": "hello"}]
    prompt = builder.chat(ChatInput(asked, **fields))
    builder.remember(prompt, letters(tokenizer, "hello world"))
    talk = [*asked, {"role": "assistant", "content": "hello world"}, {"role": "user", "content": "more"}]
    again = builder.chat(ChatInput(talk))
    assert (again.tokens == tokenizer.encode(again.text, bos=True)) == bool(fields)


def test_an_answer_is_not_spliced_where_text_goes_on():
    kept, tokenizer = memory()
    prompt = "<|im_start|>"
    kept.remember(prompt, kept.encode(prompt), tokenizer.encode("wor"))
    assert kept.encode(prompt + "world") == tokenizer.encode(prompt + "world", bos=True)
