"""The journal of calls: a repeat of a call gets its recorded result, and has no second effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.extensions.journal.extension import Journal
    from mcp_toolset.extensions.journal.guard import JournalGuard

__all__ = ["Journal", "JournalGuard"]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
