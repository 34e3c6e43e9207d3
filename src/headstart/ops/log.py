"""The log: for people a line about each request, for machines each event in JSON.

Both forms have one record of each request at level info; at level debug they have every event.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict
from typing import Any, Literal, TextIO

import msgspec
import structlog

from .. import events
from .summary import Summaries, Summary, short

Format = Literal["pretty", "json"]
Level = Literal["debug", "info", "warning", "error"]

# What an operator reads every day is info: beside these, the record of each request.
_LEVELS: dict[type, Level] = {
    events.Queued: "debug",
    events.Waited: "debug",
    events.Attached: "debug",
    events.Missed: "debug",
    events.Held: "debug",
    events.Evicted: "debug",
    events.Preempted: "info",
    events.Stepped: "debug",
    events.FirstToken: "debug",
    events.Done: "debug",
    events.Usage: "debug",
    events.TierFailed: "warning",
}
_NAMES = {events.FirstToken: "first token", events.TierFailed: "tier failed"}


class EventLog:
    """A subscriber that writes events to ``out`` (default: stderr), `line` writes anything else.

    Of a request that is over both forms write one record: "json" with every field, as of every event, "pretty" as one
    line, and all else in short.
    """

    def __init__(self, form: Format = "pretty", level: Level = "info", out: TextIO | None = None) -> None:
        self._out = out if out is not None else sys.stderr
        self._threshold = _severity(level)
        self._pretty = form == "pretty"
        self._summaries = Summaries()
        self._processors: list[structlog.types.Processor] = [
            structlog.processors.add_log_level,
            *_renderer(form, colors=self._out.isatty()),
        ]
        self._wrapper = structlog.make_filtering_bound_logger(self._threshold)
        self._log = structlog.wrap_logger(
            structlog.PrintLogger(self._out),
            processors=self._processors,
            wrapper_class=self._wrapper,
            cache_logger_on_first_use=True,
        )

    def install(self) -> None:
        """Take in what this process logs elsewhere: structlog's loggers, and the standard library's.

        Of the latter, everything that this package logs from the log's level on, and warnings of others.
        """
        structlog.configure(
            processors=self._processors,
            wrapper_class=self._wrapper,
            logger_factory=lambda *_names: structlog.PrintLogger(self._out),
            cache_logger_on_first_use=False,
        )
        root = logging.getLogger()
        root.addHandler(_Records(self))
        root.setLevel(logging.WARNING)
        logging.getLogger("headstart").setLevel(self._threshold)

    def handle(self, event: events.Event) -> None:
        """Write one event at the level that suits its kind, and the record of its request if that is over."""
        summary = self._summaries.note(event)
        if summary is not None:
            self._write(summary)
            if self._pretty:
                return  # the line of its last event would say nothing more
        level = _LEVELS.get(type(event), "debug")
        # Steps come by the dozen each second: do no work for lines that nobody reads.
        if _severity(level) < self._threshold:
            return
        shown = _in_short if self._pretty else _rounded
        fields = {name: shown(name, value) for name, value in msgspec.structs.asdict(event).items()}
        self.line(level, _NAMES.get(type(event), type(event).__name__.lower()), **fields)

    def _write(self, summary: Summary) -> None:
        """The record of a request; one that failed is a warning."""
        level: Level = "warning" if summary.failed else "info"
        if self._pretty:
            self.line(level, summary.line())
        else:
            self.line(level, "request", **{name: _rounded(name, value) for name, value in asdict(summary).items()})

    def line(self, level: Level, what: str, /, **fields: Any) -> None:
        """Write one line. Field values that hold line breaks or control characters come out escaped."""
        self._log.log(_severity(level), what, **fields)


class _Records(logging.Handler):
    """Takes records of the standard library's logging (ours, uvicorn's, asyncio's) into the same log."""

    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "error" if record.levelno >= logging.ERROR else "warning"
        if record.levelno < logging.WARNING:
            level = "info" if record.levelno >= logging.INFO else "debug"
        fields: dict[str, Any] = {"logger": record.name}
        if record.exc_info:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._log.line(level, record.getMessage(), **fields)


def _renderer(form: Format, *, colors: bool) -> list[structlog.types.Processor]:
    if form == "json":
        stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
        return [stamp, structlog.processors.JSONRenderer()]  # escapes by itself
    clock = structlog.processors.TimeStamper(fmt="%m-%d %H:%M:%S", utc=False)
    console = structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=12, pad_level=False, sort_keys=False)
    return [clock, _one_line, console]


def _one_line(_logger: Any, _method: str, fields: structlog.types.EventDict) -> structlog.types.EventDict:
    """No text in a field can start a line of its own or steer a terminal. A traceback keeps its lines as ``\\n``."""
    for name, value in fields.items():
        if isinstance(value, str) and not value.isprintable():
            fields[name] = value.encode("unicode_escape").decode("ascii")
    return fields


def _rounded(_name: str, value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


def _in_short(name: str, value: Any) -> Any:
    if name in ("id", "leader"):
        return short(value)
    return round(value, 1) if isinstance(value, float) else value


def _severity(level: Level) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
