"""What a grammar offers at each of its places, worked out before the library tries it.

The library keeps one stack for each way in which a text may go on, compares every new one with all others, and looks
for left recursion along every path, again and again. So a small grammar can keep it busy for ever.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from .gbnf_read import END, Grammar
from .gbnf_text import Ranges, refuse

MAX_WAYS = 2_500  # the library compares every stack with all others, and each with the whole vocabulary
MAX_LEFT = 500  # rules inside each other before the first character: every stack gets as long
MAX_LONG = 50_000  # the two together: elements of all stacks
MAX_VISITS = 200_000  # rules that the library visits, looking for left recursion
_ATOMS = 1_024


class Places:
    """For each element of a grammar: what may come first from there to the end of its alternative.

    ``masks`` hold the characters, one bit for each set that no terminal tells apart (where there are too many sets,
    neighbours share one, so masks may say more than is true, never less). Raises `RequestError` beyond the bounds.
    Everything takes time proportional to the elements.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.terminals = _masks(grammar.terminals)
        n = len(grammar.rules)
        self.nullable = _nullable(grammar)
        self.rule_masks = [0] * n
        self._ways, self._left, visits = [0] * n, [0] * n, [0] * n
        self.order, starts = _leaves_first(grammar, self.nullable)  # rules after all that they can start with
        for rule in self.order:
            self._meet(rule)
            visits[rule] = 1 + sum(visits[r] for r in starts[rule])
        _check_visits(starts, visits)
        self.masks = [0] * len(grammar.elements)
        self.ends = [False] * len(grammar.elements)  # nothing has to come any more
        for alternatives in grammar.rules:
            for first in alternatives:
                self._fill(first)

    def _meet(self, rule: int) -> None:
        """Rules that this one may start with are known."""
        elements, ways, mask, left = self.grammar.elements, 0, 0, 0
        for at in self.grammar.rules[rule]:
            while (e := elements[at]) != END:
                ways += 1
                if e >= 0:
                    mask |= self.terminals[e]
                    break
                inner = -2 - e
                ways += self._ways[inner]
                mask |= self.rule_masks[inner]
                left = max(left, self._left[inner] + (elements[at + 1] != END))
                if ways > MAX_WAYS or not self.nullable[inner]:
                    break
                at += 1
        if ways > MAX_WAYS:
            refuse(f"can go on in more than {MAX_WAYS} ways at once")
        if left > MAX_LEFT or left * ways > MAX_LONG:
            refuse("begins with too many rules inside each other")
        self._ways[rule], self.rule_masks[rule], self._left[rule] = ways, mask, left

    def _fill(self, first: int) -> None:
        elements, last = self.grammar.elements, first
        while elements[last] != END:
            last += 1
        mask, ways, ends = 0, 0, True
        self.ends[last] = True
        for at in range(last - 1, first - 1, -1):
            e = elements[at]
            if e >= 0:
                mask, ways, ends = self.terminals[e], 1, False
            elif self.nullable[-2 - e]:
                mask |= self.rule_masks[-2 - e]
                ways += 1 + self._ways[-2 - e]
            else:
                mask, ways, ends = self.rule_masks[-2 - e], 1 + self._ways[-2 - e], False
            if ways > MAX_WAYS:
                refuse(f"can go on in more than {MAX_WAYS} ways at once")
            self.masks[at], self.ends[at] = mask, ends


def _masks(terminals: list[tuple[bool, Ranges]]) -> list[int]:
    edges = {c for _, ranges in terminals for low, high in ranges for c in (low, high + 1)}
    bounds = sorted({0, *range(128), *(c for c in edges if c >= 128)})
    if len(bounds) > _ATOMS:
        bounds = bounds[:128] + bounds[128 :: 1 + len(bounds) // (_ATOMS - 128)]
    everything = (1 << len(bounds)) - 1
    out = []
    for refused, ranges in terminals:
        mask = 0
        for low, high in ranges:
            if refused:  # of a set that is only partly refused, the rest is taken
                first, last = bisect_left(bounds, low), bisect_right(bounds, high + 1) - 2
            else:
                first, last = bisect_right(bounds, low) - 1, bisect_right(bounds, high) - 1
            if last >= first:
                mask |= (1 << last + 1) - (1 << first)
        out.append(everything & ~mask if refused else mask)
    return out


def _nullable(grammar: Grammar) -> list[bool]:
    """Which rules may stand for nothing; each element is looked at twice, however rules use one another."""
    elements = grammar.elements
    owners: list[int] = []
    missing: list[int] = []  # for each alternative, elements that are not known to be nullable
    uses: list[list[int]] = [[] for _ in grammar.rules]
    out, todo = [False] * len(grammar.rules), []
    for rule, alternatives in enumerate(grammar.rules):
        for at in alternatives:
            begin = at
            while (e := elements[at]) != END:
                if e < 0:
                    uses[-2 - e].append(len(owners))
                at += 1
            owners.append(rule)
            missing.append(at - begin)
            if at == begin:
                todo.append(rule)
    while todo:
        rule = todo.pop()
        if out[rule]:
            continue
        out[rule] = True
        for number in uses[rule]:
            missing[number] -= 1
            if not missing[number]:
                todo.append(owners[number])
    return out


def _leaves_first(grammar: Grammar, nullable: list[bool]) -> tuple[list[int], list[list[int]]]:
    """Rules after all that they can start with, and what those are. Raises `RequestError` on left recursion."""
    starts = [_starts(grammar, nullable, rule) for rule in range(len(grammar.rules))]
    order: list[int] = []
    done: dict[int, bool] = {}  # False: begun
    for root in range(len(starts)):
        path = [] if root in done else [(root, iter(starts[root]))]
        done.setdefault(root, False)
        while path:
            rule, rest = path[-1]
            after = next(rest, None)
            if after is None:
                done[rule] = True
                order.append(rule)
                path.pop()
            elif done.get(after) is False:
                refuse("does not parse: left recursion")
            elif after not in done:
                done[after] = False
                path.append((after, iter(starts[after])))
    return order, starts


def _starts(grammar: Grammar, nullable: list[bool], rule: int) -> list[int]:
    """Rules that may stand first in the rule, as often as they do.

    Not the rule itself at its end, behind what may be nothing: so a repetition of that reads, and it adds no stack.
    """
    found = []
    for first in grammar.rules[rule]:
        at = first
        while (e := grammar.elements[at]) < END:
            if at == first or -2 - e != rule or grammar.elements[at + 1] != END:
                found.append(-2 - e)
            if not nullable[-2 - e]:
                break
            at += 1
    return found


def _check_visits(starts: list[list[int]], visits: list[int]) -> None:
    """The library remembers what it visited only between the rules that it begins with."""
    total, seen = 0, [False] * len(starts)
    for root in range(len(starts)):
        if seen[root]:
            continue
        total += visits[root]
        if total > MAX_VISITS:
            refuse("begins with too many rules inside each other")
        todo = [root]
        while todo:
            rule = todo.pop()
            if not seen[rule]:
                seen[rule] = True
                todo += starts[rule]
