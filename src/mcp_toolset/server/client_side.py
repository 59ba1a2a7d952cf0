"""`ClientSide`: the part of `ToolsetServer` for its clients: calls, lists of tools, and instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import anyio

from mcp_toolset._records import replace
from mcp_toolset.calls.observers import Observation, digest_of, report_of, tell
from mcp_toolset.calls.rules import Rules
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.catalog.instructions import BUDGET, instructions_of
from mcp_toolset.catalog.registry.registry import ToolRegistry
from mcp_toolset.context.connection import APPS
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import CallError, UnknownToolError
from mcp_toolset.extending.joined import Extensions
from mcp_toolset.server.mounts import KeptCatalogs, UnlistedMounts, Visibility, toolsets_in
from mcp_toolset.server.offering import has_page
from mcp_toolset.server.tool_table import MAX_LISTS, ServedTools
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.opening import settled
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import ToolSource, not_ready, state_of

if TYPE_CHECKING:
    from mcp_toolset.server.mcp_server import MCPServer
    from mcp_toolset.server.news import News
    from mcp_toolset.server.parts import OwnKeywords
    from mcp_toolset.server.view import ServerView

SERVERS_META_KEY: Final = "mcp-toolset/servers"
"""The key in `_meta` of handshakes under which the mounted servers are listed."""


class ClientSide:
    """The base of `ToolsetServer` that answers clients: lists, calls, instructions."""

    _mcp_server: cached_property[MCPServer]  # answers the requests of clients
    registry: ToolRegistry  # all tools, and those that can be called
    _speaking: ToolRegistry  # the one whose toolsets have instructions
    extensions: Extensions
    grants: cached_property[GrantLedger]  # issues and checks the grants of deferred tools
    _own_instructions: str | None
    _own: OwnKeywords
    _kept: cached_property[KeptCatalogs]
    _news: cached_property[News]
    _served: cached_property[ServedTools]
    _unlisted: cached_property[UnlistedMounts]
    _visibility: cached_property[Visibility]
    _introductions: dict[object, str | None]
    _rules: cached_property[Rules]
    views: list[ServerView]  # the open views of this server

    def _withheld(self, identity: Identity | None) -> frozenset[str]:
        """The mounted servers that are hidden from a caller."""
        hides = self._visibility.hides_server
        hidden = frozenset(name for name in self.registry.sources() if hides(name, identity))
        if self._own.get("access") is None or not self._served.defers:
            return hidden
        return hidden | self._served.catalog.withheld_servers(identity)

    async def _current(self) -> None:
        """Compile the tools again if a source has changed."""
        if self._news.changed.is_set():
            await self._rebuild()
        else:
            await self._served.compiled_by_now()

    async def _rebuild(self) -> None:
        # Changes up to now are compiled below.
        self._news.changed.clear()
        await self._served.compile()
        await self._kept.restore(self.registry.sources().values())
        self._mcp_server.told_of(self.registry.sources())
        text = self._mcp_server.handshake.instructions = self._introduction(None)
        self._introductions = {(self._visibility.group(None), False): text}
        for view in tuple(self.views):
            await view.refresh()

    def instructions_to(self, context: ToolContext) -> str | None:
        """The instructions in a caller's handshake."""
        visibility, cached = self._visibility, self._introductions
        general = self._mcp_server.handshake.instructions
        lists_all = self._served.lists_all(context)
        is_from_sdk = general != cached.get((visibility.group(None), False))
        # Instructions that a program has set through the SDK are for every caller.
        if is_from_sdk or (visibility.policy is None and not lists_all):
            return general
        key = (visibility.group(context.identity), lists_all)
        text = cached[key] if key in cached else self._introduction(context.identity, lists_all=lists_all)
        if len(cached) < MAX_LISTS:
            cached[key] = text
        return text

    def _introduction(self, identity: Identity | None, *, lists_all: bool = False) -> str | None:
        only = self._served.passing()
        of_servers = self._server_instructions(identity) if only is None else only.instructions
        of_toolsets = self._instructions_of_toolsets(identity)
        preview = None if lists_all else self._served.preview(identity)
        parts = (self._own_instructions, *of_toolsets, preview, of_servers)
        return "\n\n".join(part for part in parts if part) or None

    def _server_instructions(self, identity: Identity | None) -> str | None:
        """The instructions of the mounted servers that a caller may know of, within their budget."""
        withheld = self._withheld(identity)
        texts = (
            (name, source.instructions)
            for name, source in self.registry.sources().items()
            if name not in withheld and isinstance(source, MountedSource)
        )
        return instructions_of(texts, self._own.get("max_instruction_tokens", BUDGET))

    def _instructions_of_toolsets(self, identity: Identity | None) -> Iterator[str]:
        """The instructions of the application's toolsets, for a caller who may know of one of their tools."""
        served = list(self._served.table.values())
        nested = (toolset for outer in self._speaking.toolsets() for toolset in toolsets_in(outer))
        # Instructions of mounted servers are added elsewhere.
        own = {id(each): each for each in nested if not isinstance(each, MountedSource) and each.instructions}
        for toolset in own.values():
            origins = {id(binding.origin) for binding in toolset.bindings()}
            tools = [tool for tool in served if id(tool.origin) in origins]
            if self._own.get("access") is not None:
                # The host decides about deferred tools for each caller, and this text is for a group.
                tools = [tool for tool in tools if not tool.deferred]
            if any(not self._visibility.hides(tool, identity) for tool in tools):
                yield toolset.instructions

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if call.name not in self._served.table or self._served.is_personal:
            await self.known_to(context)
            await self._current()
        if call.name not in self._served.table:
            if (public := self._of_an_app(call.name, context)) is not None:
                call = replace(call, name=public)
            elif source := await self._absent(call.name, context):
                return self._not_ready(source, call, context)
        served = self._served
        try:
            # A tool that its server does not list is not in the table.
            return await (served.dispatch if call.name in served.table else served).call(call, context)
        except UnknownToolError as fault:
            raise await self._unknown(fault, call.name, context) from None

    def _of_an_app(self, name: str, context: ToolContext) -> str | None:
        """The public name of a tool that an app of a mounted server calls by the server's own name.

        An app knows no other names. `None` if the client shows no apps, or if several servers with apps have
        a tool of this name.
        """
        if not isinstance(context, WireContext) or APPS not in context.carried.get("extensions", ()):
            return None
        mounted = [tool for tool in self._served.table.values() if tool.source]
        with_apps = {tool.source for tool in mounted if has_page(tool)}
        names = [
            tool.name
            for tool in mounted
            if tool.source in with_apps
            and tool.definition.name == name
            and not self._visibility.hides(tool, context.identity)
        ]
        return names[0] if len(names) == 1 else None

    async def _unknown(self, fault: UnknownToolError, name: str, context: ToolContext) -> UnknownToolError:
        """The error for a tool that a caller may not see: the same as for a tool that does not exist."""
        if self._visibility.policy is not None and name in self._served.table:
            # An unknown name waits for servers that may have the tool; a hidden name takes the same time.
            await self._unlisted.bring(lambda: False)
        hides = self._visibility.hides_server
        absent = [
            source for source in self._unlisted.away(name) if not hides(source.source_name, context.identity)
        ]
        return not_ready(self._searchable(fault, context), absent)

    def _searchable(self, fault: UnknownToolError, context: ToolContext) -> UnknownToolError:
        """The error with a hint to search, if tools are behind search; the same for every unknown name."""
        if not self._served.defers or self._served.lists_all(context):
            return fault
        from mcp_toolset.catalog.deferred.preparing import how_to_find

        return UnknownToolError(fault.name, how_to_find(fault.name))

    def listed(self, context: ToolContext) -> list[dict[str, Any]]:
        granted = self._served.granted(context)
        listed = self._served.listed_to(context)
        return [*listed, *granted] if granted else listed

    def unknown_to(self, context: ToolContext) -> bool:
        """True while a server's list for such clients, or the client's grants, are unknown."""
        return bool(self._served.lists.unknown_to(context)) or not self._knows_granted(context)

    def _knows_granted(self, context: ToolContext) -> bool:
        """True if the granted tools of a session, which are listed to it, need not be fetched."""
        return context.session is None or not self._served.defers or self.grants.knows_held(context)

    async def known_to(self, context: ToolContext) -> None:
        """Fetch the lists and grants for a client that are unknown."""
        if not self._knows_granted(context):
            await self.grants.know_held(context)
        if not (sources := self._served.lists.unknown_to(context)):
            return
        async with anyio.create_task_group() as group:
            for source in sources:
                group.start_soon(source.known_to, context)
        await self._current()

    def handshake_meta(self, identity: Identity | None) -> dict[str, Any]:
        withheld = self._withheld(identity)
        servers = [
            {"name": name, "state": source.status.state, **({"serverInfo": info} if info else {})}
            for name, source in self.registry.sources().items()
            if name not in withheld and isinstance(source, MountedSource)
            for info in (source.server_info(),)
        ]
        return {SERVERS_META_KEY: servers} if servers else {}

    async def arrive(self, context: ToolContext) -> None:
        """Wait a limited time for servers whose tools are unknown, if these would be listed."""
        await self._unlisted.arrive(listed=self._served.searches(context))

    def grants_issued(self, context: ToolContext) -> int:
        return self.grants.issued_to(context) if context.session and self._served.defers else 0

    async def definition(self, name: str, context: ToolContext) -> Mapping[str, str]:
        """The digest of a tool's definition by the tool's name, once its server is ready; otherwise empty."""
        if name not in self._served.table:
            await self._absent(name, context)
        binding = self._served.table.get(name)
        return {} if binding is None else {name: binding.definition.digest}

    async def _absent(self, name: str, context: ToolContext) -> ToolSource | None:
        """Wait for servers that may have a tool of this name; returns its server if it is not ready."""
        await self._unlisted.bring(lambda: name in self._served.table)
        absent = None if name in self._served.table else self.registry.absent(name)
        if absent is None:
            return None
        entry, source = absent
        if self._visibility.hides_absent(entry, context.identity):
            return None
        await settled([source])
        await self._current()
        if name in self._served.table or not state_of(source.source_name, source.status):
            return None
        return source

    def _not_ready(self, source: ToolSource, call: ToolCall, context: ToolContext) -> ToolResult:
        """The error for a call of a tool whose server is not ready; observers are told."""
        name = source.source_name
        result = ToolResult.of_error(f"{call.name} cannot be called now: {state_of(name, source.status)}")
        reason = "the server is not ready"
        self.refused(call, context, tool=call.name, server=name, outcome="refused", reason=reason)
        return result

    def refused(
        self, call: ToolCall, context: ToolContext, fault: CallError | None = None, **facts: str
    ) -> None:
        """Report a call that was refused before the dispatch; `facts` are fields of the report."""
        if observers := self._rules.observers:
            digest = digest_of(observers)
            binding = self._served.table.get(call.name)
            observation = Observation(binding, digest(call.arguments) if digest else "")
            observation.fault = fault
            tell(observers, replace(report_of(observation, call, context, None), **facts))
