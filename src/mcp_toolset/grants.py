"""Grants: who may call which deferred tool, for how long and how often, and where that is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.catalog.grants.access import AccessDenied
    from mcp_toolset.catalog.grants.ledger import GrantLedger

__all__ = ["AccessDenied", "GrantLedger"]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
