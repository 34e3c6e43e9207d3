"""Bounds: what counts as met, and what does not."""

from __future__ import annotations

import pytest

from headstart.bench import judge
from headstart.bench.judge import Row


def test_a_row_is_met_on_its_bound_and_not_beyond_it() -> None:
    assert Row("x", "", 2.0, 2.0, "s").met
    assert not Row("x", "", 2.01, 2.0, "s").met
    assert Row("x", "", 2.0, 2.0, "x", ">=").met
    assert not Row("x", "", 1.99, 2.0, "x", ">=").met
    assert Row("x", "", 7, None, "s").met is None


def test_the_third_session_is_held_against_the_library_with_nobody_else_there() -> None:
    row = judge.third([0.3, 0.34, 9.0], idle=[0.14, 0.14, 0.15], busy=[0.5, 0.5, 0.5], own=16)
    assert row.bound == pytest.approx(2 * 0.14 + 0.06)
    assert row.measured == 0.34
    assert row.met
    assert not judge.third([0.35], idle=[0.14], busy=[0.5], own=16).met


def test_a_third_session_on_a_slow_moment_has_a_slow_library_beside_it() -> None:
    row = judge.third([0.3, 0.9, 0.9, 0.31, 0.9], idle=[0.14, 0.43, 0.46, 0.14, 0.14], busy=[0.5], own=16)
    assert (row.measured, row.bound) == (0.31, pytest.approx(2 * 0.14 + 0.06))  # medians of each alone: 0.9, 0.34
    assert row.met


def test_a_burst_is_held_against_one_cold_prefill() -> None:
    assert judge.burst(23.0, 20.0).met
    assert not judge.burst(23.1, 20.0).met
    assert "1.16 x" in judge.burst(23.2, 20.0).note
    assert judge.burst(1, 1, unmarked=True).id == "burst-unmarked"


def test_one_cell_too_many_is_too_many() -> None:
    own = [15, 15, 15, 15]
    assert judge.cells(14_060, 14_060, 14_000, own).met
    assert judge.cells(14_058, 14_058, 14_000, own).met  # two sessions begin their own part alike
    assert not judge.cells(14_061, 14_060, 14_000, own).met
    assert not judge.cells(14_060, 14_061, 14_000, own).met  # computed twice, even if the books do not show it
    assert not judge.cells(28_000, 28_000, 14_000, own).met  # counted right, but not shared


def test_the_longest_gap_counts_not_the_typical_one() -> None:
    row = judge.gap([0.1] * 50 + [0.31], chunk=0.1, chunk_tokens=40, reading=9_000)
    assert row.measured == 0.31
    assert not row.met
    assert judge.gap([0.1, 0.3], chunk=0.1, chunk_tokens=40, reading=9_000).met


@pytest.mark.parametrize(("sessions", "least"), [(1, 0.95), (3, 0.93)])
def test_decode_is_a_median_of_ratios(sessions: int, least: float) -> None:
    row = judge.decode(sessions, [10.0, least * 100, 200.0], [100.0, 100.0, 110.0])
    assert row.measured == pytest.approx(least)
    assert row.bound == least
    assert row.met
    assert not judge.decode(sessions, [least * 100 - 1], [100.0]).met


def test_overhead_is_what_lies_beyond_the_library() -> None:
    row = judge.overhead([0.20, 0.19, 0.9], [0.15, 0.14, 0.16], prompt=14_020)
    assert row.measured == pytest.approx(0.05)
    assert row.met
    assert not judge.overhead([0.22], [0.15], prompt=14_020).met
    # Of pairs: on a machine that slows down between them, medians of each alone would see 0.31.
    assert judge.overhead([0.2, 0.5, 0.5], [0.15, 0.45, 0.19], prompt=14_020).measured == pytest.approx(0.05)


def test_sharing_is_held_against_its_own_pair() -> None:
    # Pairs drift together; medians over everything would see 0 % here.
    row = judge.alone("alone", "", on=[1.1, 2.2, 3.3], off=[1.0, 2.0, 3.0])
    assert row.measured == pytest.approx(10.0)
    assert not row.met
    assert judge.alone("alone", "", on=[1.02, 0.9], off=[1.0, 1.0]).met


def test_a_new_day() -> None:
    rows = {row.id: row for row in judge.new_day(512, 32, 104, behind=40, own=12)}
    assert all(row.met for row in rows.values())
    rows = {row.id: row for row in judge.new_day(513, 33, 105, behind=40, own=12)}
    assert not any(row.met for row in rows.values())
    assert judge.resumed_before(512, 300).met
    assert not judge.resumed_before(513, 300).met


def test_the_dearest_turn_counts() -> None:
    assert judge.turns([40, 66], [30, 50]).met
    row = judge.turns([47, 66], [30, 50])
    assert (row.measured, row.met) == (17, False)


def test_a_tool_loop_must_stay_flat_and_keep_its_head() -> None:
    flat, head = judge.tool_loop([900] + [70] * 48 + [75], sibling=20, own=16)
    assert flat.met
    assert head.met
    rising, lost = judge.tool_loop([900] + [70 + i for i in range(80)], sibling=900, own=16)
    assert not rising.met
    assert not lost.met
