"""`Output`: the answer of a command goes to stdout, everything else to stderr.

A tool, an imported module or a child process may write to stdout as well. While a command works, all of that
goes to stderr, so that an answer in JSON is valid JSON.

On a terminal of 100 columns or more, rows are a table, if every word fits; else each row is a block. In a
file or a pipe, rows are aligned whatever the width, for `grep` and `awk`.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from mcp_toolset._records import dataclass
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.hidden_text import cleaned, plain_to_see
from mcp_toolset.tools.result import REPLAY_META_KEY
from mcp_toolset.tools.screen import fitted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDE: Final = 100  # the width of a terminal from which rows are drawn as a table
_PROSE: Final = 28  # the least width of a column of text in a table
_GAP: Final = 2

_COLOURS: Final = {
    "ready": "green",
    "stopped": "green",
    "available": "green",
    "ok": "green",
    "done": "green",
    "running": "yellow",
    "starting": "yellow",
    "warning": "yellow",
    "disabled": "dim",
    "closed": "dim",
}
"""Colours by state; any other state is an error."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `prose` may be wrapped, `state` is coloured, and a block shows the name of a `label`."""

    name: str
    prose: bool = False
    state: bool = False
    label: bool = True


def aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    table = [[column.name.upper() for column in columns], *rows]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table)
    return "\n".join(line.rstrip() for line in lines)


def draw(stream: TextIO, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(file=stream, highlight=False, color_system=None if plain else "auto")
    if console.width >= WIDE and _needed(columns, rows) <= console.width:
        _table(console, columns, rows)
    else:
        _blocks(console, columns, rows)


def _needed(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """The width of a table in which only prose is wrapped and no word is cut."""
    needed = 0
    for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
        texts = [word for cell in cells for word in cell.split()] if column.prose else cells
        widest = max(map(len, [column.name, *texts]))
        needed += _GAP + (max(widest, min(_PROSE, max(map(len, cells)))) if column.prose else widest)
    return needed


def _table(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.name, overflow="fold", no_wrap=not column.prose)
    for row in rows:
        table.add_row(*(_cell(column, cell) for column, cell in zip(columns, row, strict=True)))
    console.print(table)


def _blocks(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich.text import Text

    for number, row in enumerate(rows):
        if row[0]:  # else the row is about the one before
            console.print("", end="\n" if number else "")
            _write(console, Text(row[0], "bold"), 0)
        cells = [pair for pair in zip(columns[1:], row[1:], strict=True) if pair[1]]
        facts = [_named(column, cell) for column, cell in cells if not column.prose]
        if facts:
            _write(console, Text(", ").join(facts), 2)
        for column, cell in cells:
            if column.prose:
                _write(console, _named(column, cell), 2)
    console.print()


def _named(column: Column, cell: str) -> Text:
    from rich.text import Text

    return Text.assemble(f"{column.name} ", _cell(column, cell)) if column.label else _cell(column, cell)


def _cell(column: Column, cell: str) -> Text:
    from rich.text import Text

    return Text(cell, _COLOURS.get(cell, "red") if column.state and cell else "")


def _write(console: Console, text: Text, indent: int) -> None:
    """A text wrapped between words; a word longer than a line is not cut."""
    from rich.text import Text

    line = Text()
    for word in text.split(" "):
        if line and indent + line.cell_len + 1 + word.cell_len > console.width:
            console.print(Text(" " * indent).append_text(line), soft_wrap=True)
            line = Text()
        line = Text.assemble(line, " " if line else "", word)
    console.print(Text(" " * indent).append_text(line), soft_wrap=True)


_STDOUT: Final = 1
_STDERR: Final = 2


def printable(text: str) -> str:
    """The text without characters that a terminal would obey or hide; servers may send any."""
    return cleaned(text).replace("\r", "")


def one_line(text: str) -> str:
    return " ".join(printable(text.replace("\r", "\n")).split())


def complain(message: str, *, command: str = "mcp-toolset") -> None:
    note(f"{command}: {message}")


def note(message: str) -> None:
    sys.stderr.write(fitted(one_line(message), sys.stderr) + "\n")
    sys.stderr.flush()


def debugging() -> bool:
    return os.environ.get("MCP_TOOLSET_DEBUG", "") not in ("", "0")


class _OneLine(logging.Formatter):
    """A log record without its traceback, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        fault = record.exc_info[1] if record.exc_info else None
        cause = f" ({type(fault).__name__}: {fault})" if fault is not None else ""
        line = one_line(f"{record.levelname.lower()}: {record.name}: {record.getMessage()}{cause}")
        return fitted(line, sys.stderr)


def log_to_stderr(verbosity: int, *, quiet: bool, formatter: logging.Formatter | None = None) -> None:
    """Send log records to stderr: one `-v` for information, two for everything; `quiet` without warnings."""
    least = logging.CRITICAL if quiet else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    if formatter is not None or not debugging():
        handler.setFormatter(formatter or _OneLine())
    # It takes as long to import as the rest of this module.
    from mcp_toolset.tools.source import PRINTED_LOGGER

    # What keeps a server from starting is told at once, not when its time has passed.
    logging.getLogger(PRINTED_LOGGER).setLevel(logging.WARNING)
    logging.basicConfig(level=(least, logging.INFO, logging.DEBUG)[min(verbosity, 2)], handlers=[handler])


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # it has no descriptor
        return False


@dataclass(frozen=True, slots=True)
class Output:
    """The answer of one command: pure JSON, or text and tables for people."""

    stream: TextIO
    as_json: bool = False

    def json(self, value: Any) -> None:
        """The whole answer as one JSON value; characters that a terminal would obey or hide are escaped.

        NaN and infinities, which JSON does not have, are `null`.
        """
        try:
            text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        except ValueError:
            text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
        self._write(plain_to_see(text))

    def text(self, text: str) -> None:
        """A text: unchanged into a file, printable elsewhere, as a pipe may end at a terminal."""
        self._write(text if _is_file(self.stream) else printable(text))

    def say(self, line: str) -> None:
        line = printable(line)
        self._write(fitted(line, self.stream) if self.stream.isatty() else line)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Rows that fit the terminal, or aligned plain text elsewhere."""
        cells = [[one_line(cell) for cell in row] for row in rows]
        if self.stream.isatty():
            draw(self.stream, columns, cells)
        else:
            self._write(aligned(columns, cells))

    def _write(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in cast("list[Any]", value)]
    return None if isinstance(value, float) and not isfinite(value) else value


@contextmanager
def answering(*, as_json: bool = False) -> Generator[Output]:
    """The real stdout, while everything else that is written to stdout goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        with open(kept, "w", encoding="utf-8", errors="backslashreplace", closefd=False) as stream:
            yield Output(stream, as_json)
    finally:
        sys.stdout.flush()
        os.dup2(kept, _STDOUT)
        os.close(kept)


@contextmanager
def working(message: str) -> Generator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(one_line(message)):
        yield


def block_text(block: Mapping[str, Any]) -> str:
    """A text block's text; for any other block its kind and how to get it."""
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "resource_link":
            return f"[{block.get('name', 'resource')}: {block.get('uri', '')}]"
        case "resource":
            resource: Mapping[str, Any] = block.get("resource") or {}
            return str(resource.get("text") or f"[resource {resource.get('uri', '')}; see --json]")
        case kind:
            return f"[{kind} {block.get('mimeType', '')}; see --json]"


class TerminalContext(ToolContext):
    """Shows progress and log messages; it cannot ask the user. A repeat of a call has the same `key`."""

    __slots__ = ("_meta",)

    def __init__(self, key: str | None = None) -> None:
        self._meta: Mapping[str, Any] = {} if key is None else {REPLAY_META_KEY: key}

    @property
    def meta(self) -> Mapping[str, Any]:
        return self._meta

    @property
    def wants_progress(self) -> bool:
        return True

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        share = f"{progress:g}/{total:g}" if total is not None else f"{progress:g}"
        note(f"[{share}] {message or ''}")

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        note(f"{level}: {f'{logger}: ' if logger else ''}{data}")

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        if method == "notifications/message" and params is not None:
            await self.log(str(params.get("level", "info")), params.get("data"), logger=params.get("logger"))
