"""What a run leaves behind, from canned results."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from headstart.bench import report
from headstart.bench.drive import SESSION_NAMES, Session
from headstart.bench.judge import Row
from headstart.bench.peer import Comparison
from headstart.bench.report import ModelResult

FACTS = {"date": "2026-11-29 12:00 UTC", "machine": "a machine", "threads": "2", "commit": "0123456789ab"}


def result() -> ModelResult:
    found = ModelResult("dense", "llama", "attention", 14_000, 42_000_000)
    found.rows = [
        Row("third", "third session", 0.3, 0.34, "s", note="why"),
        Row("cells", "cells", 14_061, 14_060, "cells"),
        Row("sessions", "siblings", 0.31, None, "s"),
    ]
    found.failures = {"gap": "a session ended"}
    found.sessions = {
        "headstart": [
            Session(n, t, 14_000, 13_980, "attach") for n, t in zip(SESSION_NAMES, (24, 0.3, 0.3, 0.4), strict=True)
        ],
        "sharing off": [
            Session(n, t, 14_000, 0, "none") for n, t in zip(SESSION_NAMES, (24, 50, 75, 100), strict=True)
        ],
    }
    found.peer = [
        Comparison("third", "third session", 0.3, 48.0, "s"),
        Comparison("decode-1", "decode", 40.0, 20.0, "tokens/s", more_is_better=True),
    ]
    return found


def test_json_has_every_number_with_what_it_needs_to_mean_anything(tmp_path: Path) -> None:
    written = report.write(tmp_path / "new" / "folder", FACTS, [result()])
    assert [path.name for path in written] == ["bench.json", "bench.md", "bench.png"]
    content = json.loads(written[0].read_text())
    assert content["facts"] == FACTS
    (model,) = content["models"]
    assert [(row["id"], row["met"]) for row in model["rows"]] == [("third", True), ("cells", False), ("sessions", None)]
    assert model["failures"] == {"gap": "a session ended"}
    assert [c["times"] for c in model["peer"]] == [pytest.approx(160.0), 2.0]
    assert model["sessions"]["sharing off"][3]["first"] == 100


def test_a_row_in_one_line() -> None:
    assert [report.line(row) for row in result().rows] == [
        "third session: 300 ms  ≤ 340 ms  met",
        "cells: 14,061  ≤ 14,060  NOT MET",
        "siblings: 310 ms",
    ]


def test_markdown_says_what_was_not_met(tmp_path: Path) -> None:
    page = report.markdown(FACTS, [result()], "bench.png")
    assert "| third session | 300 ms | ≤ 340 ms | met | why |" in page
    assert "| cells | 14,061 | ≤ 14,060 | NOT MET |  |" in page
    assert "| gap | | | NOT MET | could not be measured: a session ended |" in page
    assert "![Time to first token of four sessions](bench.png)" in page
    assert "| third session | 300 ms | 48.00 s | 160.00 |" in page
    assert all(f"{name}: {value}" in page for name, value in FACTS.items())
    assert "bench.png" not in report.markdown(FACTS, [result()], None)


def test_the_terminal_shows_the_same() -> None:
    out = io.StringIO()
    report.show(Console(width=140, file=out), result())
    text = out.getvalue()
    for words in ("third session", "NOT MET", "14,061", "a session ended", "beside the peer", "160.00"):
        assert words in text


def test_a_picture_is_drawn_for_one_model_and_for_several(tmp_path: Path) -> None:
    for count in (1, 3):
        path = tmp_path / f"{count}.png"
        from headstart.bench.plot import draw

        draw([result() for _ in range(count)], FACTS, path)
        assert path.read_bytes()[:4] == b"\x89PNG"
        assert path.stat().st_size > 20_000


def test_dots_that_would_lie_on_one_another_are_set_apart() -> None:
    from headstart.bench.plot import _panel_title, _rows

    first, later = ({who: found[y] for who, found in result().sessions.items()} for y in (0, 1))
    assert _rows(0, first) == {"headstart": -0.18, "sharing off": 0.18}
    assert _rows(1, later) == {"headstart": 1.0, "sharing off": 1.0}
    assert _panel_title(result()) == "Dense, 42 MB"


def test_without_sessions_there_is_no_picture(tmp_path: Path) -> None:
    bare = ModelResult("dense", "llama", "attention", 14_000, rows=result().rows)
    assert [path.name for path in report.write(tmp_path, FACTS, [bare])] == ["bench.json", "bench.md"]
    assert "![" not in (tmp_path / "bench.md").read_text()
