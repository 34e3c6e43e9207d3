"""Broken, cut and foreign model files: one line each, never an abort."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headstart.engine import model
from headstart.engine.model import load
from headstart.engine.settings import EngineSettings
from headstart.engine.vocab import Vocabulary
from headstart.errors import StartupError


def complaint(path: Path | str, **settings) -> str:
    with pytest.raises(StartupError) as caught:
        load(EngineSettings(model=str(path), **settings))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_missing_and_foreign_files(tmp_path):
    assert "no model file" in complaint(tmp_path / "none.gguf")
    assert "not a file" in complaint(tmp_path)
    (tmp_path / "text.gguf").write_text("hello, this is no model")
    assert "not a GGUF" in complaint(tmp_path / "text.gguf")
    (tmp_path / "empty.gguf").touch()
    assert "not a GGUF" in complaint(tmp_path / "empty.gguf")


@pytest.mark.parametrize("share", [0.00001, 0.001, 0.05, 0.5, 0.999])
def test_cut_files(tiny_model, tmp_path, share):
    whole = Path(tiny_model("llama")).read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: int(len(whole) * share)])
    complaint(path, n_ctx=512)
    with pytest.raises(StartupError):
        Vocabulary(str(path))


def test_damaged_headers_never_abort(tiny_model, tmp_path):
    # In a process of its own: an abort would take the test run with it.
    code = """
import random, sys
from pathlib import Path
from headstart.engine.vocab import Vocabulary
from headstart.errors import StartupError
whole, path = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
rng = random.Random(3)
for _ in range(40):
    raw = bytearray(whole)
    for _ in range(4):
        raw[rng.randrange(4, 1500)] = rng.randrange(256)
    path.write_bytes(raw)
    try:
        Vocabulary(str(path))
    except StartupError as error:
        assert "\\n" not in str(error), error
print("alive")
"""
    args = [sys.executable, "-c", code, tiny_model("llama"), str(tmp_path / "bad.gguf")]
    done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "alive", done.stderr[-500:]


def test_settings_that_cannot_be(tiny_model):
    path = tiny_model("llama")
    assert "--cache-type-k" in complaint(path, type_k="q7_7")
    assert "flash attention" in complaint(path, type_v="q8_0", flash_attn="off")
    assert "--ctx-size" in complaint(path, n_ctx=2**31 - 1)
    assert "--parallel" in complaint(path, n_seq=1000)


@pytest.mark.parametrize("arch", ["llama", "qwen35", "gemma3", "mamba2"])
def test_the_smallest_settings_load(tiny_model, arch):
    # In a process of its own: where the library has less room than sequences it aborts.
    code = """
import sys
from headstart.core.plan import Prefill, Step
from headstart.engine.llama import LlamaEngine
from headstart.engine.settings import EngineSettings
from headstart.messages import Sampling
e = LlamaEngine(EngineSettings(model=sys.argv[1], n_ctx=256, n_batch=32, n_ubatch=64, n_threads=1, n_threads_batch=1))
e.open("a", Sampling(), [])
step = Step(prefills=(Prefill("a", 0, 0, tuple(range(20, 52)), sample=True),))
print([pick.request for pick in e.run(step).picks])
e.shutdown()
"""
    done = subprocess.run([sys.executable, "-c", code, tiny_model(arch)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout == "['a']\n"


@pytest.mark.parametrize(
    ("gpu", "layers", "said"),
    [
        (False, -1, "CPU only: this build of llama.cpp has no GPU support or finds no GPU (README: GPU)"),
        (False, 99, "(README: GPU); warning: -ngl 99 has no effect"),
        (True, -1, "GPU, every layer"),
        (True, 20, "GPU, up to 20 layers"),
        (True, 0, "CPU, as -ngl 0 asks"),
    ],
)
def test_the_device_that_computes_is_named(monkeypatch, gpu, layers, said):
    monkeypatch.setattr(model.C, "llama_supports_gpu_offload", lambda: gpu)
    assert model._device(layers).endswith(said)


def test_context_size_follows_the_model(tiny_model):
    loaded = load(EngineSettings(model=tiny_model("llama"), n_threads=1))
    assert loaded.info.n_ctx == loaded.info.n_ctx_train == 32768
    assert loaded.info.kv_bytes_per_token == 4 * 64 * 2 * 2
    assert loaded.info.sharing
    loaded.free()
