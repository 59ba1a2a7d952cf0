"""What the tools return, and the limits and spellings that every note keeps to."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from .errors import InvalidNoteError

__all__ = [
    "MAX_BODY",
    "MAX_ID",
    "MAX_TAG",
    "MAX_TAGS",
    "MAX_TITLE",
    "DeletedNote",
    "Note",
    "NotePage",
    "NoteRef",
    "NoteSummary",
    "SearchHit",
    "SearchResult",
    "TagCount",
    "TagList",
    "clean_body",
    "clean_tag",
    "clean_tags",
    "clean_title",
    "note_uri",
]

MAX_ID = 2**53 - 1
"""The largest whole number that every JSON reader keeps exact."""
MAX_TITLE = 200
"""Characters in a title."""
MAX_BODY = 500_000
"""Characters in a body."""
MAX_TAG = 50
"""Characters in a tag."""
MAX_TAGS = 32
"""Tags on one note."""

_TAG_EDGES = re.compile(r"\A[\s#]+|\s+\Z")
_SPACES = re.compile(r"\s+")


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True)


class NoteRef(_Result):
    """A note that another one points at."""

    id: int
    title: str


class NoteSummary(_Result):
    """A note without its body."""

    id: int
    title: str
    tags: list[str]
    revision: int
    updated_at: datetime
    length: int = Field(description="Characters in the body.")
    uri: str = Field(description="The note as an MCP resource.")


class Note(NoteSummary):
    """A whole note with its neighbours."""

    body: str
    created_at: datetime
    links: list[NoteRef] = Field(description="Notes that this one points to.")
    backlinks: list[NoteRef] = Field(description="Notes that point to this one.")


class NotePage(_Result):
    """Some of the notes, the most recently changed first."""

    notes: list[NoteSummary]
    total: int = Field(description="Notes in the whole list, over all pages.")
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class SearchHit(_Result):
    """One note that fits a search."""

    id: int
    title: str
    tags: list[str]
    snippet: str = Field(description="The part of the body that fits best, with **matches** marked.")
    updated_at: datetime
    uri: str = Field(description="The note as an MCP resource.")


class SearchResult(_Result):
    """The notes that fit a search, the best first."""

    hits: list[SearchHit]
    matched: Literal["all_words", "exact_text", "any_word"] = Field(
        description="How the hits fit: they hold every word; or, none did, the query literally; "
        "or, none did, at least one of its words."
    )
    more: bool = Field(description="More notes fit than `limit` let through.")


class TagCount(_Result):
    """A tag and the number of notes that carry it."""

    tag: str
    notes: int


class TagList(_Result):
    """All tags in use, the most used first."""

    tags: list[TagCount]


class DeletedNote(_Result):
    """What was deleted, as it last was."""

    id: int
    title: str
    revision: int


def note_uri(note_id: int) -> str:
    """The address of a note as an MCP resource."""
    return f"note:///{note_id}"


def clean_title(title: str) -> str:
    """One line of at most `MAX_TITLE` characters; raises `InvalidNoteError` if nothing is left."""
    line = " ".join(_storable(title, "title").split())
    if not line:
        raise InvalidNoteError("The title is empty: give the note a title of at least one character.")
    return _within(line, MAX_TITLE, "title")


def clean_body(body: str) -> str:
    """The body as it is; raises `InvalidNoteError` if it cannot be stored."""
    return _within(_storable(body, "body"), MAX_BODY, "body")


def clean_tag(tag: str) -> str:
    """The one spelling of a tag: case-folded, no leading `#`, spaces as `-`.

    Raises `InvalidNoteError` for a tag that is empty, too long, or not printable.
    """
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", tag).casefold())
    spelled = _SPACES.sub("-", _TAG_EDGES.sub("", folded))
    if not spelled:
        raise InvalidNoteError(f"The tag {tag!r} is empty: use letters, digits or signs such as - and /.")
    if not spelled.isprintable() or "," in spelled:
        raise InvalidNoteError(f"The tag {tag!r} has a comma or a control character: give tags as a list.")
    return _within(spelled, MAX_TAG, "tag")


def clean_tags(tags: Iterable[str]) -> list[str]:
    """The spellings of some tags, sorted, each once; raises `InvalidNoteError` above `MAX_TAGS`."""
    cleaned = sorted({clean_tag(tag) for tag in tags})
    if len(cleaned) > MAX_TAGS:
        raise InvalidNoteError(
            f"A note carries at most {MAX_TAGS} tags, not {len(cleaned)}: untag some first."
        )
    return cleaned


def _storable(text: str, what: str) -> str:
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidNoteError(f"The {what} has a NUL or an unpaired surrogate: remove it.")
    return text


def _within(text: str, limit: int, what: str) -> str:
    if len(text) > limit:
        raise InvalidNoteError(f"The {what} has {len(text)} characters; at most {limit} fit: shorten it.")
    return text
