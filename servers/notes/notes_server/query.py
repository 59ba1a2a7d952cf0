"""What a person typed → a full-text expression that is never a syntax error (F36).

Words and `"quoted phrases"` are the only notation; everything else is literal. A word of three or
more characters also finds longer words that begin with it; a quoted phrase does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from .errors import InvalidNoteError

__all__ = ["MAX_QUERY", "MAX_TERMS", "clean_query", "contains_text", "excerpt", "expression", "terms"]

MAX_QUERY = 1000
"""Characters in a query."""
MAX_TERMS = 32
"""Words and phrases of one query that count; FTS5 allows an expression only 256 levels."""

_PIECE = re.compile(r'"([^"]*)"|(\S+)')
_PREFIX_FROM = 3
_CONTEXT = 80


def clean_query(query: str) -> str:
    """The query without what SQLite cannot read; raises `InvalidNoteError` if empty or too long."""
    if len(query) > MAX_QUERY:
        raise InvalidNoteError(f"The query has {len(query)} characters; at most {MAX_QUERY} fit: shorten it.")
    readable = query.encode("utf-8", "replace").decode("utf-8").replace("\0", " ").strip()
    if not readable:
        raise InvalidNoteError("The query is empty: give some words, or use list_notes to see all notes.")
    return readable


def terms(query: str) -> list[str]:
    """The query's words and phrases as FTS5 strings, without those that hold no letter or digit."""
    pieces = ((match[1], match[2]) for match in _PIECE.finditer(query))
    found = [_quoted(phrase, word) for phrase, word in pieces if _has_token(phrase or word or "")]
    return list(dict.fromkeys(found))[:MAX_TERMS]


def expression(parts: Sequence[str], operator: Literal["AND", "OR"]) -> str:
    """One FTS5 expression over `terms`."""
    return f" {operator} ".join(parts)


def contains_text(text: str, needle: str) -> bool:
    """Whether `needle`, already case-folded, occurs in `text`, whatever its case; linear time."""
    return needle in text.casefold()


def excerpt(body: str, needle: str) -> str:
    """The first occurrence of a literal text with what stands around it, or the body's beginning."""
    lowered = body.lower()
    # A few letters change their length with their case; positions would not be the body's then.
    start = (lowered if len(lowered) == len(body) else body).find(needle.lower())
    if start < 0:
        return _clipped(body, 0, 2 * _CONTEXT)
    end = start + len(needle)
    marked = f"{body[:start]}**{body[start:end]}**{body[end:]}"
    return _clipped(marked, start - _CONTEXT, end + 4 + _CONTEXT)


def _quoted(phrase: str | None, word: str | None) -> str:
    text = (phrase or word or "").replace('"', '""')
    is_prefix = word is not None and len(word) >= _PREFIX_FROM
    return f'"{text}"*' if is_prefix else f'"{text}"'


def _has_token(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _clipped(text: str, start: int, end: int) -> str:
    start, end = max(start, 0), min(end, len(text))
    before, after = "…" if start else "", "…" if end < len(text) else ""
    return f"{before}{text[start:end]}{after}"
