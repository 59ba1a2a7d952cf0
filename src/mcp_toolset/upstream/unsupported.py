"""What a mounted server says of tools that need more than the bridge carries, such as tasks.

A client's `extensions` go upstream only where every message of theirs crosses the bridge
(`CARRIED_EXTENSIONS`). A tool that runs in no other way is told as such, instead of being lost half way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp_toolset.context.client import CARRIED_EXTENSIONS
from mcp_toolset.protocol.json_rpc import MISSING_REQUIRED_CLIENT_CAPABILITY

TASKS: Final = "io.modelcontextprotocol/tasks"
_NOTHING: Final[Mapping[str, Any]] = {}


def missing_extensions(code: int, data: object) -> str:
    """The extensions that error -32021 asks for and the bridge does not carry; empty if there are none."""
    if code != MISSING_REQUIRED_CLIENT_CAPABILITY:
        return ""
    needed = _mapping(_mapping(_mapping(data).get("requiredCapabilities")).get("extensions"))
    return ", ".join(sorted(needed.keys() - CARRIED_EXTENSIONS))


def fault_of_task(wire: Mapping[str, Any]) -> str | None:
    """Why the answer to a call is no result, if it is a task that was begun instead."""
    if wire.get("resultType") != "task":
        return None
    return (
        f"it began a task although no client declared {TASKS}, which this bridge does not carry; "
        "the task may still run on the server"
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else _NOTHING
