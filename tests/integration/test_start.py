"""A start that cannot succeed, as a process: one line that names the fault, exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest


def complaint(servers, *arguments: str) -> str:
    server = servers.start(*arguments)
    assert server.process.wait(timeout=30) == 2, server.log
    (line,) = server.log.splitlines()
    assert line.startswith("error: ")
    return line


def test_missing_file(servers):
    assert "/no/such.gguf" in complaint(servers, "-m", "/no/such.gguf")


@pytest.mark.parametrize("share", [0.02, 0.9])
def test_cut_file(servers, tiny_model, tmp_path, share):
    whole = Path(tiny_model("llama")).read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: int(len(whole) * share)])
    assert "cut.gguf" in complaint(servers, "-m", str(cut))


def test_port_in_use(servers, tiny_model):
    taken = servers.up("-m", tiny_model("llama"))
    assert str(taken.port) in complaint(servers, "-m", tiny_model("llama"), "--port", str(taken.port))
    assert taken.complete(prompt="still there")


def test_too_little_memory(servers, tiny_model):
    assert "--ctx-size" in complaint(servers, "-m", tiny_model("llama"), "-c", "2000000000")
