"""Seen from outside: where metrics and traces go, and what must work for a server to be ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.extensions.telemetry.extension import Telemetry
    from mcp_toolset.transports.http.monitor import Ready

__all__ = ["Ready", "Telemetry"]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
