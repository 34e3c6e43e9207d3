"""One event, one line, whatever its fields hold."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import get_args

import pytest
import structlog

from headstart import events
from headstart.ops.log import EventLog, Format, Level
from headstart.types import FinishReason

DONE = events.Done("r1", FinishReason.STOP, prompt_tokens=10, generated=5, predicted_ms=12.3456)


def lines(form: Format, level: Level, *happened: events.Event) -> list[str]:
    out = io.StringIO()
    log = EventLog(form, level, out)
    for event in happened:
        log.handle(event)
    return out.getvalue().splitlines()


def test_json_lines_carry_every_field() -> None:
    (line,) = lines("json", "info", DONE)
    record = json.loads(line)
    assert record.pop("timestamp").endswith("Z")
    assert record == {
        "event": "done",
        "level": "info",
        "id": "r1",
        "reason": "stop",
        "prompt_tokens": 10,
        "generated": 5,
        "predicted_ms": 12.35,
    }


def test_pretty_lines_are_for_people() -> None:
    (line,) = lines("pretty", "info", DONE)
    assert "[info" in line
    assert "done" in line
    assert "generated=5" in line
    assert "\x1b" not in line  # colour is for terminals


def test_levels() -> None:
    step = events.Stepped(1, 2, 3.0)
    failed = events.Done("r2", None, 1, 0, 0.0)
    assert lines("json", "info", step) == []
    assert len(lines("json", "debug", step)) == 1
    assert lines("json", "warning", DONE) == []
    assert json.loads(lines("json", "warning", failed)[0])["level"] == "warning"
    assert lines("json", "error", events.TierFailed("r", "x")) == []


@pytest.mark.parametrize("form", ["pretty", "json"])
def test_a_field_cannot_start_a_line_or_steer_a_terminal(form: Format) -> None:
    hostile = events.Missed("r1", "differs at\n2026 [error] forged \x1b[2J\r", 5, 6)
    (line,) = lines(form, "debug", hostile)
    assert "\x1b" not in line
    assert "\r" not in line
    assert "forged" in line


def test_every_event_has_a_level_of_its_own() -> None:
    from headstart.ops.log import _LEVELS

    assert set(_LEVELS) == set(get_args(events.Event))


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    ours = logging.getLogger("headstart")
    before = (logger.handlers[:], logger.level, ours.level)
    yield logger
    logger.handlers[:], level, our_level = before
    logger.setLevel(level)
    ours.setLevel(our_level)
    structlog.reset_defaults()


def test_everything_logged_elsewhere_comes_out_the_same_way(root: logging.Logger) -> None:
    out = io.StringIO()
    EventLog("json", "info", out).install()
    structlog.get_logger("headstart.client").error("the worker died", status=-6)
    logging.getLogger("headstart.client").info("worker is back")
    logging.getLogger("uvicorn.access").info("GET /")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request %s", "received\n")
    try:
        raise ValueError("inner")
    except ValueError:
        logging.getLogger("asyncio").exception("task failed")
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    assert records[0]["status"] == -6
    assert [(record["event"], record["level"]) for record in records] == [
        ("the worker died", "error"),
        ("worker is back", "info"),
        ("Invalid HTTP request received\n", "warning"),
        ("task failed", "error"),
    ]
    assert "ValueError: inner" in records[-1]["traceback"]
