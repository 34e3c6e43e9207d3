"""Follow one text through a grammar as the library would, counting what the library would do over again."""

from __future__ import annotations

from .gbnf_cost import Places
from .gbnf_read import END
from .gbnf_text import refuse

TOKEN = 24  # characters; few tokens are longer
MAX_WEIGHT = 4_096  # paths of one text, a common one's weighed by `_WIDE`
SMALL_LEAK = 64  # paths of a text in which the rule comes again and again that need no closer look
MAX_WORK = 250_000  # steps of all walks together: some 0.2 s
_WIDE = 16
_NARROW = 4  # characters: a text that needs one of so few somewhere is in few tokens
_ASCII = (1 << 128) - 1
_FEW = 12  # characters of a text that is in few tokens, and of one in which a rule comes again and again
_BEAM = 4  # texts followed at once: those with the heaviest paths
_CELLS = 64  # sets of characters told apart at one place

_BOTTOM = 0  # the stack on which nothing is left: what follows the rule is unknown

_State = dict[int, int]  # stacks and the number of paths to each


class Walker:
    """Stacks are numbers here, each an element on top of another stack."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._stacks: list[tuple[int, int]] = [(-1, -1)]  # the last element of all is an end
        self._numbers: dict[tuple[int, int], int] = {}
        self._next: dict[int, tuple[list[tuple[int, int]], bool, set[int]]] = {}
        self._covered: set[tuple[int, bool]] = set()
        self._work = 0

    def leaks(self, stacks: list[tuple[int, ...]], whole: bool = False) -> bool:
        """Whether texts from ``stacks`` (each bottom first) reach the bottom while too many paths are alive.

        Texts with a single path are followed only if ``whole``. Raises `RequestError` where there are too many paths.
        """
        start: _State = {}
        for stack in stacks:
            number = _BOTTOM
            for at in stack:
                number = self._push(number, at)
            start[number] = 1
        if all((stack, whole) in self._covered for stack in start):
            return False
        leaks = self._follow(start, whole)
        if not leaks:  # nor does anything that the first step came across
            self._covered.update((stack, whole) for number in start for stack in self._ways(number)[2])
        return leaks

    def _follow(self, start: _State, whole: bool) -> bool:
        states, leaks = [(start, True)], False
        for length in range(1, TOKEN + 1):
            best: dict[tuple[frozenset[tuple[int, int]], bool], int] = {}
            after: dict[tuple[frozenset[tuple[int, int]], bool], _State] = {}
            for state, wide in states:
                for cell, next_ in self._step(state):
                    alive = sum(next_.values())
                    common = wide and (cell & _ASCII).bit_count() > _NARROW
                    if (alive == 1 and not whole) or (length > _FEW and not common):
                        continue
                    weight = alive * (_WIDE if common else 1)
                    if weight > MAX_WEIGHT:
                        refuse(f"is too ambiguous: the same text can be read in {alive} ways")
                    if not leaks and alive ** (_FEW / length) > SMALL_LEAK:
                        leaks = any(self._leaves(stack) for stack in next_)
                    key = frozenset(next_.items()), common
                    best[key], after[key] = weight, next_
            keys = sorted(best, key=best.__getitem__, reverse=True)[:_BEAM]
            states = [(after[key], key[1]) for key in keys]
            if not states:
                break
        return leaks

    def _step(self, state: _State) -> list[tuple[int, _State]]:
        """For each set of characters that may come next: the paths that take it."""
        taking: dict[int, _State] = {}
        elements, terminals = self._places.grammar.elements, self._places.terminals
        for stack, paths in state.items():
            at, below = self._stacks[stack]
            e = elements[at]
            for mask, rest in [(terminals[e], self._push(below, at + 1))] if e >= 0 else self._ways(stack)[0]:
                into = taking.setdefault(mask, {})
                into[rest] = into.get(rest, 0) + paths
        sizes = {mask: sum(into.values()) for mask, into in taking.items()}
        cells = _cells(sorted(sizes, key=sizes.__getitem__, reverse=True)[:_CELLS])
        self._count(len(cells) * len(taking))
        found = []
        for cell in cells:
            next_: _State = {}
            for mask, into in taking.items():
                if mask & cell:
                    self._count(len(into))
                    for rest, paths in into.items():
                        next_[rest] = next_.get(rest, 0) + paths
            found.append((cell, next_))
        return found

    def _leaves(self, stack: int) -> bool:
        return stack == _BOTTOM or (
            self._places.grammar.elements[self._stacks[stack][0]] < END and self._ways(stack)[1]
        )

    def _ways(self, stack: int) -> tuple[list[tuple[int, int]], bool, set[int]]:
        """What the stack's next characters may be, each with the stack behind it; and whether it may be left;
        and all stacks that it may turn into first."""
        known = self._next.get(stack)
        if known is None:
            known = self._next[stack] = self._advance(stack)
        return known

    def _advance(self, stack: int) -> tuple[list[tuple[int, int]], bool, set[int]]:
        grammar, terminals = self._places.grammar, self._places.terminals
        found: list[tuple[int, int]] = []
        seen: set[int] = set()
        todo, leaves = [stack], False
        while todo:
            number = todo.pop()
            if number in seen:
                continue
            seen.add(number)
            self._count(1)
            if number == _BOTTOM:
                leaves = True
                continue
            at, below = self._stacks[number]
            e = grammar.elements[at]
            rest = self._push(below, at + 1)
            if e >= 0:
                found.append((terminals[e], rest))
            else:
                todo += [self._push(rest, inner) for inner in grammar.rules[-2 - e]]
        return found, leaves, seen

    def _push(self, below: int, at: int) -> int:
        """A stack that ends in nothing but an end is the one below."""
        if self._places.grammar.elements[at] == END:
            return below
        key = (at, below)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._stacks)
            self._stacks.append(key)
        return number

    def _count(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            refuse("offers the same text in too many places")


def _cells(masks: list[int]) -> list[int]:
    """Disjoint sets of characters that no mask tells apart, at most `_CELLS` of them."""
    cells: list[int] = []
    for mask in masks:
        split = []
        for cell in cells:
            split += [part for part in (cell & mask, cell & ~mask) if part]
            mask &= ~cell
        cells = [*split, mask] if mask else split
        if len(cells) >= _CELLS:
            break
    return cells
