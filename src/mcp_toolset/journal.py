"""The journal of calls: a repeat of a call gets its recorded result, and has no second effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.calls.journal.guard import JournalGuard
    from mcp_toolset.calls.journal.journal import Found, Intent, Journal, Outcome, Record
    from mcp_toolset.calls.journal.rules import JournalRules
    from mcp_toolset.calls.journal.sqlite_journal import SqliteJournal
    from mcp_toolset.shared.journal import RedisJournal
    from mcp_toolset.shared.postgres_journal import PostgresJournal

__all__ = [
    "Found",
    "Intent",
    "Journal",
    "JournalGuard",
    "JournalRules",
    "Outcome",
    "PostgresJournal",
    "Record",
    "RedisJournal",
    "SqliteJournal",
]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
