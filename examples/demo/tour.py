"""The demo's client: an ordinary MCP client over HTTP that walks through search, grant, call and refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp import Client, MCPError
from mcp_types import CallToolResult, TextContent
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from mcp_toolset import SourceStatus


class StepFailedError(Exception):
    """A step of the demo did not hold."""


class Tour:
    """Walks through the server step by step; a step that does not hold raises."""

    def __init__(self, console: Console, repository: str) -> None:
        self._console = console
        self._repository = repository
        self._step = 0

    async def walk(self, client: Client, statuses: Mapping[str, SourceStatus]) -> None:
        """Every step, in order."""
        self._mounted(statuses)
        await self._listed(client, statuses)
        grant = await self._searched(client)
        await self._called(client, grant)
        await self._notes(client)
        await self._refused(client)
        await self._rejected(client)

    def _mounted(self, statuses: Mapping[str, SourceStatus]) -> None:
        self._title("Three servers are mounted", "Each is its own process; one session to each stays open.")
        table = Table("server", "state", "tools", box=None)
        for name, status in statuses.items():
            table.add_row(name, status.state, str(status.tools))
            expect(status.state == "ready", f"{name} is {status.state}: {status.reason}")
        self._console.print(table)

    async def _listed(self, client: Client, statuses: Mapping[str, SourceStatus]) -> None:
        tools = (await client.list_tools()).tools
        behind = sum(status.tools for status in statuses.values())
        self._title(
            f"What a model sees: {len(tools)} tools, not {behind}",
            "The catalog is deferred: a model searches it instead of reading all of it.",
        )
        for tool in tools:
            self._console.print(
                f"  [cyan]{tool.name}[/]  {(tool.description or '').partition('. ')[0].rstrip('.')}."
            )
        names = {tool.name for tool in tools}
        expect(
            names == {"search_tools", "resolve_tools", "call_tool", "call_read_only_tool"}, f"listed: {names}"
        )

    async def _searched(self, client: Client) -> str:
        query = "show the history of commits"
        self._title("It searches in plain words", f"search_tools(query={query!r}, limit=3)")
        found = structured(await client.call_tool("search_tools", {"query": query, "limit": 3}))
        for hit in found["hits"]:
            self._console.print(
                f"  {hit['score']:.2f}  [cyan]{hit['id']}[/]  {hit['description']}", soft_wrap=True
            )
        ids = [hit["id"] for hit in found["hits"]]
        expect("git_log" in ids, f"git_log is not among {ids}")
        self._title(
            "It resolves a hit",
            "The full definition comes with a grant: leave to run this tool, as it is now.",
        )
        resolved = structured(await client.call_tool("resolve_tools", {"ids": ["git_log"]}))["tools"][0]
        expect(resolved["status"] == "granted", f"resolve_tools answered {resolved}")
        self._console.print(f"  grant: [green]{resolved['grant']}[/]")
        return resolved["grant"]

    async def _called(self, client: Client, grant: str) -> None:
        arguments = {"repo_path": self._repository, "max_count": 2}
        self._title("It calls with the grant", f"call_tool(grant=…, arguments={json.dumps(arguments)})")
        result = await client.call_tool("call_tool", {"grant": grant, "arguments": arguments})
        expect(not result.is_error, text_of(result))
        expect("ommit" in text_of(result), "the history shows no commit")
        self._quote(text_of(result))

    async def _notes(self, client: Client) -> None:
        self._title(
            "It writes and finds a note", "search_tools(…, resolve=1) searches and resolves in one call."
        )
        grant = await self._granted(client, "write down a new note")
        note = {"title": "Demo", "body": "The bridge carried this note."}
        written = await client.call_tool("call_tool", {"grant": grant, "arguments": note})
        expect(not written.is_error, text_of(written))
        grant = await self._granted(client, "search the notes for a word")
        found = await client.call_tool(
            "call_read_only_tool", {"grant": grant, "arguments": {"query": "bridge"}}
        )
        expect("Demo" in text_of(found), f"the note was not found: {text_of(found)}")
        self._quote(text_of(found))

    async def _refused(self, client: Client) -> None:
        self._title(
            "A call without a grant is refused", "By the tool's own name, and by a grant that was made up."
        )
        try:
            await client.call_tool("git_status", {"repo_path": self._repository})
        except MCPError as refusal:
            self._console.print(f"  git_status → [red]{refusal.message}[/]")
        else:
            raise StepFailedError("git_status ran without a grant")
        forged = {"grant": "git_status.AAAAAAAAAAAAAAAA", "arguments": {"repo_path": self._repository}}
        result = await client.call_tool("call_tool", forged)
        expect(result.is_error is True, "a made-up grant was accepted")
        self._console.print(f"  call_tool  → [red]{text_of(result)}[/]")

    async def _rejected(self, client: Client) -> None:
        self._title(
            "A hook rejects a granted call",
            "git_commit was granted, but a hook of the server guards the repository.",
        )
        resolved = structured(await client.call_tool("resolve_tools", {"ids": ["git_commit"]}))["tools"][0]
        arguments = {"repo_path": self._repository, "message": "this must not happen"}
        result = await client.call_tool("call_tool", {"grant": resolved["grant"], "arguments": arguments})
        expect(
            result.is_error is True and "changes nothing" in text_of(result),
            f"not rejected: {text_of(result)}",
        )
        self._console.print(f"  git_commit → [red]{text_of(result)}[/]")

    async def _granted(self, client: Client, query: str) -> str:
        found = structured(await client.call_tool("search_tools", {"query": query, "limit": 3, "resolve": 1}))
        first = found["resolved"][0]
        self._console.print(f"  {query!r} → [cyan]{first['id']}[/]")
        return first["grant"]

    def _title(self, title: str, detail: str) -> None:
        self._step += 1
        self._console.print(f"\n[bold]{self._step}. {title}[/]\n   [dim]{detail}[/]")

    def _quote(self, text: str) -> None:
        lines = text.splitlines()
        shown = "\n".join(line[:100] for line in lines[:8]) + ("\n…" if len(lines) > 8 else "")
        self._console.print(Panel(shown, border_style="dim", expand=False))


def structured(result: CallToolResult) -> Any:
    """The structured content of a result that must have one."""
    expect(not result.is_error and result.structured_content is not None, text_of(result))
    return result.structured_content


def text_of(result: CallToolResult) -> str:
    """The text of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def expect(holds: bool, otherwise: str) -> None:
    """Fail the demo unless something holds."""
    if not holds:
        raise StepFailedError(otherwise)
