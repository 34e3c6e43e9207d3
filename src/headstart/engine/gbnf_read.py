"""GBNF read into the elements that the library makes of it, with sizes bounded while they grow.

The library's parser recurses for each group and copies what is repeated, so a short text can become a huge grammar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .gbnf_text import Ranges, characters, ranges_of, refuse, times_of

MAX_DEPTH = 64  # nested groups; the library's parser recurses once for each
MAX_RULES = 5_000
MAX_NAME = 128  # the library repeats a rule's name for each group and repetition in it
MAX_ELEMENTS = 100_000  # with all copies

END = -1  # element that ends an alternative

_TOKENS = re.compile(
    r"""(?P<skip>(?:\s|\#[^\n\r]*)+) | (?P<rule>[A-Za-z0-9-]+(?=[ \t]*::=))[ \t]*::= | (?P<ref>[A-Za-z0-9-]+)
      | "(?P<text>(?:[^"\\]|\\.)*)" | \[(?P<chars>(?:[^\]\\]|\\.)*)\] | (?P<token>!?<[^>]*>) | (?P<any>\.)
      | (?P<open>\() | (?P<close>\)) | (?P<alt>\|)
      | (?P<times>[*+?]|\{\s*(?P<low>\d+)\s*(?P<comma>,\s*(?P<high>\d*)\s*)?\}) | (?P<nolow>\{\s*,[^}]*\})""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class Grammar:
    """Rules by number, 0 first; each is a list of alternatives, each of those the number of its first element.

    ``elements`` holds the alternatives one after another: `END`, a rule as ``-2 - number``, a terminal as its number.
    ``terminals`` says of each terminal whether its ranges are what it refuses, and the ranges.
    """

    names: dict[str, int] = field(default_factory=dict)
    rules: list[list[int]] = field(default_factory=list)
    elements: list[int] = field(default_factory=list)
    terminals: list[tuple[bool, Ranges]] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """A rule or group that is being read."""

    rule: int
    alternatives: list[list[int]] = field(default_factory=lambda: [[]])
    unit: int = 0  # where in the last alternative that begins which a repetition would repeat


def read(gbnf: str) -> Grammar:
    """Raises `RequestError` where the text is no grammar or grows too large."""
    return _Reader().run(gbnf)


class _Reader:
    def __init__(self) -> None:
        self._made = Grammar()
        self._terminals: dict[tuple[bool, Ranges], int] = {}
        self._sizes: list[int] = []  # elements that the library makes of each terminal
        self._open: list[_Open] = []
        self._bodies: dict[int, list[list[int]]] = {}
        self._copied = 0

    def run(self, gbnf: str) -> Grammar:
        at = named = 0
        while at < len(gbnf):
            found = _TOKENS.match(gbnf, at)
            if found is None:
                refuse(f"does not parse at character {at}: {gbnf[at : at + 20]!r}")
            kind, at = str(found.lastgroup), found.end()
            if kind == "skip":
                continue
            if kind == "rule":
                named += 1
                if named > MAX_RULES:
                    refuse(f"has more than {MAX_RULES} rules")
                self._finish()
                self._open = [_Open(self._number(found["rule"]))]
            elif not self._open:
                refuse(f"does not parse before character {at}")
            else:
                self._take(kind, found)
        self._finish()
        return self._laid_out()

    def _take(self, kind: str, found: re.Match[str]) -> None:
        top = self._open[-1]
        if kind == "alt":
            top.alternatives.append([])
            top.unit = 0
        elif kind == "open":
            if len(self._open) > MAX_DEPTH:
                refuse(f"nests groups deeper than {MAX_DEPTH}")
            self._open.append(_Open(self._new_rule()))
        elif kind == "close":
            if len(self._open) == 1:
                refuse(f"closes a group at character {found.start()} that it did not open")
            self._finish(group=True)
            self._add([-2 - top.rule])
        elif kind == "nolow":
            refuse(f"repeats {found[0][:20]}: the lower bound is missing; write {{0,...}}")
        elif kind == "times":
            self._repeat(top, found)
        elif kind == "ref":
            self._add([-2 - self._number(found["ref"])])
        else:
            self._add(self._terminals_of(kind, found))

    def _add(self, elements: list[int]) -> None:
        top = self._open[-1]
        sequence = top.alternatives[-1]
        top.unit = len(sequence)
        self._grow(self._size(elements))
        sequence += elements

    def _size(self, elements: list[int]) -> int:
        return sum(self._sizes[e] if e >= 0 else 1 for e in elements)

    def _grow(self, count: int) -> None:
        self._copied += count
        if self._copied > MAX_ELEMENTS:
            refuse(f"has more than {MAX_ELEMENTS} elements")

    def _finish(self, group: bool = False) -> None:
        """End the innermost group, or the rule where no group may be open."""
        if not self._open:
            return
        if not group and len(self._open) > 1:
            refuse("leaves a group open")
        done = self._open.pop()
        self._grow(len(done.alternatives))
        self._bodies[done.rule] = done.alternatives  # a rule that comes twice is the later one

    def _number(self, name: str) -> int:
        if len(name) > MAX_NAME:
            refuse(f"has a rule whose name is longer than {MAX_NAME} characters")
        if name not in self._made.names:
            self._made.names[name] = self._new_rule()
        return self._made.names[name]

    def _new_rule(self) -> int:
        self._made.rules.append([])
        return len(self._made.rules) - 1

    def _repeat(self, top: _Open, found: re.Match[str]) -> None:
        """As the library does: copies for those that must be there, a rule for each that may."""
        sequence = top.alternatives[-1]
        unit = sequence[top.unit :]
        if not unit:
            refuse(f"repeats nothing at character {found.start()}")
        (low, high), size = times_of(found), self._size(unit)
        self._grow(size * max(low - 1, 0))
        if low == 0:
            del sequence[top.unit :]
        sequence += unit * (low - 1)
        inner: int | None = None
        for _ in range(1 if high is None else high - low):
            self._grow(size + 3)
            rule = self._new_rule()
            rest = rule if high is None else inner
            self._bodies[rule] = [unit if rest is None else [*unit, -2 - rest], []]
            inner = rule
        if inner is not None:
            sequence.append(-2 - inner)

    def _terminals_of(self, kind: str, found: re.Match[str]) -> list[int]:
        if kind == "token":
            return [self._terminal(False, ())]
        if kind == "any":
            return [self._terminal(True, ())]
        if kind == "text":
            codes = characters(found["text"])
            known = {c: self._terminal(False, ((c, c),)) for c in set(codes)}
            return [known[c] for c in codes]
        refused = found["chars"].startswith("^")
        ranges = ranges_of(found["chars"][refused:])
        return [self._terminal(refused, ranges)] if ranges else []

    def _terminal(self, refused: bool, ranges: Ranges) -> int:
        key = (refused, ranges)
        if key not in self._terminals:
            self._terminals[key] = len(self._made.terminals)
            self._made.terminals.append(key)
            self._sizes.append(sum(1 + (low < high) for low, high in ranges) or 1)
        return self._terminals[key]

    def _laid_out(self) -> Grammar:
        made = self._made
        made.names.setdefault("root", -1)
        missing = next((name for name, number in made.names.items() if number not in self._bodies), None)
        if missing is not None:
            refuse(f"has no rule {missing[:40]!r}")
        for number, alternatives in self._bodies.items():
            for sequence in alternatives:
                made.rules[number].append(len(made.elements))
                made.elements += sequence
                made.elements.append(END)
        return made
