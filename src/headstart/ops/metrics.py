"""Prometheus metrics, fed by events alone. llama-server's names where it has one, ``headstart_...`` beside them."""

from __future__ import annotations

from collections import deque

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from .. import events
from ..types import FinishReason, Source

_RECENT = 32  # requests that the llamacpp:*_tokens_seconds averages look at
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_STEP_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

# A "_created" line beside every counter doubles the page and no dashboard reads it.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives it no types


class Metrics:
    """One registry. `handle` takes events from one thread, `render` may run on another."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._llama = _LlamaNames(self.registry)
        self._own = _OwnNames(self.registry)

    def handle(self, event: events.Event) -> None:
        """Count one event; unknown kinds are no error."""
        self._llama.handle(event)
        self._own.handle(event)

    def render(self) -> bytes:
        """The page for a scraper, in the text format 0.0.4."""
        return generate_latest(self.registry)


class _LlamaNames:
    """What llama-server reports, under its names. Its "deferred" is our queued and waiting together."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"llamacpp:{name}", text, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"llamacpp:{name}", text, registry=registry)

        self.prompt_tokens = counter("prompt_tokens_total", "Prompt tokens computed.")
        self.prompt_seconds = counter("prompt_seconds_total", "Seconds spent on prompts.")
        self.cached = counter("prompt_tokens_cached_total", "Prompt tokens reused.")
        self.predicted = counter("tokens_predicted_total", "Tokens generated.")
        self.predicted_seconds = counter("tokens_predicted_seconds_total", "Seconds spent on generation.")
        self.decodes = counter("n_decode_total", "Calls of llama_decode().")
        self.busy = gauge("n_busy_slots_per_decode", "Average number of sequences in a llama_decode() call.")
        self.longest = gauge("n_tokens_max", "Most tokens, prompt and answer, of one request so far.")
        self.prompt_speed = gauge("prompt_tokens_seconds", "Prompt tokens computed per second, recent requests.")
        self.speed = gauge("predicted_tokens_seconds", "Tokens generated per second, recent requests.")
        self.processing = gauge("requests_processing", "Requests that run.")
        self.deferred = gauge("requests_deferred", "Requests that are queued or wait for another one's prefix.")
        self.cells_ratio = gauge("kv_cache_usage_ratio", "Share of the cells in use, 0 to 1.")
        self.cells = gauge("kv_cache_tokens", "Cells in use.")
        self._steps = self._sequences = self._most = 0
        self._prompts: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self._answers: deque[tuple[int, float]] = deque(maxlen=_RECENT)

    def handle(self, event: events.Event) -> None:
        match event:
            case events.Stepped():
                self._steps += 1
                self._sequences += event.decode_tokens + (event.prefill_tokens > 0)
                self.decodes.inc()
                self.busy.set(self._sequences / self._steps)
            case events.FirstToken():
                self.prompt_tokens.inc(event.computed)
                self.prompt_seconds.inc(event.prompt_ms / 1e3)
                self.cached.inc(event.cached)
                self.prompt_speed.set(_speed(self._prompts, event.computed, event.prompt_ms))
            case events.Done():
                self.predicted.inc(event.generated)
                self.predicted_seconds.inc(event.predicted_ms / 1e3)
                self.speed.set(_speed(self._answers, event.generated, event.predicted_ms))
                self._most = max(self._most, event.prompt_tokens + event.generated)
                self.longest.set(self._most)
            case events.Usage():
                self.processing.set(event.running)
                self.deferred.set(event.queued + event.waiting)
                self.cells.set(event.cells_used)
                self.cells_ratio.set(event.cells_used / event.cells_total if event.cells_total else 0.0)
            case _:
                pass


class _OwnNames:
    """What only this server has."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"headstart_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"headstart_{name}", text, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"headstart_{name}", text, buckets=buckets, registry=registry)

        self.requests = counter("requests_total", "Requests that ended, by how.", "finish")
        self.cached = counter("cached_tokens_total", "Prompt tokens reused, by where they came from.", "source")
        self.computed = counter("computed_prompt_tokens_total", "Prompt tokens computed, cancelled requests included.")
        self.waits = counter("waits_total", "Requests that waited for another one's prefix.")
        self.misses = counter("misses_total", "Prompts that were not reused in full, by reason.", "reason")
        self.held = counter("prefixes_held_total", "Prefixes kept, by why.", "why")
        self.evictions = counter("evictions_total", "Prefixes given up, by why.", "why")
        self.preemptions = counter("preemptions_total", "Running requests that gave their cells back for a while.")
        self.tier_failures = counter("tier_failures_total", "Copies of a prefix that could not be used.")
        self.holders = gauge("holders", "Prefixes kept now.")
        self.used = gauge("cells_used", "Cells in use.")
        self.cells = gauge("cells", "Cells that all sessions share.")
        self.waiting = gauge("requests_waiting", "Requests that wait for another one's prefix.")
        self.queued = gauge("requests_queued", "Requests that are queued.")
        self.seqs = gauge("sequences", "Sequence ids of the library; on hybrid models each comes with a state.")
        self.seqs_free = gauge("sequences_free", "Sequence ids that nothing lies on.")
        self.states = gauge("saved_states", "Recurrent states in host memory.")
        self.state_bytes = gauge("saved_state_bytes", "Bytes of the states in host memory.")
        self.state_budget = gauge("saved_state_budget_bytes", "Bytes that states in host memory may take.")
        self.first_token = histogram("time_to_first_token_seconds", "From arrival to the first token.", _SECONDS)
        self.queue = histogram("queue_seconds", "From arrival to admission, waiting included.", _SECONDS)
        self.step = histogram("step_seconds", "One step of the model.", _STEP_SECONDS)
        for finish in (*FinishReason, "error"):
            self.requests.labels(str(finish))
        for miss in events.Miss:
            self.misses.labels(miss)
        for source in Source:
            if source is not Source.NONE:
                self.cached.labels(source)

    def handle(self, event: events.Event) -> None:
        match event:
            case events.Waited():
                self.waits.inc()
            case events.Attached():
                self.cached.labels(event.source).inc(event.tokens)
            case events.Missed():
                self.misses.labels(event.code).inc()
            case events.Held():
                self.held.labels(event.why or "session").inc()
            case events.Evicted():
                self.evictions.labels(event.why).inc()
            case events.Preempted():
                self.preemptions.inc()
            case events.TierFailed():
                self.tier_failures.inc()
            case events.Stepped():
                self.computed.inc(event.prefill_tokens)
                self.step.observe(event.ms / 1e3)
            case events.FirstToken():
                self.queue.observe(event.queue_ms / 1e3)
                self.first_token.observe((event.queue_ms + event.prompt_ms) / 1e3)
            case events.Done():
                self.requests.labels("error" if event.reason is None else event.reason).inc()
            case events.Usage():
                self._gauges(event)
            case _:
                pass

    def _gauges(self, usage: events.Usage) -> None:
        self.holders.set(usage.holders)
        self.used.set(usage.cells_used)
        self.cells.set(usage.cells_total)
        self.waiting.set(usage.waiting)
        self.queued.set(usage.queued)
        self.seqs.set(usage.seqs_total)
        self.seqs_free.set(usage.seqs_free)
        self.states.set(usage.saved_states)
        self.state_bytes.set(usage.saved_bytes)
        self.state_budget.set(usage.saved_budget)


def _speed(recent: deque[tuple[int, float]], tokens: int, ms: float) -> float:
    """Tokens per second over the recent requests, this one included."""
    recent.append((tokens, ms))
    seconds = sum(ms for _, ms in recent) / 1e3
    return sum(tokens for tokens, _ in recent) / seconds if seconds > 0 else 0.0
