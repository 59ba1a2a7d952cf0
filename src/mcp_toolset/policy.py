"""Policies: which tools exist for a caller, which need an approval, and how much a caller may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.extensions.approvals.extension import Approvals, PolicyGuard
    from mcp_toolset.extensions.limits.call_limits import CallLimits
    from mcp_toolset.extensions.limits.limits import Limits
    from mcp_toolset.security.policy import Policy

__all__ = ["Approvals", "CallLimits", "Limits", "Policy", "PolicyGuard"]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
