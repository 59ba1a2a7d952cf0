"""`ClientSide`: the lists and calls of a server, as its clients ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from mcp_toolset._records import replace
from mcp_toolset.calls.pipeline.observation import Observation
from mcp_toolset.calls.pipeline.observers import digest_of, tell
from mcp_toolset.calls.pipeline.reporting import report_of
from mcp_toolset.errors import CallError, UnknownToolError
from mcp_toolset.protocol.cache_hints import CacheHint
from mcp_toolset.server.interface.parts import ServerParts, servers_meta
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.identity import Identity
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.source import ToolSource, not_ready, state_of
from mcp_toolset.tools.toolsets.opening import settled


class ClientSide(ServerParts):
    """The side of a server that answers the requests of clients: lists, calls, what a handshake says."""

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run one call; see `ServedTools.call`."""
        if call.name not in self._served.table or self._served.is_personal:
            await self.known_to(context)
            await self._current()
        if call.name not in self._served.table and (source := await self._absent(call.name, context)):
            return self._not_ready(source, call, context)
        try:
            return await self._served.call(call, context)
        except UnknownToolError as fault:
            raise await self._unknown(fault, call.name, context) from None

    async def _unknown(self, fault: UnknownToolError, name: str, context: ToolContext) -> UnknownToolError:
        """The error for a tool that does not exist for a caller, as it is for one that exists for none."""
        if self._visibility.policy is not None and name in self._served.table:
            # An unknown name waits for what may bring the tool, so a hidden one does.
            await self._unlisted.bring(lambda: False)
        hides = self._visibility.hides_server
        away = self._unlisted.away(name)
        away = [one for one in away if not hides(one.source_name, context.identity)]
        return not_ready(self._searchable(fault), away)

    def _searchable(self, fault: UnknownToolError) -> UnknownToolError:
        """The error with the way on, where tools are behind search: the same for every unknown name."""
        if not self._served.defers:
            return fault
        from mcp_toolset.catalog.deferred.next_call import how_to_find

        return UnknownToolError(fault.name, how_to_find(fault.name))

    def listed(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that this caller sees; see `ServedTools.listed`."""
        return self._served.listed(context)

    def listed_to(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that a caller sees, in wire form; see `ServedTools.listed_to`."""
        return self._served.listed_to(context)

    def unknown_to(self, context: ToolContext) -> bool:
        """Whether the list for clients like this one is still unknown."""
        return bool(self._served.unknown_to(context)) or not self._knows_granted(context)

    def _knows_granted(self, context: ToolContext) -> bool:
        """Whether nothing has to be fetched to say what a session was granted, and so is listed to it."""
        return context.session is None or not self._served.defers or self.grants.knows_held(context)

    async def known_to(self, context: ToolContext) -> None:
        """Wait, for a little while at most, until that is known and served."""
        if not self._knows_granted(context):
            await self.grants.know_held(context)
        if not (sources := self._served.unknown_to(context)):
            return
        async with anyio.create_task_group() as group:
            for source in sources:
                group.start_soon(source.known_to, context)
        await self._current()

    def granted(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that only this caller sees; see `ServedTools.granted`."""
        return self._served.granted(context)

    def list_hint(self) -> CacheHint:
        """How long a client may keep the list of tools; see `ServedTools.list_hint`."""
        return self._served.list_hint()

    def list_meta(self, context: ToolContext) -> Mapping[str, Any]:
        """The `_meta` of the mounted servers' lists of tools, for servers that the caller may see."""
        return self._served.list_meta(context.identity)

    def handshake_meta(self, identity: Identity | None) -> dict[str, Any]:
        """The `_meta` of the answer to a handshake: the mounted servers."""
        return servers_meta(self.registry.sources(), self._withheld(identity))

    def is_arriving(self) -> bool:
        """Whether `arrive` may have something to wait for."""
        return bool(self._unlisted)

    async def arrive(self) -> None:
        """Wait for listed mounts of which nothing is known yet; see `UnlistedMounts.arrive`."""
        await self._unlisted.arrive(listed=True)

    def grants_issued(self, context: ToolContext) -> int:
        """The number of grants that this caller's session has got so far."""
        return self.grants.issued_to(context) if context.session and self._served.defers else 0

    def input_schema(self, name: str, scope: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The input schema of a listed tool; see `ServedTools.input_schema`."""
        return self._served.input_schema(name, scope)

    async def definition(self, name: str, context: ToolContext) -> Mapping[str, str]:
        """See `Surface`."""
        if name not in self._served.table:
            await self._absent(name, context)
        binding = self._served.table.get(name)
        return {} if binding is None else {name: binding.definition.digest}

    async def _absent(self, name: str, context: ToolContext) -> ToolSource | None:
        """Wait for what may bring a tool of this name; its server if that is known and is not ready."""
        await self._unlisted.bring(lambda: name in self._served.table)
        found = None if name in self._served.table else self.registry.absent(name)
        if found is None or self._visibility.hides_absent(found[0], context.identity):
            return None
        source = found[1]
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
        self._tell(call, context, tool=call.name, server=name, outcome="refused", reason=reason)
        return result

    def refused(self, call: ToolCall, context: ToolContext, fault: CallError) -> None:
        """See `Surface`."""
        self._tell(call, context, fault)

    def _tell(
        self, call: ToolCall, context: ToolContext, fault: CallError | None = None, **told: str
    ) -> None:
        if observers := self._rules.observers:
            digest = digest_of(observers)
            binding = self._served.table.get(call.name)
            seen = Observation(binding, digest(call.arguments) if digest else "")
            seen.fault = fault
            tell(observers, replace(report_of(seen, call, context, None), **told))
