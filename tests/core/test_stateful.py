"""What users of hybrid models get, one scenario for each sentence of it."""

from __future__ import annotations

import pytest

from headstart.core.plan import Attach
from headstart.messages import Sampling
from headstart.types import Cut, CutReason, MemoryKind, Source
from tests.core.run import Run, words

STATEFUL = [MemoryKind.HYBRID, MemoryKind.RECURRENT]
HEAD = 3000


def chat_cuts(head: int, prompt: int) -> list[Cut]:
    """The cuts that the front asks for: some distances before the head's end, the head, the generation prompt."""
    geometric = [Cut(p, CutReason.GEOMETRIC) for p in (head - 4096, head - 512, head - 64) if p > 0]
    return [*geometric, Cut(head, CutReason.HEAD), Cut(prompt - 3, CutReason.GENERATION)]


def ask(run: Run, name: str, prompt: list[int], head: int = HEAD, max_tokens: int = 20) -> None:
    run.submit(name, prompt, cuts=chat_cuts(head, len(prompt)), max_tokens=max_tokens)


def big(kind: MemoryKind = MemoryKind.HYBRID, **more: int) -> Run:
    return Run(kind, **{"n_ctx": 60_000, "n_batch": 512, "saved_states": 40, **more})


@pytest.mark.parametrize("kind", [*STATEFUL, MemoryKind.SLIDING])
def test_a_sibling_attaches_at_the_head_while_the_first_session_runs(kind: MemoryKind) -> None:
    run = big(kind)
    head = words(HEAD)
    ask(run, "first", [*head, *words(200, 1)], max_tokens=500)
    while "first" not in run.said:
        run.turn()
    ask(run, "sibling", [*head, *words(150, 2)])
    run.turn(3)
    assert run.started["sibling"].cached_tokens == HEAD
    run.finish()
    assert run.uncached("sibling") == 150


@pytest.mark.parametrize("kind", STATEFUL)
@pytest.mark.parametrize("back", [10, 70, 300, 600, 1900])
def test_a_new_day_resumes_near_the_date_and_then_exactly_at_it(kind: MemoryKind, back: int) -> None:
    run = big(kind)
    parting = HEAD - back
    frame, rest = words(parting), words(back - 1, 7)
    uncached = []
    for day in range(4):
        for session in range(2):
            name = f"{day}.{session}"
            prompt = [*frame, 1 + day, *rest, *words(50, 100 + 10 * day + session)]
            ask(run, name, prompt)
            run.finish()
            uncached.append(len(prompt) - run.uncached(name))
    first_day, second_day, *later = [uncached[i : i + 2] for i in range(0, 8, 2)]
    assert first_day == [0, HEAD]
    assert parting - second_day[0] <= 512
    assert second_day[1] == HEAD
    for first, second in later:
        assert parting - first <= 32
        assert second == HEAD


@pytest.mark.parametrize("kind", STATEFUL)
def test_an_appending_conversation_costs_its_new_tokens(kind: MemoryKind) -> None:
    run = big(kind)
    history, new = [*words(HEAD), *words(40, 1)], 0
    for turn in range(12):
        name = f"t{turn}"
        ask(run, name, history)
        run.finish()
        if turn:
            assert run.uncached(name) <= new + 16
        fresh = words(30, 50 + turn)
        new = len(fresh)
        history = [*history, *run.said[name], *fresh]


@pytest.mark.parametrize("kind", STATEFUL)
def test_a_rewritten_reply_resumes_at_its_start(kind: MemoryKind) -> None:
    run = big(kind)
    prompt = [*words(HEAD), *words(100, 1)]
    ask(run, "one", prompt)
    run.finish()
    rewritten = [*prompt, 5, *run.said["one"][7:], *words(30, 2)]  # the reasoning is gone, arguments are sorted
    ask(run, "two", rewritten)
    run.finish()
    assert run.started["two"].cached_tokens == len(prompt) - 3


@pytest.mark.parametrize("saved", [4, 12, 40])
def test_a_tool_loop_stays_flat_and_its_head_is_still_there(saved: int) -> None:
    run = big(saved_states=saved, extra_seqs=6)
    head = words(HEAD)
    history = [*head, *words(100, 1)]
    costs = []
    for turn in range(50):
        name = f"t{turn}"
        ask(run, name, history)
        run.finish()
        costs.append(run.uncached(name))
        result = words(120, 50 + turn)
        history = [*history, 9, *run.said[name][1:], *result]  # every reply comes back a little different
    assert max(costs[1:]) <= 20 + 120 + 16
    ask(run, "other", [*head, *words(60, 2)])
    run.finish()
    assert run.started["other"].cached_tokens == HEAD


@pytest.mark.parametrize("kind", STATEFUL)
def test_alternating_sessions_do_not_push_each_other_out(kind: MemoryKind) -> None:
    run = big(kind)
    sessions = {s: [*words(HEAD), *words(300, ord(s))] for s in "AB"}
    for turn in range(6):
        for s in "AB":
            name = f"{s}{turn}"
            ask(run, name, sessions[s])
            run.finish()
            if turn:
                assert run.uncached(name) <= 30 + 16
            sessions[s] = [*sessions[s], *run.said[name], *words(30, turn * 7 + ord(s))]


def test_three_chains_in_a_budget_of_two_states_are_served_right() -> None:
    run = big(saved_states=2, extra_seqs=2, parallel=2)
    chains = {s: words(900, ord(s)) for s in "ABC"}
    for turn in range(4):
        for s, history in chains.items():
            name = f"{s}{turn}"
            ask(run, name, history, head=700)
            run.finish()
            alone = big()
            ask(alone, name, history, head=700)
            alone.finish()
            assert run.said[name] == alone.said[name]
            chains[s] = [*history, *run.said[name], *words(30, turn)]


@pytest.mark.parametrize("n", [1023, 1024, 1025, 2047, 2048, 2049])
@pytest.mark.parametrize("kind", STATEFUL)
def test_lengths_around_chunk_borders_reuse_alike(kind: MemoryKind, n: int) -> None:
    run = big(kind)
    prompt = words(n)
    ask(run, "one", prompt, head=600)
    run.finish()
    ask(run, "two", prompt, head=600)
    run.finish()
    assert run.uncached("two") == 3
    assert run.said["two"] == run.said["one"]


@pytest.mark.parametrize("depth", [100, 513, 1400, 2999])
def test_an_edited_middle_resumes_near_the_edit(depth: int) -> None:
    run = big()
    prompt = words(3200)
    ask(run, "one", prompt, head=2500)
    run.finish()
    edited = [*prompt[:depth], 0, *prompt[depth + 1 :]]
    ask(run, "edit", edited, head=2500)
    run.finish()
    assert depth - run.started["edit"].cached_tokens <= 512
    ask(run, "again", [*prompt[:depth], 1, *prompt[depth + 1 :]], head=2500)
    run.finish()
    assert depth - run.started["again"].cached_tokens <= (32 if depth >= 128 else 100)


def test_the_leader_cuts_where_a_waiter_will_part() -> None:
    run = big()
    common = words(1777)
    run.submit("leader", [*common, *words(800, 1)])
    run.submit("waiter", [*common, *words(800, 2)])
    run.finish()
    assert run.started["waiter"].source is Source.WAIT
    assert run.started["waiter"].cached_tokens == 1777


@pytest.mark.parametrize("kind", [*STATEFUL, MemoryKind.SLIDING, MemoryKind.ATTENTION])
@pytest.mark.parametrize("kept", [0, 6], ids=["rewritten", "verbatim"])
def test_idle_prompts_do_not_push_out_sessions_that_come_back(kind: MemoryKind, kept: int) -> None:
    # A window leaves no state on the host, so all that is kept takes ids; and a state alone is saved more often.
    run = big(kind, saved_states=80, **({"extra_seqs": 20} if kind is MemoryKind.SLIDING else {}))
    for number in range(12):
        ask(run, f"idle {number}", words(2000, 500 + number), head=1500, max_tokens=4)
        run.finish()
    sessions = [words(1400, 900 + number) for number in range(3)]
    before = [0, 0, 0]
    for turn in range(7):
        for number, history in enumerate(sessions):
            name = f"{turn}.{number}"
            ask(run, name, history, head=900, max_tokens=6)
            run.finish()
            if turn:
                # One turn more where a window's ids run out: its sessions leave an id for each turn.
                new = (len(history) - before[number]) * (1 + (kind is MemoryKind.SLIDING))
                assert run.uncached(name) <= new + 16, name
            before[number] = len(history)
            said = run.said[name]
            reply = [*said[:kept], *(1 + token % 900 for token in said[kept:])]
            sessions[number] = [*history, *reply, *words(120, 1000 + 10 * turn + number)]


def test_choices_of_one_prompt_stay_until_one_goes_on():
    run = big(MemoryKind.ATTENTION)
    prompt = words(1000)
    for name in ("a", "b"):
        run.submit(name, prompt, max_tokens=8, sampling=Sampling(seed=ord(name)))
    run.finish()
    assert len([tokens for tokens in run.holders() if tokens > 1000]) >= 1
    run.submit("on", [*prompt, 5, *words(100, 7)], max_tokens=2)
    run.finish()
    assert len([tokens for tokens in run.holders() if tokens > 1000]) == 1


def test_where_tokens_take_no_cells_a_saved_state_needs_nobody():
    run = big(MemoryKind.RECURRENT, parallel=1, extra_seqs=1)
    chains = [words(HEAD, seed) for seed in range(4)]
    for turn in range(3):
        for number, chain in enumerate(chains):
            name = f"{turn}.{number}"
            run.submit(name, [*chain, *words(20, 100 * turn + number)], max_tokens=4)
            run.finish()
            if turn:
                assert run.started[name].source is Source.SNAPSHOT
                assert HEAD - run.started[name].cached_tokens <= 512
                assert run.started[name].reason.startswith("no state is saved after token")


def test_a_saved_state_that_is_refused_costs_the_reuse_alone():
    run = big(MemoryKind.RECURRENT, parallel=1, extra_seqs=1)
    prompts = [words(HEAD, seed) for seed in range(3)]
    for number, prompt in enumerate(prompts):
        run.submit(f"first {number}", prompt, max_tokens=4)
        run.finish()
    run.engine.refuse.add(Attach)
    run.submit("again", prompts[0], max_tokens=4)
    run.finish()
    assert run.started["again"].cached_tokens == 0 and run.said["again"] == run.said["first 0"]
