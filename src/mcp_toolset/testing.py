"""Tools for tests of your own tools and rules: a client in memory, scripted servers, recorded calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.serving.in_memory import Client
    from mcp_toolset.serving.scripted import CallRecorder, ScriptedServer
    from mcp_toolset.tools.view import execute

__all__ = ["CallRecorder", "Client", "ScriptedServer", "execute"]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
