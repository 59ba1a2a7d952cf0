"""Rows of the database ↔ models, and the cursor that marks a place in the list."""

from __future__ import annotations

import base64
import binascii
import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime

from .errors import InvalidNoteError
from .models import Note, NoteRef, NoteSummary, SearchHit, note_uri

__all__ = [
    "NOTE_COLUMNS",
    "SUMMARY_COLUMNS",
    "decode_cursor",
    "encode_cursor",
    "stamp",
    "to_hit",
    "to_note",
    "to_summary",
]

SUMMARY_COLUMNS = "id, title, tags, revision, updated_at, length(body) AS length"
NOTE_COLUMNS = f"{SUMMARY_COLUMNS}, body, created_at"


def stamp(moment: datetime) -> str:
    """A moment as text that sorts by time: UTC, microseconds, always as many characters."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def to_summary(row: sqlite3.Row) -> NoteSummary:
    """A row of `SUMMARY_COLUMNS`."""
    return NoteSummary.model_validate(
        {**dict(row), "tags": json.loads(row["tags"]), "uri": note_uri(row["id"])}
    )


def to_note(row: sqlite3.Row, links: Sequence[NoteRef], backlinks: Sequence[NoteRef]) -> Note:
    """A row of `NOTE_COLUMNS` with its neighbours."""
    neighbours = {"links": list(links), "backlinks": list(backlinks)}
    return Note.model_validate(
        {**dict(row), **neighbours, "tags": json.loads(row["tags"]), "uri": note_uri(row["id"])}
    )


def to_hit(row: sqlite3.Row, snippet: str) -> SearchHit:
    """A row of a search with the part of the body to show."""
    return SearchHit(
        id=row["id"],
        title=row["title"],
        tags=json.loads(row["tags"]),
        snippet=snippet,
        updated_at=row["updated_at"],
        uri=note_uri(row["id"]),
    )


def encode_cursor(row: sqlite3.Row) -> str:
    """An opaque mark for the place after this row, in the order of recency."""
    return base64.urlsafe_b64encode(f"{row['updated_at']}/{row['id']}".encode()).decode()


def decode_cursor(cursor: str) -> tuple[str, int]:
    """Time and id of the row before the page; raises `InvalidNoteError` for anything not ours."""
    try:
        moment, _, note_id = (
            base64.b64decode(cursor, altchars=b"-_", validate=True).decode("ascii").partition("/")
        )
        return stamp(datetime.strptime(moment, "%Y-%m-%dT%H:%M:%S.%f%z")), _small(int(note_id))
    except (binascii.Error, ValueError, OverflowError) as error:
        raise InvalidNoteError(
            "The cursor is not one that list_notes gave: leave it out to begin with the newest notes."
        ) from error


def _small(number: int) -> int:
    if not 0 < number < 2**63:
        raise ValueError(number)
    return number
