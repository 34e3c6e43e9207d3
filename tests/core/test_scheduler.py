"""The promises, one scenario each, on the fake engine with its simulated clock."""

from __future__ import annotations

import pytest

from headstart.core.plan import Prefill
from headstart.errors import RequestError
from headstart.events import Evicted, Preempted
from headstart.messages import Failed, Finished, Submit
from headstart.types import Cut, CutReason, FinishReason, MemoryKind, Source
from tests.core.run import Run, words


@pytest.mark.parametrize("kind", [MemoryKind.ATTENTION, MemoryKind.HYBRID, MemoryKind.RECURRENT, MemoryKind.SLIDING])
def test_siblings_that_arrive_together_compute_the_prefix_once(kind: MemoryKind) -> None:
    run = Run(kind)
    head = words(700)
    for i in range(4):
        run.submit(f"s{i}", [*head, i, *words(20, i)])  # they part at a token that nobody marked
    run.finish()
    assert [run.started[f"s{i}"].source for i in range(4)] == [Source.NONE, *[Source.WAIT] * 3]
    assert [run.uncached(f"s{i}") for i in range(4)] == [721, 21, 21, 21]


def test_a_waiter_waits_for_the_last_token_that_it_shares() -> None:
    run = Run(n_batch=512)
    head = words(1500)  # the leader's second chunk ends 28 tokens before its end, so that no short rest remains
    for i in range(4):
        run.submit(f"s{i}", [*head, i, *words(79, i)])
    run.finish()
    assert [run.started[f"s{i}"].cached_tokens for i in range(1, 4)] == [1500] * 3


@pytest.mark.parametrize("parallel", [1, 4])
def test_who_waited_computes_nothing_twice_though_the_leader_is_gone(parallel: int) -> None:
    run = Run(parallel=parallel)
    head = words(700)
    for i in range(4):
        run.submit(f"s{i}", [*head, i, *words(20, i)], max_tokens=1)  # the leader ends with its prompt
    run.finish()
    assert [run.uncached(f"s{i}") for i in range(4)] == [721, 21, 21, 21]


def test_four_sessions_use_one_head_and_their_own_cells() -> None:
    run = Run()
    head = words(700)
    for i in range(4):
        run.submit(f"s{i}", [*head, i, *words(20, i)], max_tokens=10)
    run.finish()
    assert run.engine.used_cells == 700 + 4 * (21 + 9)  # the last sampled token is never computed


def test_a_cancelled_leader_leaves_its_work_to_the_next() -> None:
    run = Run()
    head = words(700)
    run.submit("leader", [*head, 1, 2])
    run.submit("waiter", [*head, 3, 4])
    run.turn(4)
    done = run.reached["leader"]
    assert 0 < done < 700 and "waiter" not in run.started
    run.driver.abort("leader", run.engine.now)
    run.finish()
    assert run.ended["leader"].reason is FinishReason.ABORT
    assert run.started["waiter"].cached_tokens == done
    assert run.engine.computed == 702 + 2 + 2 - 2  # nothing twice; two decodes for three sampled tokens


@pytest.mark.parametrize("reason", [FinishReason.ABORT, FinishReason.STOP])
def test_who_is_stopped_ends_for_the_reason_given(reason: FinishReason) -> None:
    run = Run()
    run.submit("a", words(100), max_tokens=50)
    run.turn(3)
    run.driver.abort("a", run.engine.now, reason)
    run.finish()
    assert run.ended["a"].reason is reason
    assert 0 < len(run.said["a"]) < 50


def test_a_wait_ends_when_the_leader_gets_nowhere() -> None:
    run = Run()
    head = words(700)
    run.submit("leader", [*head, 1])
    run.submit("waiter", [*head, 2])
    run.turn()
    leader = run.driver.scheduler.roster.running[0]
    stuck = leader.target
    for _ in range(3):  # as if the leader were starved: time passes, its position does not change
        run.driver.scheduler._admit(run.engine.now)
        run.engine.now += 31.0
    assert leader.target == stuck
    assert [r.id for r in run.driver.scheduler.roster.running] == ["leader", "waiter"]
    run.finish()
    assert run.said["waiter"]


def test_a_head_outlives_its_sessions_and_goes_last() -> None:
    run = Run(n_ctx=1200, parallel=2)
    head = words(400)
    run.submit("a", [*head, *words(100, 1)], head=400)
    run.finish()
    run.submit("other", words(750, 2))  # takes the room of a's tail, not of its head
    run.finish()
    assert any(isinstance(e, Evicted) and e.cells == 102 for e in run.events)
    run.submit("b", [*head, *words(70, 3)], head=400)
    run.finish()
    assert run.started["b"].cached_tokens == 400


def test_pressure_parks_the_youngest_and_nobody_dies() -> None:
    run = Run(n_ctx=300, parallel=3)
    for i in range(3):
        run.submit(f"s{i}", words(40, i), max_tokens=150)
    run.finish()
    assert any(isinstance(e, Preempted) for e in run.events)
    assert all(len(run.said[f"s{i}"]) == 150 for i in range(3))
    assert all(run.ended[f"s{i}"].reason is FinishReason.LENGTH for i in range(3))
    alone = Run(n_ctx=300)
    alone.submit("s2", words(40, 2), max_tokens=150)
    alone.finish()
    assert run.said["s2"] == alone.said["s2"]


def test_a_long_prompt_keeps_to_small_steps_while_someone_decodes() -> None:
    run = Run(n_batch=512)
    run.submit("talker", words(20), max_tokens=400)
    run.turn(5)
    run.submit("reader", words(2500, 1))
    slow = 0.0
    while "reader" not in run.said:
        before = run.engine.now
        run.turn()
        slow = max(slow, run.engine.now - before)
        assert len(run.said["talker"]) > 0
    smallest = 5 + 33 * 1.0  # ms: a step of 32 prompt tokens and a decode on this engine
    assert slow * 1e3 <= 2 * smallest


def test_short_prompts_pass_long_ones_but_not_for_ever() -> None:
    run = Run(parallel=2)
    run.submit("long", words(2000))
    run.turn(3)
    run.submit("short", words(60, 1))
    run.turn(2)
    assert "short" in run.said and "long" not in run.said
    for i in range(200):
        run.submit(f"s{i}", words(60, i + 2), max_tokens=1)
    while "long" not in run.said:
        run.turn()
    assert len(run.driver.scheduler.roster.queue) > 80


def test_full_queue_and_full_context_are_refused() -> None:
    run = Run(max_queue=1, n_ctx=100, parallel=1)
    run.submit("starts", words(10))
    run.submit("waits", words(10))
    run.submit("b", words(10))
    run.submit("c", words(100))
    run.turn()
    b, c = run.ended["b"], run.ended["c"]
    assert isinstance(b, Failed) and b.status == 429 and b.retry_after is not None and b.retry_after >= 1
    assert isinstance(c, Failed) and c.code == "context_length_exceeded" and "100 tokens" in c.message
    with pytest.raises(RequestError):
        run.driver.scheduler.submit(Submit(id="d", tokens=words(101)), 0.0)


def test_a_retry_of_the_same_body_costs_next_to_nothing() -> None:
    for kind in (MemoryKind.ATTENTION, MemoryKind.HYBRID):
        run = Run(kind)
        prompt = words(300)
        run.submit("first", prompt, cuts=[Cut(299, CutReason.GENERATION)])
        run.submit("double", prompt)
        run.finish()
        run.submit("again", prompt)
        run.finish()
        # Alone on the server, attention recomputes a whole chunk, so that the answer is the same to the bit.
        again = run.driver.scheduler.limits.exact_chunk if kind is MemoryKind.ATTENTION else 1
        assert (run.uncached("first"), run.uncached("double"), run.uncached("again")) == (300, 1, again)
        assert run.said["first"] == run.said["double"] == run.said["again"]


def test_siblings_one_after_the_other_keep_one_head() -> None:
    run = Run()
    head = words(540)
    for i in range(6):
        run.submit(f"s{i}", [*head, i, *words(10, i)], head=540)
        run.finish()
    heads = [h for h in run.driver.scheduler.device.holders.values() if h.why is CutReason.HEAD]
    assert [(h.tokens, h.hits) for h in heads] == [(540, 5)]


def test_a_long_prompt_pauses_at_a_head_with_few_tokens_after_it() -> None:
    run = Run(n_ctx=16_384, n_batch=512)
    head = words(3190)
    for i in range(3):
        run.submit(f"s{i}", [*head, i, *words(10, i)], head=len(head))
        run.finish()
    # Each sibling computes its own tokens alone, in the short chunk that the first one computed them in.
    assert [run.uncached(f"s{i}") for i in range(3)] == [3201, 11, 11]
    assert run.engine.used_cells == 3190 + 3 * (11 + 2)


def test_a_turn_that_goes_on_where_the_last_one_ended_misses_nothing() -> None:
    run = Run()
    prompt = words(300)
    run.submit("first", prompt, max_tokens=5)
    run.finish()
    said = [*prompt, *run.said["first"]]
    run.submit("second", [*said, *words(40, 1)])
    run.finish()
    assert run.started["second"].cached_tokens == 304  # the last sampled token is never computed
    assert (run.started["second"].reason, run.started["second"].parts_at) == ("", None)
    run.submit("other", [*said[:200], *words(140, 2)])
    run.finish()
    assert run.started["other"].parts_at == 200 and "at token 200" in run.started["other"].reason


def test_events_come_in_the_order_in_which_they_came_about() -> None:
    run = Run()
    head = words(300)
    run.submit("a", [*head, 1, 2], max_tokens=1)
    run.finish()
    run.submit("b", [*head, *words(100, 3)], max_tokens=1)
    run.finish()
    told = [type(e).__name__ for e in run.events if getattr(e, "id", None) == "b"]
    assert told == ["Queued", "Attached", "Missed", "FirstToken", "Done"]


def test_bypass_and_salt_share_nothing() -> None:
    run = Run()
    prompt = words(300)
    run.submit("first", prompt)
    run.finish()
    run.submit("bypass", prompt, reuse=False)
    run.submit("foreign", prompt, salt="tenant")
    run.finish()
    assert run.uncached("bypass") == run.uncached("foreign") == 300
    run.submit("tenant", prompt, salt="tenant")
    run.finish()
    assert run.uncached("tenant") == run.driver.scheduler.limits.exact_chunk


def test_explicit_mode_keeps_only_what_was_marked() -> None:
    run = Run()
    run.submit("nothing", words(300), write=False)
    run.finish()
    assert run.holders() == [] and run.engine.used_cells == 0
    run.submit("marked", words(300), write=False, cuts=[Cut(200, CutReason.EXPLICIT, ttl=60.0)])
    run.finish()
    assert run.holders() == [200]
    end = run.ended["marked"]
    assert isinstance(end, Finished) and end.written == 200


def test_prefill_chunks_end_at_cuts_and_leave_no_short_rest() -> None:
    cuts = [Cut(100, CutReason.HEAD), Cut(200, CutReason.GENERATION)]
    for kind, sizes in ((MemoryKind.ATTENTION, [256, 164]), (MemoryKind.HYBRID, [100, 100, 219, 1])):
        run = Run(kind, n_batch=256)
        run.submit("a", words(420), cuts=cuts)
        seen = []
        for _ in range(5):
            plan = run.driver.scheduler.plan(run.engine.now)
            run.driver._perform(plan.actions, run.engine.now)
            if plan.step is None:
                break
            seen += [len(e.tokens) for e in plan.step.entries if isinstance(e, Prefill)]
            run.driver._run(plan.step, plan.rounds, run.engine.now, lambda: True)
        assert seen == sizes


@pytest.mark.parametrize(("more", "times"), [({}, 1), ({"reuse": False}, 0), ({"salt": "other"}, 0)], ids=str)
def test_a_short_prompt_asked_again_alone_takes_the_cells_of_its_earlier_answer(more: dict, times: int) -> None:
    """It is computed anew from its first token, so that nothing is attached to; in other cells it would be rounded
    otherwise. Who asks for no reuse, or under another salt, takes nothing away."""
    run = Run()
    for name, fields in (("first", {}), ("again", more)):
        run.submit(name, words(30), **fields)
        run.finish()
    assert run.uncached("again") == 30
    assert [event.why for event in run.events if isinstance(event, Evicted)].count("asked_again") == times
