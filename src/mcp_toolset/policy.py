"""Policies: which tools exist for a caller, and which need an approval; see docs/policies.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.security.policy.policy import Policy, Verdict

__all__ = ["Policy", "Verdict"]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
