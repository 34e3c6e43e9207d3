"""Read a GGUF file's header before the library sees it: a broken file gets one clear line instead of an abort.

Only scalars and short numeric arrays are kept; vocabularies are skipped over.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from ..errors import StartupError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
MAX_ENTRIES = 1 << 20
KEPT_ARRAY = 4096  # longest numeric array worth keeping: per-layer values


class _Broken(Exception):
    """The bytes are not what a GGUF header holds there."""


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at, self._end = data, 4, len(data)

    def number(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        self._need(size)
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += size
        return value

    def text(self) -> str:
        size = self.number("Q")
        self._need(size)
        raw = self._data[self._at : self._at + size]
        self._at += size
        return raw.decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self._array()
        if kind not in SCALARS:
            raise _Broken(f"unknown value type {kind}")
        return self.number(SCALARS[kind])

    def _array(self) -> list[Any] | None:
        kind, count = self.number("I"), self.number("Q")
        if kind == STRING:
            for _ in range(count):
                size = self.number("Q")
                self._need(size)
                self._at += size
            return None
        if kind not in SCALARS:
            raise _Broken(f"unknown array type {kind}")
        size = struct.calcsize("<" + SCALARS[kind]) * count
        self._need(size)
        values = None
        if count <= KEPT_ARRAY:
            values = list(struct.unpack_from(f"<{count}{SCALARS[kind]}", self._data, self._at))
        self._at += size
        return values

    def _need(self, size: int) -> None:
        if size > self._end - self._at:
            raise _Broken("it ends inside its header")


def read_header(path: str) -> dict[str, Any]:
    """Metadata of the GGUF at ``path``. Raises `StartupError` with one line that says what to do."""
    file = Path(path)
    if not file.exists():
        raise StartupError(f"no model file at {path}; check --model")
    if not file.is_file():
        raise StartupError(f"{path} is not a file; --model takes one GGUF file")
    try:
        with file.open("rb") as handle:
            if handle.read(4) != MAGIC:
                raise StartupError(f"{path} is not a GGUF file; convert the model to GGUF or pick another file")
            with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(_Reader(data))
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}; check the file's permissions") from None
    except _Broken as error:
        raise StartupError(f"{path} is broken ({error}); download it again") from None


def _read(reader: _Reader) -> dict[str, Any]:
    version = reader.number("I")
    if version not in VERSIONS:
        raise _Broken(f"GGUF version {version} is unknown")
    tensors, entries = reader.number("Q"), reader.number("Q")
    if entries > MAX_ENTRIES or tensors > MAX_ENTRIES:
        raise _Broken("its counts are absurd")
    found: dict[str, Any] = {}
    for _ in range(entries):
        key = reader.text()
        found[key] = reader.value(reader.number("I"))
    if "general.architecture" not in found:
        raise _Broken("it names no architecture")
    return found
