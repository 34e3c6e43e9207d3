"""Metric names are public, and every number is one that an event carried."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headstart import events
from headstart.ops.metrics import Metrics
from headstart.types import CutReason, FinishReason, Source

LLAMA_SERVER = """
llamacpp:kv_cache_tokens llamacpp:kv_cache_usage_ratio llamacpp:n_busy_slots_per_decode llamacpp:n_decode_total
llamacpp:n_tokens_max llamacpp:predicted_tokens_seconds llamacpp:prompt_seconds_total
llamacpp:prompt_tokens_cached_total llamacpp:prompt_tokens_seconds llamacpp:prompt_tokens_total
llamacpp:requests_deferred llamacpp:requests_processing llamacpp:tokens_predicted_seconds_total
llamacpp:tokens_predicted_total
"""
OURS = """
headstart_cached_tokens_total headstart_cells headstart_cells_used headstart_computed_prompt_tokens_total
headstart_evictions_total headstart_holders headstart_misses_total headstart_preemptions_total
headstart_prefixes_held_total headstart_queue_seconds headstart_requests_queued headstart_requests_total
headstart_saved_state_budget_bytes
headstart_saved_state_bytes headstart_saved_states headstart_sequences headstart_sequences_free
headstart_requests_waiting headstart_step_seconds headstart_tier_failures_total
headstart_time_to_first_token_seconds headstart_waits_total
"""


def names(page: bytes) -> set[str]:
    return {line.split()[2] for line in page.decode().splitlines() if line.startswith("# TYPE ")}


def values(*happened: events.Event) -> dict[str, float]:
    """Samples by name and labels after ``happened``, as a scraper reads them."""
    metrics = Metrics()
    for event in happened:
        metrics.handle(event)
    return {
        sample.name + "".join(f"{{{label}={value}}}" for label, value in sample.labels.items()): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_golden_names() -> None:
    assert names(Metrics().render()) == set((LLAMA_SERVER + OURS).split())


def test_no_series_beside_the_named_ones() -> None:
    assert "_created" not in Metrics().render().decode()


def test_registries_are_separate() -> None:
    first, second = Metrics(), Metrics()
    first.handle(events.Waited("a", "b", 10))
    assert b"headstart_waits_total 1.0" in first.render()
    assert b"headstart_waits_total 0.0" in second.render()


def test_first_token_and_end_feed_llama_servers_counters() -> None:
    page = values(
        events.FirstToken("a", queue_ms=500.0, prompt_ms=2000.0, cached=900, computed=100),
        events.Done("a", FinishReason.STOP, prompt_tokens=1000, generated=50, predicted_ms=1000.0),
        events.FirstToken("b", queue_ms=0.0, prompt_ms=0.0, cached=0, computed=100),
        events.Done("b", None, prompt_tokens=100, generated=0, predicted_ms=0.0),
    )
    assert page["llamacpp:prompt_tokens_total"] == 200
    assert page["llamacpp:prompt_tokens_cached_total"] == 900
    assert page["llamacpp:prompt_seconds_total"] == 2.0
    assert page["llamacpp:prompt_tokens_seconds"] == 100.0
    assert page["llamacpp:tokens_predicted_total"] == 50
    assert page["llamacpp:predicted_tokens_seconds"] == 50.0
    assert page["llamacpp:n_tokens_max"] == 1050
    assert page["headstart_requests_total{finish=stop}"] == 1
    assert page["headstart_requests_total{finish=error}"] == 1
    assert page["headstart_requests_total{finish=abort}"] == 0
    assert page["headstart_time_to_first_token_seconds_sum"] == 2.5
    assert page["headstart_queue_seconds_sum"] == 0.5


def test_steps() -> None:
    page = values(
        events.Stepped(prefill_tokens=512, decode_tokens=3, ms=100.0),
        events.Stepped(prefill_tokens=0, decode_tokens=2, ms=20.0),
    )
    assert page["llamacpp:n_decode_total"] == 2
    assert page["llamacpp:n_busy_slots_per_decode"] == 3.0
    assert page["headstart_computed_prompt_tokens_total"] == 512
    assert page["headstart_step_seconds_sum"] == pytest.approx(0.12)


def test_sharing() -> None:
    page = values(
        events.Attached("a", Source.ATTACH, 1, 700),
        events.Attached("b", Source.HOLDER, 2, 300),
        events.Waited("b", "a", 700),
        events.Held(3, 700, CutReason.HEAD),
        events.Held(4, 900, None),
        events.Evicted(3, 700, 700, "cells"),
        events.Preempted("a", 10),
        events.TierFailed("a", "checksum"),
    )
    assert page["headstart_cached_tokens_total{source=attach}"] == 700
    assert page["headstart_cached_tokens_total{source=holder}"] == 300
    assert page["headstart_cached_tokens_total{source=wait}"] == 0
    assert page["headstart_waits_total"] == 1
    assert page["headstart_prefixes_held_total{why=head}"] == 1
    assert page["headstart_prefixes_held_total{why=session}"] == 1
    assert page["headstart_evictions_total{why=cells}"] == 1
    assert page["headstart_preemptions_total"] == 1
    assert page["headstart_tier_failures_total"] == 1


def test_gauges_follow_the_last_usage() -> None:
    usage = events.Usage(cells_used=25, cells_total=100, running=3, queued=2, waiting=1, holders=4)
    page = values(events.Usage(99, 100, 9, 9, 9, 9), usage)
    assert page["llamacpp:requests_processing"] == 3
    assert page["llamacpp:requests_deferred"] == 3
    assert page["llamacpp:kv_cache_usage_ratio"] == 0.25
    assert page["llamacpp:kv_cache_tokens"] == page["headstart_cells_used"] == 25
    assert page["headstart_cells"] == 100
    assert page["headstart_holders"] == 4
    assert page["headstart_requests_waiting"] == 1
    assert page["headstart_requests_queued"] == 2
    assert values(events.Usage(0, 0, 0, 0, 0, 0))["llamacpp:kv_cache_usage_ratio"] == 0


def test_misses_are_counted_by_code_and_never_by_sentence() -> None:
    misses = [
        events.Missed("a", code, f"differs at token {number}", number, 1)
        for number in range(100)
        for code in events.Miss
    ]
    counted = {name: value for name, value in values(*misses).items() if name.startswith("headstart_misses_total")}
    codes = ("sharing_off", "bypass", "no_match", "exact", "no_state", "differs")
    assert counted == {f"headstart_misses_total{{reason={code}}}": 100 for code in codes}
    assert values()["headstart_misses_total{reason=no_state}"] == 0
