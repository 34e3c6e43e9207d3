"""The parity suite holds on every architecture, and it can fail."""

from __future__ import annotations

import os
import re

import pytest

from headstart import cli, doctor
from headstart.bench.generate import ARCHITECTURES
from headstart.config import Config
from headstart.core.plan import Attach
from headstart.doctor import main
from headstart.engine.llama import LlamaEngine
from headstart.engine.parity import Parity
from headstart.engine.settings import EngineSettings
from headstart.types import MemoryKind


def engine_for(path):
    settings = EngineSettings(model=str(path), n_ctx=4096, n_seq=8, n_threads=1, n_threads_batch=1)
    return LlamaEngine(settings, keep_logits=True)


@pytest.mark.parametrize("arch", list(ARCHITECTURES))
def test_every_check_holds(tiny_model, arch):
    engine = engine_for(tiny_model(arch))
    findings = list(Parity(engine, head=640, tail=5).run())
    engine.shutdown()
    assert [f for f in findings if not f.held] == []
    names = {f.check for f in findings}
    assert ("attach below a donor's end" in names) == (ARCHITECTURES[arch] is MemoryKind.ATTENTION)
    assert ("saved state under borrowed cells" in names) == (arch in ("qwen35", "qwen35moe", "lfm2", "mamba2"))


@pytest.mark.parametrize("arch", ["llama", "qwen35"])
def test_a_wrong_prefix_is_found_out(tiny_model, arch, monkeypatch):
    engine = engine_for(tiny_model(arch))
    parity = Parity(engine, head=640, tail=5)
    right = parity._prefill

    def wrong(seq, tokens, start=0):
        right(seq, [*tokens[:-1], (tokens[-1] + 1) % 1000] if seq == 0 and parity.sharing else tokens, start)

    parity.sharing = False
    share = parity._share
    monkeypatch.setattr(parity, "_prefill", wrong)
    monkeypatch.setattr(parity, "_at_holder", lambda at: _spoilt(parity, at, share))
    held = {f.check: f.held for f in parity.run()}
    engine.shutdown()
    assert held["cold twice"]
    assert not held["attach at a holder"] and not held["attach at a holder, unaligned"]


def _spoilt(parity, at, share):
    """Attach to a prefix whose last token is another one."""
    parity._clear()
    parity.sharing = True
    parity._prefill(0, parity._head[:at])
    parity.sharing = False
    share(Attach("p1", 0, 1, at))
    return parity._say(1, at)


def test_doctor_says_that_all_is_well(tiny_model, capsys):
    assert main(["-m", str(tiny_model("qwen35")), "-t", "1", "--head", "600"]) == 0
    said = capsys.readouterr().out
    assert str(tiny_model("qwen35")) in said  # in one piece, however long
    assert "hybrid" in said and "Sharing is safe" in said and "NOT held" not in said


def test_doctor_computes_as_the_flags_say(tiny_model, capsys):
    flags = "-t 1 -fa on -ctk q8_0 -ctv q8_0 -np 1 --state-slots 1 -b 96 -ub 80 --head 600"
    assert main(["-m", str(tiny_model("qwen35")), *flags.split()]) == 0
    said = capsys.readouterr().out
    assert "q8_0/q8_0" in said and "states: 4 of" in said and "NOT held" not in said
    assert main(["-m", str(tiny_model("gemma3")), "--swa-full", "-t", "1", "-c", "1300", "--head", "600"]) == 0
    said = capsys.readouterr().out
    assert "memory: attention" in said and "attach below" in said and "NOT held" not in said


@pytest.fixture
def examined(monkeypatch):
    """Settings that the checks would have run with."""
    for name in [name for name in os.environ if name.startswith("HEADSTART_")]:
        monkeypatch.delenv(name)
    seen: list[Config] = []
    monkeypatch.setattr(doctor, "_examine", lambda config, head: seen.append(config) or 0)
    return seen


def test_files_and_variables_count_as_for_serve(examined, monkeypatch, tmp_path, demo_model):
    file = tmp_path / "headstart.toml"
    file.write_text(f'model = "{demo_model}"\nport = 9000\nubatch-size = 256\nctx-size = 4096', encoding="utf-8")
    monkeypatch.setenv("HEADSTART_CTX_SIZE", "6000")
    monkeypatch.setenv("HEADSTART_THREADS_BATCH", "3")
    assert main(["--config", str(file), "--cache_type_k", "q8_0"]) == 0
    (config,) = examined
    assert (config.model, config.ubatch_size, config.ctx_size) == (str(demo_model.resolve()), 256, 6000)
    assert (config.threads_batch, config.cache_type_k) == (3, "q8_0")


def test_every_flag_that_changes_what_is_computed_is_one_of_doctors(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    main(["--help"])
    said = re.findall(r"(?<![\w-])-{1,2}\w[\w-]*", capsys.readouterr().out)
    known = "-m -hf -c -ctk -ctv -np --state-slots --swa-full -b -ub -t -tb -ngl -fa --config --head"
    assert set(known.split()) <= set(said)
    assert "--port" not in said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--head 10", "--head"),
        ("-ctk q9", "--cache-type-k"),
        ("--prot 1", "--prot"),
        ("-c 1000", "--ctx-size 1000"),
        ("-ctv q8_0 -fa off", "flash attention"),
        ("-m /no/such.gguf", "/no/such.gguf"),
        ("surplus", "surplus"),
    ],
)
def test_bad_options_are_one_line(examined, capsys, arguments, named):
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", *arguments.split()])
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert err.startswith("error: ") and err.count("\n") == 1 and named in err
    assert examined == []
