"""The vocabulary: names that every layer uses. Imports nothing of ours.

A *token* is an id of the model's vocabulary. A *position* counts tokens from the start of a prompt, so the prefix
"at position p" is ``tokens[:p]``. A *cell* is the library's storage of one token's keys and values; sequences that
share a prefix share its cells. A *sequence* is one of the library's sequence ids. A *holder* is a sequence that no
request runs on: it pins a prefix so that later prompts can attach to it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

RequestId = str
SeqId = int
Token = int


class MemoryKind(StrEnum):
    """What a model remembers per sequence, hence where a prefix of it may be cut."""

    ATTENTION = "attention"
    SLIDING = "sliding-window"
    HYBRID = "hybrid"
    RECURRENT = "recurrent"
    UNKNOWN = "unknown"


class Source(StrEnum):
    """Where a request's reused prefix came from."""

    ATTACH = "attach"  # a sequence that was running
    WAIT = "wait"  # a running sequence whose prefill the request waited for
    HOLDER = "holder"  # an idle sequence
    SNAPSHOT = "snapshot"  # a saved recurrent state under borrowed cells
    NONE = "none"


class FinishReason(StrEnum):
    STOP = "stop"  # the model ended its turn, or a stop string came
    LENGTH = "length"  # max_tokens or the context's end
    ABORT = "abort"  # the client left


class CutReason(StrEnum):
    """Why a prefill pauses at a position and keeps the prefix there."""

    HEAD = "head"  # end of tools + leading system messages
    EXPLICIT = "explicit"  # a mark in the request
    LAST_PART = "last-part"  # end of the last content part
    LAST_USER = "last-user"  # start of the last user message
    GENERATION = "generation"  # before the generation prompt
    GEOMETRIC = "geometric"  # a fixed distance before the head's end
    DIVERGENCE = "divergence"  # where another prompt parted from this path
    INTERVAL = "interval"  # every so many tokens of a long prompt


class Cut(msgspec.Struct, frozen=True):
    """Pause the prefill after ``position`` tokens. ``ttl`` (seconds) asks to keep the prefix at least that long."""

    position: int
    reason: CutReason
    ttl: float | None = None
