"""The banner tells what is on, what is off and why."""

from __future__ import annotations

import io

import msgspec
import pytest

from headstart.config import Config
from headstart.messages import ModelInfo
from headstart.ops import banner
from headstart.types import MemoryKind

MODEL = ModelInfo(
    path="/models/small.gguf",
    description="llama 135M Q4_1",
    kind=MemoryKind.ATTENTION,
    n_ctx=8192,
    n_ctx_train=2048,
    n_seq=64,
    n_vocab=100,
    n_embd=64,
    n_params=135_000_000,
    size_bytes=98 * 2**20,
    kv_bytes_per_token=23_040,
    sharing=True,
    notes=("cells bounded by memory",),
)


def text(config: Config, model: ModelInfo = MODEL) -> dict[str, str]:
    return dict(banner.facts(config, model))


def test_what_an_operator_asks_first() -> None:
    lines = text(Config(port=9000, parallel=3))
    assert lines["model"] == "/models/small.gguf (llama 135M Q4_1, 98.0 MiB)"
    assert lines["memory"].startswith("attention")
    assert lines["context"].startswith("8192 cells")
    assert "22.5 KiB each, 180.0 MiB in all" in lines["context"]
    assert lines["sharing"].startswith("on")
    assert lines["requests"].startswith("3 at a time")
    assert lines["note"] == "cells bounded by memory"
    assert lines["agents"] == "base URL http://127.0.0.1:9000/v1"


def test_what_is_off_says_why() -> None:
    assert text(Config(slot_attach=False))["sharing"] == "off: --no-slot-attach"
    unproven = msgspec.structs.replace(MODEL, sharing=False, sharing_off_reason="not proven yet")
    assert text(Config(), unproven)["sharing"] == "off: not proven yet"
    assert "--no-auto-prefix" in text(Config(auto_prefix=False))["sharing"]


@pytest.mark.parametrize(("host", "open_to_all"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_an_open_server_is_called_open(host: str, open_to_all: bool) -> None:
    assert ("open to everyone" in text(Config(host=host))["keys"]) is open_to_all
    assert text(Config(host=host, api_key=("k",)))["keys"] == "1 accepted"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8080"),
        ("::", "http://[::1]:8080"),
        ("::1", "http://[::1]:8080"),
        ("box", "http://box:8080"),
    ],
)
def test_the_address_can_be_opened(host: str, url: str) -> None:
    assert banner.address(Config(host=host)) == url


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_every_line_is_printed(out: io.StringIO) -> None:
    banner.show(banner.facts(Config(), MODEL, ("a [note] of ours",)), out)
    for word in ("small.gguf", "attention", "8192", "[note]", "http://127.0.0.1:8080/v1"):
        assert word in out.getvalue()


def test_every_memory_kind_has_its_words() -> None:
    for kind in MemoryKind:
        assert kind.value in text(Config(), msgspec.structs.replace(MODEL, kind=kind))["memory"]
