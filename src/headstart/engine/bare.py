"""The yardstick: what the library alone does, without server, scheduler or books.

Run as ``python -m headstart.engine.bare``: settings (`EngineSettings`) as one JSON line on standard input, then one
job a line; one JSON line with the answer comes back for each. Times are milliseconds.

The context is made as the server makes it, so both have the same cells, threads and kernels.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as C
import msgspec

from ..errors import HeadstartError
from ..machine import settle_memory
from ..messages import Sampling
from ..types import Token
from . import chain as chains
from . import lib, model
from .dry import Dry
from .settings import EngineSettings

Entry = tuple[int, int, Sequence[Token], bool]  # sequence, first position, tokens, whether logits are wanted


class Bare:
    """One context. A *holder* keeps the prefix that the other sequences attach to."""

    def __init__(self, settings: EngineSettings, sampling: Sampling) -> None:
        self._loaded = model.load(settings)
        self._ctx, self._mem = self._loaded.ctx, self._loaded.mem
        self._chunk = settings.n_ubatch
        self._sampling = sampling
        self._random = random.Random(7)
        self._batch = C.llama_batch_init(settings.n_batch, 0, 1)
        self._holder = self._loaded.info.n_seq - 1
        self._prefix = 0

    # ---- jobs

    def cold(self, tokens: int, hold: int) -> dict[str, float]:
        """Prefill ``tokens`` on an empty cache and sample; the prefix of ``hold`` stays for the jobs that follow."""
        C.llama_memory_clear(self._mem, False)
        chain = self._chain()
        prompt = self._tokens(tokens)
        began = time.perf_counter()
        self._prefill(0, 0, prompt[:hold], last=hold == tokens)
        lib.copy_seq(self._mem, 0, self._holder, -1)
        if hold < tokens:
            self._prefill(0, hold, prompt[hold:], last=True)
        self._sample(chain, -1)
        ms = _since(began)
        self._prefix = hold
        self._free(0, chain)
        return {"ms": ms}

    def attach(self, own: int, busy: int, repeat: int) -> dict[str, list[float]]:
        """Attach to the holder, prefill ``own`` tokens and sample, in one step with ``busy`` sequences that decode."""
        samplers = [self._chain() for _ in range(busy + 1)]
        for seq in range(busy):
            self._start(seq, own)
        times = []
        for turn in range(repeat + 1):  # the first finds no graph of its shape and does not count
            tokens = self._tokens(own)
            position = self._prefix + own + turn
            entries: list[Entry] = [(seq, position, self._tokens(1), True) for seq in range(busy)]
            began = time.perf_counter()
            lib.copy_seq(self._mem, self._holder, busy, -1)
            self._decode([*entries, (busy, self._prefix, tokens, True)])
            for row, chain in zip([*range(busy), busy + own - 1], samplers, strict=True):
                self._sample(chain, row)
            times.append(_since(began))
            lib.remove_seq(self._mem, busy)
        for seq, chain in enumerate(samplers):
            self._free(seq, chain)
        return {"ms": times[1:]}

    def decode(self, sessions: int, own: int, tokens: int) -> dict[str, float]:
        """``sessions`` sequences on the holder's prefix generate ``tokens`` each, sampling included. The answer is two
        moments (seconds), for whoever stops this process in between."""
        samplers = [self._chain() for _ in range(sessions)]
        for seq in range(sessions):
            self._start(seq, own)
        last = [self._tokens(1)[0]] * sessions
        began = 0.0
        for step in range(tokens + 4):  # the first few warm up
            if step == 4:
                began = time.perf_counter()
            position = self._prefix + own + step
            self._decode([(seq, position, [last[seq]], True) for seq in range(sessions)])
            last = [self._sample(chain, row) for row, chain in enumerate(samplers)]
        ended = time.perf_counter()
        for seq, chain in enumerate(samplers):
            self._free(seq, chain)
        return {"began": began, "ended": ended}

    def chunk(self, own: int, reading: int, step_ms: float, smallest: int, repeat: int) -> dict[str, float]:
        """One small chunk: a step with one decode on the holder's prefix and as many tokens of another prompt, already
        ``reading`` long in cells of its own, as fit into ``step_ms``, but at least ``smallest``."""
        chain = self._chain()
        self._start(0, own)
        self._prefill(1, 0, self._tokens(reading))
        at = [self._prefix + own, reading]

        def step(tokens: int) -> float:
            began = time.perf_counter()
            reads: list[Entry] = [(1, at[1], self._tokens(tokens), False)] if tokens else []
            self._decode([(0, at[0], self._tokens(1), True), *reads])
            self._sample(chain, 0)
            at[0], at[1] = at[0] + 1, at[1] + tokens
            return _since(began)

        def typical(tokens: int) -> float:
            return sorted(step(tokens) for _ in range(repeat))[repeat // 2]

        decode_ms, small_ms = typical(0), typical(smallest)
        tokens = smallest
        if small_ms < step_ms:
            tokens = int(smallest * (step_ms - decode_ms) / max(small_ms - decode_ms, 1e-3))
            tokens = max(smallest, min(tokens, self._chunk))
            small_ms = typical(tokens)
        lib.remove_seq(self._mem, 1)
        self._free(0, chain)
        return {"ms": small_ms, "tokens": tokens, "decode_ms": decode_ms}

    # ---- the library

    def _start(self, seq: int, own: int) -> None:
        lib.copy_seq(self._mem, self._holder, seq, -1)
        self._prefill(seq, self._prefix, self._tokens(own))

    def _prefill(self, seq: int, start: int, tokens: Sequence[Token], *, last: bool = False) -> None:
        for offset in range(0, len(tokens), self._chunk):
            part = tokens[offset : offset + self._chunk]
            self._decode([(seq, start + offset, part, last and offset + len(part) == len(tokens))])

    def _decode(self, entries: list[Entry]) -> None:
        b, at = self._batch, 0
        for seq, start, tokens, logits in entries:
            for offset, token in enumerate(tokens):
                b.token[at], b.pos[at], b.n_seq_id[at], b.logits[at] = token, start + offset, 1, 0
                b.seq_id[at][0] = seq
                at += 1
            b.logits[at - 1] = logits
        b.n_tokens = at
        code = C.llama_decode(self._ctx, b)
        if code:
            raise HeadstartError(f"the library failed to compute a step (code {code}): {lib.last_error()}")
        C.llama_synchronize(self._ctx)

    def _sample(self, chain: Any, row: int) -> Token:
        return int(C.llama_sampler_sample(chain, self._ctx, row))

    def _chain(self) -> Any:
        info = self._loaded.info
        ends = [t for t in range(info.n_vocab) if C.llama_vocab_is_eog(self._loaded.vocab, t)]
        dry = Dry(self._loaded.vocab, info.n_vocab, info.n_ctx)
        return chains.build(self._sampling, dry, info.n_vocab, info.n_ctx, ends)

    def _free(self, seq: int, chain: Any) -> None:
        lib.remove_seq(self._mem, seq)
        C.llama_sampler_free(chain)

    def _tokens(self, n: int) -> list[Token]:
        return self._random.choices(range(min(100, self._loaded.info.n_vocab - 1), self._loaded.info.n_vocab), k=n)


def _since(began: float) -> float:
    return 1e3 * (time.perf_counter() - began)


def main() -> None:
    """Answer jobs until standard input ends; a failure is an answer with ``error``, and the end."""
    try:
        first = json.loads(sys.stdin.readline())
        bare = Bare(EngineSettings(**first["settings"]), msgspec.convert(first["sampling"], Sampling))
        settle_memory()  # as the server does
        _answer({"ready": True, "library": lib.version()})
        for line in sys.stdin:
            job = json.loads(line)
            _answer(getattr(bare, job.pop("job"))(**job))
    except HeadstartError as error:
        _answer({"error": str(error)})
    except KeyboardInterrupt:
        pass  # Ctrl-C reaches the whole group; whoever asked deals with it


def _answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
