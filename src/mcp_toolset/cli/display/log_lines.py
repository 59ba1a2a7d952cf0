"""Lines of logs for people: short and coloured on a terminal, whole in a file or pipe."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Final, TextIO

import click

from mcp_toolset.cli.display.output import one_line, printable
from mcp_toolset.serving.log_reading import LogLine
from mcp_toolset.tools.text.screen import fitted

__all__ = ["LogView"]

_COLOURS: Final = {"debug": "bright_black", "warning": "yellow", "error": "red", "critical": "red"}
_INDENT: Final = "    "


class LogView:
    """Writes lines to a stream."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`; on a terminal, a heading tells the day and the process where these change."""
        self._stream = stream
        self._is_screen = stream.isatty()
        self._coloured = (
            self._is_screen and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        self._heading = ""

    def show(self, line: LogLine) -> None:
        """Write a line, and the traceback that belongs to it."""
        text = self._on_screen(line) if self._is_screen else self._in_pipe(line)
        trace = printable(line.text("traceback")).rstrip()
        if trace:
            text += "\n" + "\n".join(_INDENT + each for each in trace.split("\n"))
        self._stream.write(text + "\n")
        self._stream.flush()

    def _in_pipe(self, line: LogLine) -> str:
        where = f"{_short(line)}[{one_line(line.text('pid'))}]"
        return f"{one_line(line.text('time'))} {one_line(line.text('level')).upper()} {where} {_said(line)}"

    def _on_screen(self, line: LogLine) -> str:
        at = _local(line)
        heading = f"{at:%Y-%m-%d} {_short(line)} (process {one_line(line.text('pid'))})"
        above = (
            "" if heading == self._heading else self._painted(fitted(heading, self._stream), bold=True) + "\n"
        )
        self._heading = heading
        level = one_line(line.text("level"))
        first, _, rest = fitted(f"{at:%H:%M:%S} {level} {_said(line)}", self._stream).partition("\n")
        below = "".join(f"\n{each}" for each in rest.split("\n") if rest)
        return above + self._painted(first + below, fg=_COLOURS.get(level))

    def _painted(self, text: str, *, fg: str | None = None, bold: bool | None = None) -> str:
        return click.style(text, fg=fg, bold=bold) if self._coloured and (fg or bold) else text


def _said(line: LogLine) -> str:
    server, message, error = (one_line(line.text(name)) for name in ("server", "message", "error"))
    if line.text("logger").startswith("mcp_toolset.stderr."):
        said = printable(line.text("message")).replace("\n", " ")
        return f"{server} stderr: {said}"
    about = f"{server}: " if server and not message.startswith((f"{server}:", f"{server} ")) else ""
    return about + message + (f" ({error})" if error and error not in message else "")


def _short(line: LogLine) -> str:
    return one_line(Path(line.served).name or "?")


def _local(line: LogLine) -> datetime:
    try:
        return datetime.fromisoformat(line.text("time")).astimezone()
    except ValueError:
        return datetime.fromtimestamp(0).astimezone()
