"""The whole scheduler on the fake engine: random arrivals, cancels, faults, pressure; books checked at every turn."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.core.plan import Attach, Hold, Save
from headstart.driver import Driver
from headstart.engine.fake import END, FakeEngine, answer
from headstart.messages import Failed, Finished, Sampled, Started, Submit
from headstart.types import Cut, CutReason, FinishReason, MemoryKind
from tests.core.build import make_driver, take_turns

KINDS = [MemoryKind.ATTENTION, MemoryKind.HYBRID, MemoryKind.RECURRENT, MemoryKind.SLIDING]


def expected(prompt: list[int], n: int, end_every: int) -> list[int]:
    """What the fake model says after ``prompt``, computed without any cache."""
    out: list[int] = []
    while len(out) < n:
        token = answer(prompt + out, end_every)
        if token == END:
            break
        out.append(token)
    return out


class World:
    """Random sessions over a few heads, and what each of them must answer."""

    def __init__(self, rng: random.Random, driver: Driver, engine: FakeEngine) -> None:
        self.rng, self.driver, self.engine = rng, driver, engine
        self.heads = [[rng.randrange(1, 999) for _ in range(rng.randrange(5, 400))] for _ in range(3)]
        self.submits: dict[str, Submit] = {}
        self.said: dict[str, list[int]] = {}
        self.started: dict[str, Started] = {}
        self.ended: dict[str, Finished | Failed] = {}
        self.aborted: set[str] = set()

    def arrive(self) -> None:
        rng = self.rng
        head = rng.choice(self.heads)
        prompt = head[: rng.choice([len(head), rng.randrange(1, len(head))])]
        prompt = prompt + [rng.randrange(1, 999) for _ in range(rng.randrange(1, 80))]
        finished = [s for i, s in self.submits.items() if isinstance(self.ended.get(i), Finished)]
        if finished and rng.random() < 0.4:  # a next turn of an earlier session
            earlier = rng.choice(finished)
            prompt = earlier.tokens + self.said[earlier.id] + prompt[-10:]
        prompt = prompt[: self.engine.n_ctx - 1]
        cuts = [Cut(min(len(head), len(prompt) - 1), CutReason.HEAD)] if len(prompt) > 1 else []
        cuts += [Cut(p, CutReason.GENERATION) for p in {rng.randrange(len(prompt)) for _ in range(2)} if p]
        submit = Submit(
            id=f"r{len(self.submits)}",
            tokens=prompt,
            cuts=cuts,
            max_tokens=rng.choice([None, 1, rng.randrange(1, 60)]),
            reuse=rng.random() < 0.9,
            write=rng.random() < 0.9,
            salt=rng.choice(["", "", "", "other"]),
        )
        self.submits[submit.id] = submit
        self.said[submit.id] = []
        self.driver.submit(submit, self.engine.now)

    def cancel(self) -> None:
        live = [i for i in self.submits if i not in self.ended]
        if live:
            self.aborted.add(chosen := self.rng.choice(live))
            self.driver.abort(chosen, self.engine.now)

    def turn(self) -> bool:
        busy = self.driver.turn(self.engine.now, lambda: self.rng.random() < 0.3)
        self.engine.now += 0.001
        self.driver.scheduler.check()
        assert self.driver.scheduler.device.used_cells == self.engine.used_cells
        self.read()
        return busy

    def read(self) -> None:
        replies, _ = self.driver.take()
        for reply in replies:
            if isinstance(reply, Sampled):
                assert reply.id not in self.ended
                self.said[reply.id].append(reply.token)
            elif isinstance(reply, Started):
                assert reply.id not in self.started, "started twice"
                self.started[reply.id] = reply
            elif isinstance(reply, Finished | Failed):
                assert reply.id not in self.ended, "ended twice"
                self.ended[reply.id] = reply

    def assert_answered(self, submit: Submit) -> None:
        """Asserts that the request got what the model says after exactly its prompt, and true figures with it."""
        end, said = self.ended[submit.id], self.said[submit.id]
        limit = self.engine.n_ctx - len(submit.tokens)
        n = min(limit, submit.max_tokens if submit.max_tokens is not None else limit)
        if isinstance(end, Failed):
            assert end.status == 429
            assert said == []
            return
        truth = expected(submit.tokens, n, self.engine.end_every)
        if end.reason is FinishReason.ABORT:
            assert submit.id in self.aborted
            assert said == truth[: len(said)]
            return
        assert said == truth
        t = end.timings
        assert t.cache_n + t.prompt_n == len(submit.tokens)
        assert t.cache_n == self.started[submit.id].cached_tokens < len(submit.tokens)
        assert end.reason is (FinishReason.LENGTH if len(truth) == n else FinishReason.STOP)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), n_ctx=st.sampled_from([300, 1000, 4000]), slots=st.integers(1, 5))
def test_random_sessions_get_the_right_answers(kind: MemoryKind, seed: int, n_ctx: int, slots: int) -> None:
    rng = random.Random(seed)
    engine, driver = make_driver(
        kind, n_ctx=n_ctx, parallel=slots, extra_seqs=rng.randrange(1, 7), max_queue=20, slack=rng.choice([0, 5, 60])
    )
    world = World(rng, driver, engine)
    for _ in range(300):
        chance = rng.random()
        if chance < 0.15:
            world.arrive()
        elif chance < 0.18:
            world.cancel()
        engine.refuse = {Attach, Hold, Save} if rng.random() < 0.03 else set()
        world.turn()
    engine.refuse = set()
    take_turns(driver, world.turn)
    assert world.ended.keys() == world.submits.keys()
    for submit in world.submits.values():
        world.assert_answered(submit)
    assert not driver.scheduler.device.running


def test_nothing_that_a_live_holder_had_is_computed_again() -> None:
    engine, driver = make_driver(MemoryKind.ATTENTION, n_ctx=4000, parallel=4, extra_seqs=12, end_every=0)
    head = list(range(1, 501))
    for i in range(8):
        driver.submit(Submit(id=f"r{i}", tokens=[*head, 600 + i, 700], max_tokens=5), engine.now)
    while driver.turn(engine.now):
        driver.scheduler.check()
    replies, _ = driver.take()
    started = [r for r in replies if isinstance(r, Started)]
    assert [s.cached_tokens for s in started] == [0] + [500] * 7
    assert [s.source for s in started[1:4]] == ["wait"] * 3
    decoded = 8 * 4  # the last of five sampled tokens is never computed
    assert engine.computed == 500 + 8 * 2 + decoded


@pytest.mark.parametrize(("slack", "cached"), [(5, 97), (1, 0)])
def test_a_prompt_resumes_below_a_windows_end_only_where_the_window_is_whole(slack: int, cached: int) -> None:
    engine, driver = make_driver(MemoryKind.SLIDING, slack=slack)
    prompt = list(range(1, 101))
    for i, tokens in enumerate((prompt, [*prompt[:97], 700, 701])):
        driver.submit(Submit(id=f"r{i}", tokens=tokens, max_tokens=1), engine.now)
        take_turns(driver, lambda: driver.turn(engine.now))
    replies, _ = driver.take()
    assert [r.cached_tokens for r in replies if isinstance(r, Started)] == [0, cached]
