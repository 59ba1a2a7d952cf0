"""The audit log: a chained line for each call, decision, grant and login; and its check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.extensions.audit.extension import Audit, AuditLog

__all__ = ["Audit", "AuditLog"]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
