"""How many ways a grammar offers the library at once, worked out before the library tries them all.

The library keeps one stack for each way in which a text may go on, compares every new one with all others, and looks
for left recursion along every path. So a small grammar can keep it busy for ever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..errors import RequestError

MAX_WAYS = 4_000

_TOKENS = re.compile(
    r"""(?P<skip>(?:\s|\#[^\n]*)+) | (?P<rule>[\w-]+(?=[ \t]*::=))[ \t]*::= | (?P<ref>[\w-]+)
      | (?P<empty>""|\[\]) | (?P<char>"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|!?<[^>]*>|\.) | (?P<open>\()
      | (?P<close>\)) | (?P<alt>\|) | (?P<times>[*+?]|\{\s*\d+\s*(?:,\s*\d*\s*)?\})""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class _Item:
    """What a sequence consists of: a terminal (``rule`` None) or a rule, taken ``low`` times and more."""

    rule: str | None
    low: int = 1
    steps: int = 0  # rules that the library makes for the optional copies


_Sequence = list[_Item]


@dataclass(slots=True)
class _Rule:
    alternatives: list[_Sequence] = field(default_factory=lambda: [[]])
    nullable: bool = False
    ways: int = 0  # 0: not known yet


def check_cost(gbnf: str) -> None:
    """Raise `RequestError` where at some place of an answer the grammar offers more than `MAX_WAYS` ways on."""
    rules = _read(gbnf)
    _find_nullable(rules)
    for name in _leaves_first(rules):
        rule = rules[name]
        rule.ways = sum(_ways(rules, s) for s in rule.alternatives)
        _bound(rule.ways)
    for rule in rules.values():
        for sequence in rule.alternatives:
            # Behind a terminal a sequence goes on with its rest alone.
            for i, item in enumerate(sequence):
                if item.rule is None:
                    _bound(_ways(rules, sequence[i + 1 :]))


def _bound(ways: int) -> None:
    if ways > MAX_WAYS:
        raise RequestError(f"the grammar can go on in more than {MAX_WAYS} ways at once", param="grammar")


def _read(gbnf: str) -> dict[str, _Rule]:
    """The rules by name; groups get names that no rule can have."""
    rules: dict[str, _Rule] = {}
    open_: list[_Rule] = []
    at = 0
    while at < len(gbnf):
        found = _TOKENS.match(gbnf, at)
        if found is None:
            raise RequestError(f"the grammar does not parse at character {at}: {gbnf[at : at + 20]!r}", param="grammar")
        kind, at = found.lastgroup, found.end()
        if kind == "rule":
            open_ = [rules.setdefault(found["rule"], _Rule())]
            if open_[0].alternatives != [[]]:
                open_[0].alternatives.append([])
        elif kind == "skip":
            continue
        elif not open_ or (kind == "close" and len(open_) == 1):
            raise RequestError(f"the grammar does not parse before character {at}", param="grammar")
        elif kind == "close":
            open_.pop()
        else:
            _add(rules, open_, str(kind), found[0])
    return rules


def _add(rules: dict[str, _Rule], open_: list[_Rule], kind: str, text: str) -> None:
    sequence = open_[-1].alternatives[-1]
    if kind == "alt":
        open_[-1].alternatives.append([])
    elif kind == "open":
        name = f"({len(rules)}"
        sequence.append(_Item(name))
        open_.append(rules.setdefault(name, _Rule()))
    elif kind == "times":
        if sequence:
            sequence[-1].low, sequence[-1].steps = _times(text)
    elif kind != "empty":
        sequence.append(_Item(text if kind == "ref" else None))


def _times(text: str) -> tuple[int, int]:
    """Copies that must be there, and rules made for those that may."""
    if text in "*+?":
        return (1 if text == "+" else 0), 1
    low, comma, high = (part.strip() for part in text[1:-1].partition(","))
    if not comma:
        return int(low[:9]), 0
    return int(low[:9]), max(0, int(high[:9]) - int(low[:9])) if high else 1


def _nullable(rules: dict[str, _Rule], item: _Item) -> bool:
    return item.low == 0 or (item.rule in rules and rules[item.rule].nullable)


def _find_nullable(rules: dict[str, _Rule]) -> None:
    """Mark the rules that may stand for nothing; each item is looked at once, however rules use one another."""
    missing: list[int] = []  # for each sequence, items that are not known to be nullable
    owners: list[str] = []
    uses: dict[str, list[int]] = {}
    todo: list[str] = []

    def mark(name: str) -> None:
        if not rules[name].nullable:
            rules[name].nullable = True
            todo.append(name)

    for owner, rule in rules.items():
        for sequence in rule.alternatives:
            needed = [item.rule for item in sequence if item.low]
            for name in needed:
                uses.setdefault(name or "", []).append(len(missing))
            missing.append(len(needed))
            owners.append(owner)
            if not needed:
                mark(owner)
    while todo:
        for number in uses.get(todo.pop(), ()):
            missing[number] -= 1
            if not missing[number]:
                mark(owners[number])


def _leaves_first(rules: dict[str, _Rule]) -> list[str]:
    """Rules after all that they can start with. Raises `RequestError` on left recursion, hidden ones included."""
    order: list[str] = []
    state: dict[str, bool] = {}  # False: begun, True: done
    for root in rules:
        path = [] if root in state else [(root, iter(_starts(rules, root)))]
        if path:
            state[root] = False
        while path:
            name, rest = path[-1]
            after = next(rest, None)
            if after is None:
                state[name] = True
                order.append(name)
                path.pop()
            elif state.get(after) is False:
                raise RequestError("the grammar does not parse: left recursion", param="grammar")
            elif after not in state:
                state[after] = False
                path.append((after, iter(_starts(rules, after))))
    return order


def _starts(rules: dict[str, _Rule], name: str) -> list[str]:
    """Rules that may stand first in the rule."""
    found: dict[str, None] = {}
    for sequence in rules[name].alternatives:
        for item in sequence:
            if item.rule in rules:
                found[str(item.rule)] = None
            if not _nullable(rules, item):
                break
    return list(found)


def _ways(rules: dict[str, _Rule], sequence: _Sequence) -> int:
    """Stacks that the library makes of ``sequence``, dead ends included."""
    ways = 0
    for item in sequence:
        inner = rules.get(item.rule or "")
        copies = item.low + item.steps if inner is not None and inner.nullable else 1
        ways += copies * (1 if inner is None else inner.ways + 1) + (item.steps > 0)
        if ways > MAX_WAYS or not _nullable(rules, item):
            break
    return ways
