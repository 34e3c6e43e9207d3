"""A start that cannot succeed, as a process: one line that names the fault, exit code 2."""

from __future__ import annotations

import subprocess
import sys
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


def limited(limit: str, tiny_model) -> subprocess.CompletedProcess[str]:
    """A start under a limit of the system's, in the shell's words."""
    command = [sys.executable, "-m", "headstart", "serve", "-m", tiny_model("llama"), "--port", "0", "-t", "1"]
    shell = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh"]
    return subprocess.run(shell + command, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep to this limit")
def test_too_little_memory_for_threads(tiny_model):
    ended = limited("-v 1000000", tiny_model)
    assert ended.returncode == 2 and ended.stderr.startswith("error: ") and ended.stderr.count("\n") == 1, ended.stderr


def test_too_few_files(tiny_model):
    ended = limited("-n 40", tiny_model)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith("error: the system allows 40 open files")


def test_too_little_memory(servers, tiny_model):
    assert "--ctx-size" in complaint(servers, "-m", tiny_model("llama"), "-c", "2000000000")
