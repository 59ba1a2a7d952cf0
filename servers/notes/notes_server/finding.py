"""Lists and searches: reading only, each within the caller's transaction."""

from __future__ import annotations

import sqlite3
from typing import Any, Literal

from .errors import InvalidNoteError
from .models import NotePage, SearchHit, SearchResult, clean_tag
from .query import clean_query, excerpt, expression, terms
from .rows import SUMMARY_COLUMNS, decode_cursor, encode_cursor, to_hit, to_summary

__all__ = ["MAX_LIMIT", "list_page", "search"]

MAX_LIMIT = 100
"""Notes in one answer."""

_WITH_TAG = "(:tag IS NULL OR notes.id IN (SELECT note_id FROM note_tags WHERE tag = :tag))"
_LIST = f"""
    SELECT {SUMMARY_COLUMNS} FROM notes
    WHERE {_WITH_TAG} AND (:moment IS NULL OR (updated_at, id) < (:moment, :id))
    ORDER BY updated_at DESC, id DESC LIMIT :limit
"""
# Ranked and cut first: a snippet and a row cost more than a rank, and a common word fits thousands.
# CROSS JOIN keeps the index outermost: entered once for each row, it would open its lists each time.
_RANKED = """
    WITH best AS MATERIALIZED (
        SELECT rowid AS id, bm25(notes_fts, 4.0, 1.0, 2.0) AS score FROM notes_fts
        WHERE notes_fts MATCH :match
            AND (:tag IS NULL OR rowid IN (SELECT note_id FROM note_tags WHERE tag = :tag))
        ORDER BY score, id DESC LIMIT :limit
    )
    SELECT notes.id AS id, notes.title AS title, notes.tags AS tags, updated_at,
        snippet(notes_fts, 1, '**', '**', '…', 24) AS snippet
    FROM notes_fts CROSS JOIN best ON best.id = notes_fts.rowid CROSS JOIN notes ON notes.id = best.id
    WHERE notes_fts MATCH :match
    ORDER BY score, best.id DESC
"""
_LITERAL = f"""
    SELECT id, title, tags, updated_at, body FROM notes
    WHERE (contains_text(title, :needle) OR contains_text(body, :needle)) AND {_WITH_TAG}
    ORDER BY updated_at DESC, id DESC LIMIT :limit
"""


def list_page(connection: sqlite3.Connection, tag: str | None, cursor: str | None, limit: int) -> NotePage:
    """The notes by recency; a cursor stays good while notes come and go."""
    moment, note_id = (None, None) if cursor is None else decode_cursor(cursor)
    asked: dict[str, Any] = {"tag": _tag(tag), "moment": moment, "id": note_id, "limit": _limit(limit) + 1}
    rows = connection.execute(_LIST, asked).fetchall()
    total = connection.execute(f"SELECT count(*) FROM notes WHERE {_WITH_TAG}", asked).fetchone()[0]
    more, page = len(rows) > limit, rows[:limit]
    return NotePage(
        notes=[to_summary(row) for row in page],
        total=total,
        next_cursor=encode_cursor(page[-1]) if more else None,
    )


def search(connection: sqlite3.Connection, query: str, tag: str | None, limit: int) -> SearchResult:
    """The notes with every word; if there are none, with the literal text; then, with any word."""
    query = clean_query(query)
    parts = terms(query)
    asked: dict[str, Any] = {"tag": _tag(tag), "limit": _limit(limit) + 1}
    hits = _ranked(connection, parts, "AND", asked)
    if hits:
        return _result(hits, "all_words", limit)
    hits = _literal(connection, query, asked)
    if hits or len(parts) < 2:
        return _result(hits, "exact_text", limit)
    return _result(_ranked(connection, parts, "OR", asked), "any_word", limit)


def _ranked(
    connection: sqlite3.Connection, parts: list[str], operator: Literal["AND", "OR"], asked: dict[str, Any]
) -> list[SearchHit]:
    if not parts:
        return []
    rows = connection.execute(_RANKED, {**asked, "match": expression(parts, operator)})
    return [to_hit(row, row["snippet"]) for row in rows]


def _literal(connection: sqlite3.Connection, query: str, asked: dict[str, Any]) -> list[SearchHit]:
    rows = connection.execute(_LITERAL, {**asked, "needle": query.casefold()})
    return [to_hit(row, excerpt(row["body"], query)) for row in rows]


def _result(
    hits: list[SearchHit], matched: Literal["all_words", "exact_text", "any_word"], limit: int
) -> SearchResult:
    return SearchResult(hits=hits[:limit], matched=matched, more=len(hits) > limit)


def _tag(tag: str | None) -> str | None:
    return None if tag is None else clean_tag(tag)


def _limit(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidNoteError(f"limit is {limit}: give a number from 1 to {MAX_LIMIT}.")
    return limit
