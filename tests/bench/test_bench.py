"""The bench as a whole: its options, and one quick run on a tiny model with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headstart.bench import main
from headstart.bench.catalogue import NAMES
from headstart.bench.programme import SCENARIOS, chosen, row_ids
from headstart.bench.stage import QUICK, Sizes
from headstart.types import MemoryKind


def test_rows_have_names_of_their_own_and_the_help_explains_each() -> None:
    assert len(set(row_ids())) == len(row_ids())
    text = main._parser().format_help()
    assert all(f"{row:<15} {what}" in text for scenario in SCENARIOS for row, what in scenario.rows.items())


def test_the_help_needs_no_measuring_package_and_fits_a_terminal() -> None:
    code = "import sys; sys.modules |= dict.fromkeys(['gguf', 'psutil', 'matplotlib'])\n"
    code += "from headstart.bench.main import main; main(['--help'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=os.environ | {"COLUMNS": "80"}
    )
    assert done.returncode == 0, done.stderr
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "burst-unmarked" in done.stdout


def test_attention_models_are_spared_what_is_about_states() -> None:
    every = frozenset[str]()
    attention = {row for s in chosen(MemoryKind.ATTENTION, every) for row in s.rows}
    assert "third" in attention
    assert not attention & {"turn", "new-day-first", "keeping"}
    assert len(chosen(MemoryKind.HYBRID, every)) == len(SCENARIOS)
    assert [list(s.rows) for s in chosen(MemoryKind.HYBRID, frozenset({"cells"}))] == [["burst", "cells"]]


@pytest.mark.parametrize("sizes", [Sizes(), QUICK])
def test_the_cache_has_room_for_four_copies(sizes: Sizes) -> None:
    assert sizes.cells >= 4 * sizes.head + sizes.cold
    assert sizes.cells % 1024 == 0


@pytest.mark.parametrize(
    "argv", [["--models", "huge"], ["--only", "speed"], ["--head", "5"], ["--peer", "http://x"], ["--what"]]
)
def test_options_that_make_no_sense_are_named(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(argv)
    assert caught.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_a_folder_that_cannot_be_is_named_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main.main(["--out", str(tmp_path / "file" / "out")]) == 2
    assert capsys.readouterr().err.startswith("error: --out")


@pytest.mark.timeout(120)
def test_a_quick_run(tmp_path: Path) -> None:
    """Sharing on the model that needs the most for it; timings on a busy machine prove nothing, counts do."""
    only = "burst,cells,third,overhead,turn,tool-loop,tool-loop-head"
    command = [sys.executable, "-m", "headstart", "bench", "--quick", "--models", "hybrid", "--threads", "1"]
    done = subprocess.run(
        [*command, "--only", only, "--out", str(tmp_path)], capture_output=True, text=True, timeout=110
    )
    assert done.returncode in (0, 1), done.stderr
    (model,) = json.loads((tmp_path / "bench.json").read_text())["models"]
    rows = {row["id"]: row for row in model["rows"]}
    assert model["failures"] == {}
    assert set(rows) == set(only.split(","))
    for counted in ("cells", "turn", "tool-loop", "tool-loop-head"):
        assert rows[counted]["met"], rows[counted]
    assert rows["third"]["measured"] > 0
    assert "Traceback" not in done.stderr
    assert "NOT MET" in done.stdout or done.returncode == 0
    assert NAMES["hybrid"] in done.stdout
