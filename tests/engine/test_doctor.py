"""The parity suite holds on every architecture, and it can fail."""

from __future__ import annotations

import pytest

from headstart.bench.generate import ARCHITECTURES
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
    assert "hybrid" in said and "Sharing is safe" in said and "NOT held" not in said
