"""One event or one request, one line, whatever its fields hold."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import get_args

import pytest
import structlog

from headstart import events
from headstart.ops.log import EventLog, Format, Level
from headstart.ops.summary import Summaries
from headstart.types import FinishReason, Source

DONE = events.Done("r1", FinishReason.STOP, prompt_tokens=10, generated=5, predicted_ms=12.3456)


def lines(form: Format, level: Level, *happened: events.Event) -> list[str]:
    out = io.StringIO()
    log = EventLog(form, level, out)
    for event in happened:
        log.handle(event)
    return out.getvalue().splitlines()


def test_json_lines_carry_every_field() -> None:
    _, line = lines("json", "debug", DONE)
    record = json.loads(line)
    assert record.pop("timestamp").endswith("Z")
    assert record == {
        "event": "done",
        "level": "debug",
        "id": "r1",
        "reason": "stop",
        "prompt_tokens": 10,
        "generated": 5,
        "predicted_ms": 12.35,
    }


LIFE = (
    events.Queued("chatcmpl-KFkH0mCYiTmAhrxzoT5u-oWY/0", 14_213),
    events.Attached("chatcmpl-KFkH0mCYiTmAhrxzoT5u-oWY/0", Source.HOLDER, 7, 13_998),
    events.Missed(
        "chatcmpl-KFkH0mCYiTmAhrxzoT5u-oWY/0", events.Miss.DIFFERS, "differs from ... at token 13998", 13_998, 215
    ),
    events.FirstToken("chatcmpl-KFkH0mCYiTmAhrxzoT5u-oWY/0", 0.7123, 344.5678, cached=13_998, computed=215),
    events.Done("chatcmpl-KFkH0mCYiTmAhrxzoT5u-oWY/0", FinishReason.LENGTH, 14_213, 400, 32_456.789),
)


def test_a_request_is_one_short_line_for_people() -> None:
    (line,) = lines("pretty", "info", *LIFE)
    stamp, _, text = line.partition(" [info] ")
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d:\d\d", stamp)
    assert text.rstrip() == (
        "KFkH0m prompt 14213, cached 13998 (holder), first token 345 ms, 400 tokens at 12.3/s, length; differs"
    )
    assert len(line.rstrip()) <= 125
    assert "\x1b" not in line  # colour is for terminals


def test_every_field_of_a_request_is_there_for_machines() -> None:
    records = [json.loads(line) for line in lines("json", "debug", *LIFE)]
    assert [record["event"] for record in records] == ["queued", "attached", "missed", "first token", "request", "done"]
    assert records[2]["code"] == "differs"
    assert records[2]["reason"] == "differs from ... at token 13998"


def test_a_request_is_one_record_for_machines() -> None:
    (line,) = lines("json", "info", *LIFE)
    record = json.loads(line)
    assert record.pop("timestamp")
    assert record == {
        "event": "request",
        "level": "info",
        "id": "chatcmpl-KFkH0mCYiTmAhrxzoT5u-oWY/0",
        "prompt": 14_213,
        "cached": 13_998,
        "source": "holder",
        "miss": "differs",
        "miss_at": 13_998,
        "reason": "differs from ... at token 13998",
        "first_token_ms": 345.28,
        "tokens": 400,
        "tokens_per_s": 12.32,
        "finish": "length",
    }


@pytest.mark.parametrize(
    ("life", "said"),
    [
        ([events.Done("r1", FinishReason.ABORT, 10, 0, 0.0)], "[info] r1 prompt 10, abort"),
        ([events.Done("r1", None, 10, 0, 0.0)], "[warning] r1 prompt 10, failed"),
        (
            [
                events.Queued("c-1234567/2", 10),
                events.Missed("c-1234567/2", events.Miss.EXACT, "the last tokens ...", 7, 10),
                events.FirstToken("c-1234567/2", 1.0, 2.0, cached=0, computed=10),
                events.Done("c-1234567/2", FinishReason.STOP, 10, 1, 0.0),
            ],
            "[info] 123456/2 prompt 10, cached 0, first token 3 ms, 1 token, stop; exact at 7",
        ),
    ],
)
def test_a_request_says_what_it_came_to(life: list[events.Event], said: str) -> None:
    (line,) = lines("pretty", "info", *life)
    assert line.rstrip().endswith(said)


def test_nothing_is_remembered_of_a_request_that_is_over() -> None:
    summaries = Summaries()
    for event in (*LIFE, *LIFE[1:-1]):  # some come late
        summaries.note(event)
    assert summaries._running == {}


def test_other_lines_for_people_are_short_too() -> None:
    (line,) = lines("pretty", "debug", events.Waited("chatcmpl-KFkH0mCYiTmA/0", "chatcmpl-LZ8ULvaxaZF0/0", 700))
    assert line.endswith("[debug] waited       id=KFkH0m leader=LZ8ULv tokens=700")
    (line,) = lines("pretty", "debug", events.Stepped(512, 3, 123.456))
    assert line.endswith("prefill_tokens=512 decode_tokens=3 ms=123.5")


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
    hostile = events.Missed("r1", events.Miss.DIFFERS, "differs at\n2026 [error] forged \x1b[2J\r", 5, 6)
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
