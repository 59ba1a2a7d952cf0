"""The demo's server: three real servers, deferred behind one, with a hook that guards the repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mcp_toolset import HookSet, Reject, RemoteToolset, RunNormally, ToolCall, Toolset, ToolsetServer

ROOT = Path(__file__).resolve().parents[2]
CHANGES_GIT = ("git_add", "git_commit", "git_reset", "git_checkout", "git_create_branch")


def demo_server(notes_db: Path) -> ToolsetServer:
    """Time and git from PyPI, and the notes server of this repository, on a database of their own."""
    hooks = HookSet()
    for name in CHANGES_GIT:
        hooks.execution(name)(look_but_do_not_touch)
    notes = [sys.executable, str(ROOT / "servers" / "notes" / "notes.py"), "--db", str(notes_db)]
    tools = Toolset(
        RemoteToolset([sys.executable, "-m", "mcp_server_time"], name="time"),
        RemoteToolset([sys.executable, "-m", "mcp_server_git", "-r", str(ROOT)], name="git"),
        RemoteToolset(notes, name="notes"),
    )
    return ToolsetServer(tools.deferred(), name="mcp-toolset-demo", hooks=hooks)


async def look_but_do_not_touch(call: ToolCall, input: dict[str, Any]) -> RunNormally | Reject:
    """An execution hook: it sees every call of a tool that changes the repository, and refuses it."""
    return Reject("this demo looks at the repository and changes nothing")
