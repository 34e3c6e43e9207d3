"""The tokenizer of a GGUF from a vocabulary-only load: milliseconds, no weights. Safe to use from several threads."""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import llama_cpp.llama_cpp as C

from ..errors import RequestError, StartupError
from ..types import Token
from . import lib
from .gguf_header import read_header

# Many pre-tokenizers are regular expressions that recurse once per character of a run: about 300 bytes of stack each.
STACK_BYTES = 512 << 20  # address space only; pages are taken as they are touched
LONGEST_RUN = 500_000  # characters without (or of nothing but) white space, on a big stack
SMALL_STACK_RUN = 1_000  # what any thread's stack holds
# Its look-ahead reads all digits that follow each digit, so a run of them costs more than its square.
LONGEST_DIGITS = {"superbpe": 1_000}
WORKERS = 2

Result = TypeVar("Result")

_CONTROL = C.LLAMA_TOKEN_ATTR_CONTROL
_SPLIT_OFF = _CONTROL | C.LLAMA_TOKEN_ATTR_USER_DEFINED | C.LLAMA_TOKEN_ATTR_UNKNOWN
_RUNS = re.compile(r"\S+|\s+")
_DIGITS = re.compile(r"\d+")
_here = threading.local()
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def tokenizing_pool() -> ThreadPoolExecutor:
    """Threads with stacks for the longest run that `Vocabulary.encode` takes. One pool for the process."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = _start_pool()
        return _pool


def on_big_stack(work: Callable[[], Result]) -> Result:
    """The result of ``work``, run on a thread of `tokenizing_pool`: on this one, if it is one of them. Threads of the
    pool that waited for each other would wait for ever."""
    return work() if getattr(_here, "big", False) else tokenizing_pool().submit(work).result()


def _start_pool() -> ThreadPoolExecutor:
    before = threading.stack_size(STACK_BYTES)
    try:
        pool = ThreadPoolExecutor(WORKERS, "tokenizer", initializer=_mark_big_stack)
        # A thread keeps the stack size of its start, and the pool starts one only while the others are busy.
        together = threading.Barrier(WORKERS + 1)
        for _ in range(WORKERS):
            pool.submit(together.wait)
    except (RuntimeError, MemoryError) as error:
        together.abort()  # or those that have started would wait for ever
        raise StartupError(
            f"cannot start {WORKERS} threads to tokenize on: {error}; raise the limit on memory"
        ) from None
    finally:
        threading.stack_size(before)
    together.wait()
    return pool


def _mark_big_stack() -> None:
    _here.big = True


class Vocabulary:
    """Text to tokens and back. Raises `StartupError` with one line where ``path`` is no usable GGUF.

    ``bos`` and ``eos`` are token ids or None, ``bos_text`` and ``eos_text`` what templates write for them,
    ``template`` the model's chat template and ``template_for_tools`` its variant for tools, each None if missing.
    """

    def __init__(self, path: str) -> None:
        lib.start()
        header = read_header(path)
        params = C.llama_model_default_params()
        params.vocab_only = True
        lib.forget_log()
        self._model: Any = C.llama_model_load_from_file(path.encode(), params)
        if not self._model:
            raise StartupError(f"cannot read the vocabulary of {path}: {lib.last_error() or 'no reason given'}")
        self.handle: lib.Handle = C.llama_model_get_vocab(self._model)
        self.n_vocab = int(C.llama_vocab_n_tokens(self.handle))
        if self.n_vocab <= 0:
            C.llama_model_free(self._model)
            raise StartupError(f"{path} has no vocabulary; pick a model file that holds its tokenizer")
        self._pieces: dict[Token, bytes] = {}
        self._attrs: dict[Token, int] = {}
        self.bos = _token(C.llama_vocab_bos(self.handle))
        self.eos = _token(C.llama_vocab_eos(self.handle))
        self.bos_text = self._text(self.bos)
        self.eos_text = self._text(self.eos)
        self.adds_bos = bool(C.llama_vocab_get_add_bos(self.handle))
        self.template: str | None = header.get("tokenizer.chat_template")
        self.template_for_tools: str | None = header.get("tokenizer.chat_template.tool_use")
        self._metadata = {k: str(v) for k, v in header.items() if isinstance(v, str | int | float)}
        self._longest_digits = LONGEST_DIGITS.get(self._metadata.get("tokenizer.ggml.pre", ""))

    def encode(self, text: str, *, special: bool = True, bos: bool = False) -> list[Token]:
        """Tokens of ``text``. ``special`` reads special tokens' texts as those tokens; ``bos`` puts a BOS in front
        where the model wants one and the text does not start with it.

        Raises `RequestError` for half surrogate pairs and for runs of one kind of character that are too long.
        A long run met on a thread with a small stack is handed to `tokenizing_pool`.
        """
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(f"the text holds half a surrogate pair at character {error.start}") from None
        if not self._fits(text):
            tokens = on_big_stack(lambda: self._tokenize(raw, special))
        else:
            tokens = self._tokenize(raw, special)
        if bos and self.adds_bos and self.bos is not None and tokens[:1] != [self.bos]:
            tokens.insert(0, self.bos)
        return tokens

    def _fits(self, text: str) -> bool:
        """Whether this thread's stack holds the text's longest run; raises where no stack would."""
        if len(text) <= SMALL_STACK_RUN:
            return True
        if self._longest_digits and (longest := _longest(_DIGITS, text)) > self._longest_digits:
            raise RequestError(f"the text holds {longest} digits in a row; at most {self._longest_digits} are taken")
        big = bool(getattr(_here, "big", False))
        if big and len(text) <= LONGEST_RUN:
            return True
        longest = _longest(_RUNS, text)
        if longest > LONGEST_RUN:
            raise RequestError(
                f"the text holds {longest} characters without a border between words; at most {LONGEST_RUN} are taken"
            )
        return big or longest <= SMALL_STACK_RUN

    def _tokenize(self, raw: bytes, special: bool) -> list[Token]:
        room = len(raw) + 16
        found = (ctypes.c_int32 * room)()
        count = int(C.llama_tokenize(self.handle, raw, len(raw), found, room, False, special))
        if count < 0:
            # More tokens than bytes: a normaliser made the text longer. The library says how many there are.
            room = -count
            found = (ctypes.c_int32 * room)()
            count = int(C.llama_tokenize(self.handle, raw, len(raw), found, room, False, special))
        if count < 0:
            raise RequestError("the tokenizer cannot take this text")
        return found[:count]

    def piece(self, token: Token) -> bytes:
        """Bytes of ``token``, its text for a special one. Raises ValueError out of range."""
        cached = self._pieces.get(token)
        if cached is not None:
            return cached
        self._check(token)
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            count = int(C.llama_token_to_piece(self.handle, token, buffer, size, 0, True))
            if count >= 0:
                break
            size = -count
        piece = self._pieces[token] = buffer.raw[:count]
        return piece

    def is_control(self, token: Token) -> bool:
        """Whether ``token`` steers the model instead of standing for text."""
        return bool(self._attributes(token) & _CONTROL)

    def is_special(self, token: Token) -> bool:
        """Whether the tokenizer splits the text of ``token`` off before it merges anything."""
        return bool(self._attributes(token) & _SPLIT_OFF)

    def is_end(self, token: Token) -> bool:
        """Whether ``token`` ends a turn."""
        self._check(token)
        return bool(C.llama_vocab_is_eog(self.handle, token))

    def metadata(self) -> dict[str, str]:
        """Scalar metadata of the file as text."""
        return dict(self._metadata)

    def _attributes(self, token: Token) -> int:
        known = self._attrs.get(token)
        if known is None:
            self._check(token)
            known = self._attrs[token] = int(C.llama_vocab_get_attr(self.handle, token))
        return known

    def _check(self, token: Token) -> None:
        if not 0 <= token < self.n_vocab:
            raise ValueError(f"no token {token}; the vocabulary has {self.n_vocab}")

    def _text(self, token: Token | None) -> str:
        return "" if token is None else self.piece(token).decode("utf-8", "replace")


def _token(value: int) -> Token | None:
    return int(value) if value >= 0 else None


def _longest(kind: re.Pattern[str], text: str) -> int:
    return max((m.end() - m.start() for m in kind.finditer(text)), default=0)
