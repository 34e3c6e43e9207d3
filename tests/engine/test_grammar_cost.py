"""Grammars that are cheap to write and would keep the library busy for ever, and those that only look like it."""

from __future__ import annotations

import time

import pytest
from llama_cpp import llama_cpp

from headstart.engine import gbnf_cost, gbnf_read, gbnf_walk
from headstart.engine.gbnf import MAX_CHARS, check_shape
from headstart.engine.sampler import start_grammar
from headstart.engine.vocab import Vocabulary
from headstart.errors import RequestError

SAME = " | ".join(["[a-z ]"] * 50)
UNEQUAL = " | ".join(f"[{'abcde'[i % 5]}-z {chr(65 + i % 26)}]" for i in range(50))

# What the library takes more than 25 s for, and relatives of it.
AMBIGUOUS = {
    "same classes": f"root ::= ({SAME})*",
    "overlapping classes": f"root ::= ({UNEQUAL})*",
    "refused characters": "root ::= ([^x] | [^y] | [^z])*",
    "two are enough for a long token": "root ::= ([^i] | [^j])*",
    "optional items": "root ::= a\na ::= " + "([a-z]? [ a-z]*)? " * 40,
    "optional items, plain": "root ::= " + "[a-z]? " * 100,
    "repeated optional item": "root ::= x{0,900}\nx ::= [a-z ]? ",
    "repeated a few times": "root ::= x{0,30}\nx ::= [a-z ]?",
    "behind a literal": f'root ::= "{"x" * 100}" ({SAME})*',
    "through rules": "root ::= r*\nr ::= " + " | ".join(f"q{i}" for i in range(50))
    + "\n" + "\n".join(f"q{i} ::= [a-z ]" for i in range(50)),
    "between literals": f'root ::= ("x" ({SAME}) "y")*',
    "one after another": "root ::= " + f"({SAME}) " * 12,
    "an end that goes on": 'root ::= (x y z)*\nx ::= "k" [a-z]*\ny ::= [a-z]*\nz ::= [a-z]*',
    "repeated repetition": "root ::= (([a-z]+)+)+",
    "recursion": 'root ::= e\ne ::= "a" | "a" e | "a" e e | "a" e e e',
}  # fmt: skip

TOO_LARGE = {
    "copies of a long literal": f'root ::= "{"x" * 1000}"{{1999}}',
    "copies, their number in disguise": f'root ::= "{"x" * 1000}"{{000000000001999}}',
    "optional copies": f'root ::= "{"x" * 1000}"{{0,1999}}',
    "copies of a large class": f"root ::= [{''.join(map(chr, range(0x4E00, 0x5E00)))}]{{1999}}",
    "a name that all groups repeat": f"root ::= {'n' * 1000}\n{'n' * 1000} ::= " + '"x"? ' * 1000,
    "characters": f'root ::= "x" #{"x" * MAX_CHARS}',
    "rules": "root ::= a\n" + "a ::= [b]\n" * 6000,
    "left recursion is looked for from every rule": 'r900 ::= "y"\n'
    + "\n".join(f"r{i} ::= r{i + 1}" for i in range(899, -1, -1)) + "\nroot ::= r0",
    "long stacks": "root ::= r0\n" + "\n".join(f'r{i} ::= r{i + 1} "x"' for i in range(480))
    + "\nr480 ::= " + " | ".join(f'"{chr(0x4E00 + i)}"' for i in range(2000)),
}  # fmt: skip

CHESS = r"""root    ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move    ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn    ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle  ::= "O-O" "-O"?"""
JSON = r"""root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}"""
JAPANESE = r"""root        ::= jp-char+ ([ \t\n] jp-char+)*
jp-char     ::= hiragana | katakana | punctuation | cjk
hiragana    ::= [ぁ-ゟ]
katakana    ::= [ァ-ヿ]
punctuation ::= [、-〾]
cjk         ::= [一-鿿]"""
C = r"""root ::= (declaration)*
declaration ::= dataType identifier "(" parameter? ")" "{" statement* "}"
dataType ::= "int" ws | "float" ws | "char" ws
identifier ::= [a-zA-Z] [a-zA-Z0-9]*
parameter ::= dataType identifier
statement ::= ( dataType identifier ws "=" ws expression ";" ) | ( identifier ws "=" ws expression ";" ) |
    ( identifier ws "(" argList? ")" ";" ) | ( "return" ws expression ";" ) |
    ( "while" "(" condition ")" "{" statement* "}" ) | ( "//" [^\n]* "\n" ) | ( "/*" ([^*] | ("*" [^/]))* "*/" )
condition ::= expression ("<=" | "<" | "==" | "!=" | ">=" | ">") expression
expression ::= term (("+" | "-") term)*
term ::= factor(("*" | "/") factor)*
factor ::= identifier | [0-9]+ | "-" factor | identifier "(" argList? ")" | "(" ws expression ws ")"
argList ::= expression ("," ws expression)*
ws ::= ([ \t\n]+)"""
USUAL = {
    "json": JSON,
    "chess": CHESS,
    "japanese": JAPANESE,
    "c": C,
    "list": 'root ::= item+\nitem ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"',
    "arithmetic": 'root ::= (expr "=" ws term "\\n")+\nexpr ::= term ([-+*/] term)*\nterm ::= ident | num | "(" ws expr'
    ' ")" ws\nident ::= [a-z] [a-z0-9]* ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*',
    "strings with a common beginning": "root ::= " + " | ".join(f'"a common beginning {i}"' for i in range(2000)),
    "list of strings": 'root ::= "[" e ("," e)* "]"\ne ::= ' + " | ".join(f'"{i}"' for i in range(1000)),
    "long strings": 'root ::= a | b\na ::= [a-z]{0,900} "."\nb ::= [a-z]{0,900} "!"',
    "a long text": "root ::= " + "." * 65_536,
    "many rules": "root ::= " + " ".join(f"r{i}" for i in range(4000)) + "\n"
    + "\n".join(f'r{i} ::= "x{i}" [a-z]{{1,2}}' for i in range(4000)),
    "a literal that looks like a repetition": 'root ::= "{5,2} ::= ((("',
}  # fmt: skip


@pytest.fixture(scope="module")
def vocab(demo_model):
    return Vocabulary(str(demo_model))


def starts(vocab, gbnf):
    """Whether the check and the library take it."""
    check_shape(gbnf)
    grammar = start_grammar(vocab.handle, gbnf)
    llama_cpp.llama_sampler_free(grammar)
    return bool(grammar)


@pytest.mark.parametrize("name", AMBIGUOUS)
@pytest.mark.timeout(10)
def test_a_text_with_too_many_readings_is_refused(name):
    with pytest.raises(RequestError, match=r"too ambiguous|ways at once") as caught:
        check_shape(AMBIGUOUS[name])
    assert caught.value.status == 400


@pytest.mark.parametrize("name", TOO_LARGE)
@pytest.mark.timeout(10)
def test_a_grammar_that_becomes_too_large_is_refused(name):
    with pytest.raises(RequestError, match=r"the grammar (has|begins)"):
        check_shape(TOO_LARGE[name])


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.timeout(10)
def test_usual_and_large_grammars_are_taken(vocab, name):
    assert starts(vocab, USUAL[name])


@pytest.mark.timeout(10)
def test_what_cannot_be_decided_in_time_is_refused(monkeypatch):
    monkeypatch.setattr(gbnf_walk, "MAX_WORK", 10)
    with pytest.raises(RequestError, match="in too many places"):
        check_shape.__wrapped__(CHESS + " ")


def test_work_grows_with_the_grammar_only(monkeypatch):
    """A check that looks at the rest behind every element would need the square."""
    looks = []

    class Counted(list):
        def __getitem__(self, at):
            looks.append(1)
            return super().__getitem__(at)

    counts = []
    for size in (500, 1000):
        looks.clear()
        grammar = gbnf_read.read('root ::= [a]? "b" ' + '"c"? "d" . ' * size)
        grammar.elements = Counted(grammar.elements)
        gbnf_cost.Places(grammar)
        counts.append(len(looks))
    assert counts[1] < 2.1 * counts[0]


def test_the_worker_does_not_check_again(vocab, monkeypatch):
    def never(gbnf):
        raise AssertionError("the front has checked it")

    monkeypatch.setattr("headstart.engine.gbnf.check_paths", never)
    grammar = start_grammar(vocab.handle, 'root ::= "not seen before"')
    assert grammar
    llama_cpp.llama_sampler_free(grammar)


@pytest.mark.timeout(20)
def test_a_request_with_many_choices_starts_each_of_them_soon(vocab):
    gbnf = USUAL["many rules"]
    assert starts(vocab, gbnf)
    began = time.monotonic()
    for _ in range(32):
        llama_cpp.llama_sampler_free(start_grammar(vocab.handle, gbnf))
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("text", ['"a"{,3}', '"a"{ , 3}', '"a"{3,2}', '"a"{3000}', '"a"{', '"a"{x}', '*"a"', '""*'])
def test_repetitions_that_the_library_does_not_take_are_refused(text):
    with pytest.raises(RequestError):
        check_shape(f"root ::= {text}")


def test_a_missing_lower_bound_is_named():
    with pytest.raises(RequestError, match="lower bound is missing"):
        check_shape('root ::= "a"{,3}')


@pytest.mark.parametrize("text", ['"a"{0}', '"a"{2}', '"a"{2,}', '"a"{2,4}', '"a"{ 2 , 4 }', '"a"{0,5000}'])
def test_repetitions_that_the_library_takes_are_taken(vocab, text):
    assert starts(vocab, f"root ::= {text}")
