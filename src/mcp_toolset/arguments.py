"""Transforms of one parameter of a tool: what `Toolset.with_arguments` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.tools.transform import default, describe, hide, rename

__all__ = ["default", "describe", "hide", "rename"]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
