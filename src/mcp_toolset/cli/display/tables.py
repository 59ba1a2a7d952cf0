"""Rows for people: a table if the terminal is wide enough, else a block for each row.

On a terminal of 100 columns or more a table is drawn, if every word fits; else each row is a block. In a file
or a pipe, rows are aligned whatever the width, for `grep` and `awk`. Colours show states on a terminal,
unless `NO_COLOR` is set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TextIO

from mcp_toolset._records import dataclass

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["Column", "aligned", "draw"]

WIDE: Final = 100
"""The width of a terminal from which rows are drawn as a table."""

_PROSE: Final = 28
"""The least width of a column of text in a table."""

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
    """One column.

    Attributes:
        name: Its head.
        prose: Whether it contains sentences, which may be wrapped.
        state: Whether it contains states, which are coloured.
        label: Whether a block shows the name before the value.
    """

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
