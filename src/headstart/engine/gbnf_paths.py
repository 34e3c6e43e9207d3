"""How many paths through a grammar one token has, counted before the library walks them.

For each candidate token the library follows every path that takes its characters, and forgets at each character which
stacks it had already reached: where two alternatives take the same text, each further character doubles the work. So
each place where alternatives meet is tried here for as many characters as tokens have, counting paths with their
multiplicity but following each stack once.

Rules are tried alone, without what follows where they are used. Where one ends with several paths alive (it "leaks"),
the places that use it are tried too.
"""

from __future__ import annotations

from .gbnf_cost import Places
from .gbnf_read import END, Grammar
from .gbnf_walk import Walker

_TAILS = 8  # kept for each rule


def check_paths(grammar: Grammar) -> None:
    """Raise `RequestError` where a token has too many paths, or where finding that out takes too long."""
    places = Places(grammar)
    walker = Walker(places)
    owners = _owners(grammar)
    leaks: set[int] = set()
    todo: list[int] = []

    def leak(rule: int) -> None:
        if rule not in leaks:
            leaks.add(rule)
            todo.append(rule)

    for rule, alternatives in enumerate(grammar.rules):
        if _overlap([places.masks[at] for at in alternatives]) and walker.leaks([(at,) for at in alternatives]):
            leak(rule)
    rank = {rule: i for i, rule in enumerate(places.order)}
    # Those that may turn into others come first: the walk from them covers the others'.
    for stack in sorted(_meetings(places), key=lambda stack: -rank[owners[stack[0]]]):
        if walker.leaks([stack]):
            leak(owners[stack[0]])
    uses = _uses(grammar) if todo else []
    while todo:
        for at in uses[todo.pop()]:
            if walker.leaks([(at,)], whole=True):
                leak(owners[at])


def _overlap(masks: list[int]) -> bool:
    seen = 0
    for mask in masks:
        if seen & mask:
            return True
        seen |= mask
    return False


def _meetings(places: Places) -> list[tuple[int, ...]]:
    """Stacks, bottom first, at which what may be left out or goes on takes a character that what follows takes too."""
    found: list[tuple[int, ...]] = []
    elements, masks = places.grammar.elements, places.masks
    tails = _tails(places)
    for at, e in enumerate(elements):
        if e < END and elements[at + 1] != END:
            rest = masks[at + 1]
            if places.nullable[-2 - e] and places.rule_masks[-2 - e] & rest:
                found.append((at,))
            found += [(at + 1, tail) for mask, tail in tails[-2 - e].items() if mask & rest]
    return found


def _tails(places: Places) -> list[dict[int, int]]:
    """For each rule, elements at which it may end or go on, by what they take: its own and those it ends with."""
    grammar, masks, ends = places.grammar, places.masks, places.ends
    tails: list[dict[int, int]] = [{} for _ in grammar.rules]
    enders: list[list[int]] = [[] for _ in grammar.rules]
    for rule, alternatives in enumerate(grammar.rules):
        for first in alternatives:
            at = first
            while (e := grammar.elements[at]) != END:
                if at > first and ends[at] and masks[at]:
                    _keep(tails[rule], masks[at], at)
                if e < END and ends[at + 1]:
                    enders[-2 - e].append(rule)
                at += 1
    todo = [rule for rule, own in enumerate(tails) if own]
    while todo:
        rule = todo.pop()
        for user in enders[rule]:
            changed = [_keep(tails[user], mask, at) for mask, at in tails[rule].items()]
            if any(changed):
                todo.append(user)
    return tails


def _keep(tails: dict[int, int], mask: int, at: int) -> bool:
    """Of two tails that take the same, the later stands for the longer rest of a repetition."""
    if at <= tails.get(mask, -1) or (mask not in tails and len(tails) >= _TAILS):
        return False
    tails[mask] = at
    return True


def _owners(grammar: Grammar) -> list[int]:
    owners = [0] * len(grammar.elements)
    for rule, alternatives in enumerate(grammar.rules):
        for at in alternatives:
            while True:
                owners[at] = rule
                if grammar.elements[at] == END:
                    break
                at += 1
    return owners


def _uses(grammar: Grammar) -> list[list[int]]:
    uses: list[list[int]] = [[] for _ in grammar.rules]
    for at, e in enumerate(grammar.elements):
        if e < END:
            uses[-2 - e].append(at)
    return uses
