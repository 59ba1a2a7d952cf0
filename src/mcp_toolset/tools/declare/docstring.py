"""Parse a docstring into a tool's description and those of its parameters: Google, NumPy or Sphinx form.

`docstring_parser` does the parsing. It would try every form on every text; here a form is tried only if the
text has its marks, since most docstrings have no form at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Final

from mcp_toolset._records import dataclass

if TYPE_CHECKING:
    from docstring_parser import Docstring

_MARKS: Final = (
    (re.compile(r"^\s*:", re.MULTILINE), "rest"),
    (re.compile(r"^\s*[A-Z]\w*:\s*$", re.MULTILINE), "google"),
    (re.compile(r"^\s*-{2,}\s*$|^\s*\.\. ", re.MULTILINE), "numpydoc"),
)


@dataclass(frozen=True, slots=True)
class Described:
    """A parsed docstring.

    Attributes:
        text: The text outside of its sections; `None` if it is empty.
        parameters: The description of each parameter that has one.
    """

    text: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


def described_by(docstring: str) -> Described:
    """Parse a cleaned docstring; if it is broken in every form, all of it is text."""
    forms = [form for marks, form in _MARKS if marks.search(docstring)]
    read = [parsed for form in forms if (parsed := _parsed(docstring, form)) is not None]
    if not read:
        return Described(_plain(docstring))
    best = max(read, key=lambda parsed: len(parsed.meta))
    texts = (best.short_description, best.long_description)
    parameters = {item.arg_name: item.description for item in best.params if item.description}
    return Described("\n\n".join(filter(None, texts)) or None, parameters)


def _parsed(docstring: str, form: str) -> Docstring | None:
    # Most docstrings have no form, and most programs then never import the parser.
    from docstring_parser import ParseError

    try:
        return import_module(f"docstring_parser.{form}").parse(docstring)
    except ParseError:
        return None


def _plain(docstring: str) -> str | None:
    """The text in the layout that the parser expects: its first line, and the rest after an empty line."""
    first, _, rest_of_it = docstring.partition("\n")
    return "\n\n".join(filter(None, (first, rest_of_it.strip()))) or None
