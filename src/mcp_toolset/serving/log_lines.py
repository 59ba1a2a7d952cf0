"""`json_line`: a log record as a line of JSON, for the log of a process and `--log-format json`.

Its fields have the names that they have in the audit log: `time`, `tool`, `server`, `client`, `id`, `trace`.
"""

from __future__ import annotations

import io
import json
import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

from mcp_toolset.context.spans import trace_ids
from mcp_toolset.tools.hidden_text import plain_to_see
from mcp_toolset.tools.source import STDERR_LOGGER

__all__ = ["JsonFormatter", "JsonStream", "json_line", "kept_level", "plain_line"]

_COMPLAINT: Final = "mcp-toolset: "

LONGEST: Final = 4_000
"""Characters of a message, or of a traceback, that a line keeps."""

FIELDS: Final = ("view", "server", "tool", "client", "id", "trace", "span", "error")
"""Fields that a record may have in its `extra`; its line then has them as well."""

_OF_SERVERS: Final = (f"{STDERR_LOGGER}.", "mcp_toolset.upstream.")
"""The loggers whose last part is the name of a mounted server."""


def kept_level(record: logging.LogRecord) -> int:
    """The level of a record in a log that is read later.

    On stderr a server that is down is told of once, and its own stderr is for `-vv`. In a log both are
    searched for.
    """
    if record.name.startswith(_OF_SERVERS[0]):
        return max(record.levelno, logging.INFO)
    return max(record.levelno, record.__dict__.get("kept_level", 0))


def json_line(record: logging.LogRecord, clear: Callable[[str], str]) -> str:
    """A record as JSON, without a line break; `clear` removes secrets from a text."""
    fields: dict[str, Any] = {"logger": record.name}
    for prefix in _OF_SERVERS:
        if record.name.startswith(prefix):
            fields["server"] = record.name.removeprefix(prefix)
    known = {**trace_ids(), **{name: value for name, value in record.__dict__.items() if value}}
    fields |= {name: _short(clear(_begin(str(known[name])))) for name in FIELDS if known.get(name)}
    if record.exc_info and (fault := record.exc_info[1]) is not None:
        fields["error"] = _short(clear(_begin(f"{type(fault).__name__}: {fault}")))
        fields["traceback"] = _last(clear(_end(logging.Formatter().formatException(record.exc_info))))
    elif record.exc_text:
        fields["traceback"] = _last(clear(_end(record.exc_text)))
    level = logging.getLevelName(kept_level(record)).lower()
    return plain_line(level, _short(clear(_begin(record.getMessage()))), record.created, **fields)


def plain_line(level: str, message: str, at: float | None = None, **fields: Any) -> str:
    """A line of JSON from its parts."""
    seconds = time.time() if at is None else at
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    members = {
        "time": f"{stamp}.{int(seconds % 1 * 1000):03d}Z",
        "level": level,
        "message": message,
        **fields,
    }
    return plain_to_see(json.dumps({**members, "pid": os.getpid()}, ensure_ascii=False))


def _begin(text: str) -> str:
    """The beginning of a text, long enough that no secret is cut where it is looked for."""
    return text[: 4 * LONGEST]


def _end(text: str) -> str:
    return text[-4 * LONGEST :]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _last(text: str) -> str:
    return text if len(text) <= LONGEST else f"…{text[-LONGEST:]}"


class JsonFormatter(logging.Formatter):
    """Formats each record as `json_line` does."""

    def __init__(self, clear: Callable[[str], str]) -> None:
        """Format; `clear` removes secrets from a text."""
        super().__init__()
        self._clear = clear

    def format(self, record: logging.LogRecord) -> str:
        return json_line(record, self._clear)


class JsonStream(io.TextIOBase):
    """A stderr for text: each line that is written becomes a line of JSON."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`."""
        self._stream = stream
        self._rest = ""

    def write(self, text: str, /) -> int:
        """Write the lines that are whole; keep the rest for the next time."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(str.strip, lines):
            # The command line says so of what is wrong.
            level = "warning" if line.startswith(_COMPLAINT) else "info"
            self.say(level, line.removeprefix(_COMPLAINT))
        return len(text)

    def say(self, level: str, message: str) -> None:
        """Write a line of a level."""
        self._stream.write(plain_line(level, message, logger="mcp_toolset.cli") + "\n")
        self._stream.flush()
