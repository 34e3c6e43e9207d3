"""The index of saved states against one that looks at every state, and the work that it does with thousands of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.core.snapshots import KEEPSAKES, Snapshots
from headstart.types import CutReason

SIZE = 100


@dataclass
class Kept:
    id: int
    tokens: tuple[int, ...]
    why: CutReason
    used: float
    salt: str
    hits: int = 0


class Plain:
    """What `Snapshots` promises, written so that one can see that it is right."""

    def __init__(self, room: int) -> None:
        self.room, self.kept, self.next = room, dict[int, Kept](), 1

    def find(self, tokens: tuple[int, ...], limit: int, above: int, salt: str) -> int | None:
        fits = [
            (len(k.tokens), k.id)
            for k in self.kept.values()
            if k.salt == salt and above < len(k.tokens) <= limit and tokens[: len(k.tokens)] == k.tokens
        ]
        return max(fits)[1] if fits else None

    def worth(self, kept: Kept) -> tuple[bool, float]:
        below = self.find(kept.tokens, len(kept.tokens) - 1, 0, kept.salt)
        gap = len(kept.tokens) - (len(self.kept[below].tokens) if below else 0)
        fresher = sum(other.used > kept.used for other in self.kept.values())
        return kept.why in KEEPSAKES, gap * (1 + kept.hits) / (1.0 + fresher)

    def add(self, tokens: tuple[int, ...], why: CutReason, now: float, salt: str) -> list[int]:
        gone = []
        while self.kept and len(self.kept) >= self.room:
            gone.append(min(self.kept.values(), key=self.worth).id)
            del self.kept[gone[-1]]
        self.kept[self.next] = Kept(self.next, tokens, why, now, salt)
        self.next += 1
        return gone


PREFIX = st.lists(st.integers(0, 1), min_size=1, max_size=8).map(tuple)
SALT = st.sampled_from(["", "s"])
MOVES = st.one_of(
    st.tuples(st.just("add"), PREFIX, SALT, st.sampled_from(list(CutReason))),
    st.tuples(st.just("find"), PREFIX, SALT, st.tuples(st.integers(-1, 9), st.integers(0, 8))),
    st.tuples(st.just("touch"), st.integers(0, 30)),
    st.tuples(st.just("discard"), st.integers(0, 30)),
)


def play(moves: list[tuple], room: int) -> tuple[list[int], list[int]]:
    """Tell both the same, compare everything they say, and return what each has in the end. Every other moment is the
    same as the one before."""
    real, plain = Snapshots(room * SIZE, SIZE), Plain(room)
    for i, (move, *rest) in enumerate(moves):
        now = float(i // 2)
        if move == "add":
            tokens, salt, why = rest
            there = plain.find(tokens, len(tokens), len(tokens) - 1, salt)
            assert real.has(np.array(tokens, np.int32), salt) == (there is not None)
            if there is None:
                saved, gone = real.add(np.array(tokens, np.int32), why, now, salt)
                assert gone == plain.add(tokens, why, now, salt)
                assert saved.id == plain.next - 1
        elif move == "find":
            tokens, salt, (limit, above) = rest
            found = real.find(np.array(tokens, np.int32), limit, above, salt)
            assert (found.id if found else None) == plain.find(tokens, limit, above, salt)
        elif plain.kept:
            chosen = sorted(plain.kept)[rest[0] % len(plain.kept)]
            if move == "discard":
                real.discard(chosen)
                del plain.kept[chosen]
            else:
                real.touch(chosen, now)
                plain.kept[chosen].used = now
                plain.kept[chosen].hits += 1
        real.check()
    return sorted(real._saved), sorted(plain.kept)


@given(st.lists(MOVES, max_size=60), st.integers(1, 12))
@settings(max_examples=400, deadline=None)
def test_it_says_what_the_plain_one_says(moves: list[tuple], room: int) -> None:
    ours, theirs = play(moves, room)
    assert ours == theirs


@given(st.lists(MOVES, max_size=40), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_tokens_decide_where_all_hashes_are_equal(moves: list[tuple], room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Snapshots, "_hashes", lambda _self, tokens, _salt: np.zeros(len(tokens), np.uint64))
        ours, theirs = play(moves, room)
    assert ours == theirs


def test_sizes_are_booked_as_they_turn_out() -> None:
    states = Snapshots(10 * SIZE, SIZE)
    saved, _ = states.add(np.arange(5, dtype=np.int32), CutReason.HEAD, 0.0)
    states.weigh(saved.id, 4 * SIZE)
    states.weigh(99, 7)  # it was given up before its bytes were there
    assert (states.bytes_used, states.affordable) == (4 * SIZE, 1)
    states.add(np.arange(6, dtype=np.int32), CutReason.HEAD, 0.0)
    _, gone = states.add(np.arange(7, dtype=np.int32), CutReason.HEAD, 0.0)
    assert len(gone) == 1 and states.bytes_used == 8 * SIZE
    states.check()


def test_a_full_budget_of_small_states_compares_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: with 3,000 states of 30 conversations, a lookup reads the tokens of the one that it finds,
    and a state that goes costs no more than that."""
    states = Snapshots(3000 * SIZE, SIZE)
    head = np.arange(2000, dtype=np.int32)
    compared = 0
    equal = np.array_equal

    def counting(a: np.ndarray, b: np.ndarray) -> bool:
        nonlocal compared
        compared += 1
        return equal(a, b)

    monkeypatch.setattr(np, "array_equal", counting)
    rng = np.random.default_rng(1)
    own = [rng.integers(0, 1000, 5000, dtype=np.int32) for _ in range(30)]
    for i in range(3300):
        tokens = np.concatenate([head, own[i % 30][: 1 + 40 * (i // 30)]])
        states.add(tokens, CutReason.GENERATION, float(i))
    assert len(states) == 3000
    assert compared <= 3 * 3300
    compared = 0
    assert states.find(np.concatenate([head, own[0]]), 10_000) is not None
    assert compared == 1


def test_a_shared_prefix_is_stored_once() -> None:
    states = Snapshots(1000 * SIZE, SIZE)
    head = np.arange(14_000, dtype=np.int32)
    states.add(head, CutReason.HEAD, 0.0)
    for i in range(500):
        states.add(np.append(head, np.int32(i)), CutReason.GENERATION, 1.0)
    stored = sum(saved.tail.nbytes for saved in states._saved.values())
    assert stored == (14_000 + 500) * 4
    assert math.isclose(states.bytes_used, 501 * SIZE)
