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
    notes=("device: CPU only: no GPU", "cells bounded by memory"),
)


def text(config: Config, model: ModelInfo = MODEL) -> dict[str, str]:
    return dict(banner.facts(config, model))


def test_what_an_operator_asks_first() -> None:
    lines = text(Config(port=9000, parallel=3))
    assert lines["model"] == "/models/small.gguf (llama 135M Q4_1, 98.0 MiB)"
    assert lines["device"] == "CPU only: no GPU"
    assert lines["memory"].startswith("attention")
    assert lines["context"] == "8,192 tokens for all sessions together; the model was trained on 2,048"
    assert lines["cache"] == "180.0 MiB, 22.5 KiB a token (keys f16, values f16)"
    assert lines["sharing"].startswith("on")
    assert lines["requests"].startswith("3 at a time")
    assert lines["note"] == "cells bounded by memory"
    assert lines["agents"] == "base URL http://127.0.0.1:9000/v1"


def test_what_is_off_says_why() -> None:
    assert text(Config(slot_attach=False))["sharing"] == "off: --no-slot-attach"
    unproven = msgspec.structs.replace(MODEL, sharing=False, sharing_off_reason="not proven yet")
    assert text(Config(), unproven)["sharing"] == "off: not proven yet"
    assert "--no-auto-prefix" in text(Config(auto_prefix=False))["sharing"]


@pytest.mark.parametrize(
    ("host", "who"),
    [
        ("127.0.0.1", "this machine only"),
        ("localhost", "this machine only"),
        ("0.0.0.0", "everyone who reaches this machine"),
        ("10.0.0.7", "everyone who reaches 10.0.0.7"),
    ],
)
def test_an_open_server_is_called_open(host: str, who: str) -> None:
    assert text(Config(host=host))["access"] == f"{who}, without an API key"
    assert text(Config(host=host, api_key=("k",)))["access"] == f"{who}, with the API key"
    assert text(Config(host=host, api_key=("k", "l")))["access"] == f"{who}, with one of 2 API keys"


def test_the_engines_line_about_the_cache_is_not_repeated() -> None:
    model = msgspec.structs.replace(MODEL, notes=("cache: 8192 cells, 180 MiB (f16/f16)", "more: 5"))
    lines = banner.facts(Config(), model)
    assert [note for name, note in lines if name == "note"] == ["more: 5"]
    assert sum("8192" in text.replace(",", "") for _, text in lines) == 1


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
    for word in ("small.gguf", "attention", "8,192", "[note]", "http://127.0.0.1:8080/v1"):
        assert word in out.getvalue()


def test_a_long_path_is_whole_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out, path = Terminal(), "/models/" + "a-long-name-of-a-folder/" * 5 + "model.gguf"
    banner.show(banner.facts(Config(), msgspec.structs.replace(MODEL, path=path)), out)
    assert path in out.getvalue()
    assert "heads of 256 tokens and more are kept" in out.getvalue()


def test_every_memory_kind_has_its_words() -> None:
    for kind in MemoryKind:
        assert kind.value in text(Config(), msgspec.structs.replace(MODEL, kind=kind))["memory"]
