"""Code mode: the limits of code that models write, and what a sandbox of your own provides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.extensions.code.extension import (
        CallAnswer,
        Called,
        CodeMode,
        Ended,
        Execution,
        Program,
        Sandbox,
        SandboxFault,
    )
    from mcp_toolset.extensions.code.sandbox import Paused

__all__ = [
    "CallAnswer",
    "Called",
    "CodeMode",
    "Ended",
    "Execution",
    "Paused",
    "Program",
    "Sandbox",
    "SandboxFault",
]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
