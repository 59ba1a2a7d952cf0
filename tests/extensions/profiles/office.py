"""An office with two mounted servers and a tool of its own, and profiles of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_toolset import Prompts, RemoteToolset, Resources, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.tools.source import Reference

PROFILES: Mapping[str, Any] = {
    "reading": {
        "tools": ["readOnly:*"],
        "names": {"notes_search": "find_notes"},
        "instructions": "Only for reading.",
    },
    "mail": {"tools": ["mail/*"], "permissions": {"deny": ["mail/drop"]}, "limits": {"*": {"calls": 3}}},
    "behind": {"tools": ["notes/*"], "surface": "search", "names": {"notes_write": "jot"}},
}


def server_of(name: str) -> Any:
    """A server with a tool that reads, two that write, a resource and a prompt."""

    @tool(read_only=True)
    def search(query: str) -> str:
        """Search what is there."""
        return f"{name} has {query}"

    @tool(destructive=False)
    def write(text: str) -> str:
        """Write something down."""
        return f"{name} wrote {text}"

    @tool
    def drop(text: str) -> str:
        """Drop something for good."""
        return f"{name} dropped {text}"

    resources, prompts = Resources(), Prompts()

    @resources.add(f"{name}://all")
    def everything() -> str:
        """Everything there is."""
        return f"all {name}"

    @prompts.add(name=f"{name}_letter")
    def letter(to: str) -> str:
        """Write a letter."""
        return f"Dear {to}, from {name}"

    async def friends(
        reference: Reference, argument: str, value: str, others: Mapping[str, str]
    ) -> list[str]:
        return [f"{name}-friend"]

    made = ToolsetServer(
        Toolset(search, write, drop),
        name=name,
        resources=resources,
        prompts=prompts,
        completions=friends,
        instructions=f"Words of {name}.",
    )
    return made.lowlevel


@tool(read_only=True)
def who(context: ToolContext) -> str:
    """Say who calls."""
    return context.principal or "nobody"


def office(profiles: Mapping[str, Any] = PROFILES, **options: Any) -> ToolsetServer:
    """The office as a server, not opened yet."""
    mounts = (RemoteToolset(server_of(name), name=name).prefixed(name) for name in ("notes", "mail"))
    return ToolsetServer(Toolset(who, *mounts), name="office", profiles=profiles, **options)
