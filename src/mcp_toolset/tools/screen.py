"""Lines for people: wrapped to fit a terminal, with the right plural; and the tokens of JSON."""

from __future__ import annotations

import shutil
import textwrap
from typing import Final, TextIO


def fitted(line: str, stream: TextIO) -> str:
    if not stream.isatty():
        return line
    return wrapped(line, shutil.get_terminal_size().columns)


def wrapped(text: str, width: int) -> str:
    """Each line of the text, wrapped; a word that is longer than a line, such as a URL, is not cut."""
    return "\n".join(
        textwrap.fill(
            line,
            width,
            subsequent_indent=" " * (len(line) - len(line.lstrip())),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )


def counted(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


BYTES_PER_TOKEN: Final = 4  # Bytes per token of JSON in English.


def tokens_of(size: int) -> int:
    return -(-size // BYTES_PER_TOKEN)
