"""One request's sampling: its chain, its grammar, its log-probabilities."""

from __future__ import annotations

import ctypes
import math
import time
from typing import Any

import llama_cpp.llama_cpp as C
import numpy as np
import numpy.typing as npt

from ..errors import RequestError
from ..messages import Sampling
from ..types import Token
from . import chain as chains
from . import lib
from .dry import Dry
from .lib import Handle

Logits = npt.NDArray[np.float32]
Top = tuple[tuple[Token, float], ...]

SLOW_GRAMMAR = 1.0  # seconds for one token
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class SamplerBroke(Exception):
    """No token can be chosen: the logits are not numbers, or, with a ``status`` of 400, the request's grammar allows
    nothing more or takes too long."""

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.message, self.status = message, status


class Candidates:
    """The library's token array over the whole vocabulary, in memory that numpy fills. Shared by all samplers."""

    def __init__(self, n_vocab: int) -> None:
        self._ids = np.arange(n_vocab, dtype=np.int32)
        self._data = np.zeros(n_vocab, dtype=_CANDIDATE)
        self.array: Any = C.llama_token_data_array()
        self.ref = ctypes.byref(self.array)
        self._pointer: Any = ctypes.cast(self._data.ctypes.data, C.llama_token_data_p)
        self._one: Any = (C.llama_token_data * 1)()
        one: Any = ctypes.cast(self._one, C.llama_token_data_p)
        self._one_array: Any = C.llama_token_data_array(one, 1, -1, False)

    def fill(self, logits: Logits) -> None:
        data = self._data
        data["id"], data["logit"], data["p"] = self._ids, logits, 0.0
        a = self.array
        a.data, a.size, a.selected, a.sorted = self._pointer, len(data), -1, False

    def possible(self) -> bool:
        """Whether any candidate is left with a finite logit."""
        return bool(np.isfinite(self._data["logit"][: self.array.size]).any())

    def chosen(self) -> Token:
        selected = int(self.array.selected)
        if not 0 <= selected < int(self.array.size):
            raise SamplerBroke("the sampler chose no token")
        return int(self.array.data[selected].id)

    def allowed(self, grammar: Handle, token: Token) -> bool:
        """Whether the grammar takes ``token`` next."""
        one, array = self._one[0], self._one_array
        one.id, one.logit, one.p = token, 1.0, 0.0
        array.size, array.selected, array.sorted = 1, -1, False
        C.llama_sampler_apply(grammar, ctypes.byref(array))
        return bool(one.logit == 1.0)


class Sampler:
    """Holds C objects: call `close`. ``prompt`` is seen by the penalties, never by the grammar.

    Raises `RequestError` where settings are out of range or the grammar does not parse.
    """

    def __init__(
        self,
        sampling: Sampling,
        prompt: list[Token],
        *,
        vocab: Handle,
        dry: Dry,
        candidates: Candidates,
        n_vocab: int,
        n_ctx: int,
        end_tokens: list[Token],
    ) -> None:
        chains.check(sampling, n_vocab)
        self._candidates = candidates
        self._n_probs = sampling.n_probs
        self._grammar: Any = None
        if sampling.grammar is not None:
            self._grammar = start_grammar(vocab, sampling.grammar)
        try:
            self._chain: Any = chains.build(sampling, dry, n_vocab, n_ctx, end_tokens)
        except BaseException:
            self.close()
            raise
        self._only_best = self._grammar is None and _is_bare_greedy(self._chain)
        last = chains.history(sampling, n_ctx)
        for token in prompt[-last:] if last else ():
            C.llama_sampler_accept(self._chain, token)

    def sample(self, ctx: Handle, row: int, logits: Logits) -> Token:
        """Choose and accept the next token from ``logits``, batch entry ``row``. Raises `SamplerBroke`."""
        best = int(logits.argmax())  # the first NaN, where there is one
        if not math.isfinite(logits[best]):
            raise SamplerBroke("the model's output is not a number")
        if self._only_best:
            return best
        if self._grammar is None:
            return int(C.llama_sampler_sample(self._chain, ctx, row))
        began = time.monotonic()
        token = self._sample_with_grammar(logits)
        took = time.monotonic() - began
        if took > SLOW_GRAMMAR:
            # An ambiguous grammar takes several times longer with each token, and everybody waits for it.
            raise SamplerBroke(f"the grammar is too ambiguous: one token took {took:.1f} s", 400)
        return token

    def _sample_with_grammar(self, logits: Logits) -> Token:
        c = self._candidates
        c.fill(logits)
        C.llama_sampler_apply(self._chain, c.ref)
        token = c.chosen()
        if not c.allowed(self._grammar, token):
            c.fill(logits)
            C.llama_sampler_apply(self._grammar, c.ref)
            if not c.possible():
                raise SamplerBroke("the grammar allows no further token", 400)
            C.llama_sampler_apply(self._chain, c.ref)
            token = c.chosen()
            # The chain may end on a refused token (all others banned); accepting that would end the process.
            if not c.allowed(self._grammar, token):
                raise SamplerBroke("the grammar and the sampler settings leave no token", 400)
        C.llama_sampler_accept(self._grammar, token)
        C.llama_sampler_accept(self._chain, token)
        return token

    def logprobs(self, logits: Logits, token: Token) -> tuple[float | None, Top]:
        """Natural log-probabilities under the model's own distribution, before any filter: the token's, the top's."""
        if self._n_probs is None:
            return None, ()
        shifted = logits.astype(np.float64)
        shifted -= shifted.max()
        shifted -= np.log(np.exp(shifted).sum())
        n = min(self._n_probs, len(shifted))
        if n == 0:
            return float(shifted[token]), ()
        best = np.argpartition(shifted, -n)[-n:]
        best = best[np.lexsort((best, -shifted[best]))]
        return float(shifted[token]), tuple((int(i), float(shifted[i])) for i in best)

    def close(self) -> None:
        """Free the C objects; a second call does nothing."""
        for name in ("_grammar", "_chain"):
            handle = getattr(self, name, None)
            if handle:
                C.llama_sampler_free(handle)
            setattr(self, name, None)


def start_grammar(vocab: Handle, gbnf: str) -> Handle:
    """A grammar sampler with root rule "root". Raises `RequestError` where the grammar does not parse.

    The library cannot be stopped once it works on ``gbnf``: the front has checked it, see `grammar`.
    """
    lib.forget_log()
    grammar = C.llama_sampler_init_grammar(vocab, gbnf.encode(), b"root")
    if not grammar:
        reason = lib.last_error()
        raise RequestError(f"the grammar does not parse{': ' + reason if reason else ''}", param="grammar")
    return grammar


def _is_bare_greedy(chain: Handle) -> bool:
    if int(C.llama_sampler_chain_n(chain)) != 1:
        return False
    return bool(C.llama_sampler_name(C.llama_sampler_chain_get(chain, 0)) == b"greedy")
