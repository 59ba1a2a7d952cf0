"""`ToolAnswers`: `tools/list` and `tools/call`, with raw dictionaries in the envelope of the client's era."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp_toolset.context.incoming import RequestContext
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.errors import (
    CallError,
    ClientCapabilityError,
    RequestStateError,
    UnknownToolError,
    UpstreamProtocolError,
)
from mcp_toolset.protocol.cache_hints import STRICTEST, CacheHint
from mcp_toolset.protocol.codec import json_of
from mcp_toolset.protocol.encoded_answers import Encoded, with_tools
from mcp_toolset.protocol.eras.results import list_for, lowered_tool, result_for
from mcp_toolset.protocol.errors import refusal
from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, MCPError
from mcp_toolset.server.answers.announcements import Announcements
from mcp_toolset.server.answers.results import halted
from mcp_toolset.server.answers.surface import Surface
from mcp_toolset.tools.core.asking import InputRequired, joined
from mcp_toolset.tools.core.call import ToolCall
from mcp_toolset.tools.core.result import ToolResult

_KeptList = tuple[list[dict[str, Any]], tuple[CacheHint, Mapping[str, Any]], Encoded]

MAX_VARIANTS: Final = 16
"""Lists of tools that are kept in JSON, for clients that do not see the same."""


class ToolAnswers:
    """Answers about tools, for one server."""

    def __init__(
        self, surface: Surface, trips: RoundTrips, announcements: Announcements, stamp: Mapping[str, Any]
    ) -> None:
        """Answer out of a surface; what a server says of itself in modern results is `stamp`."""
        self._surface = surface
        self._trips = trips
        self._announcements = announcements
        self._stamp = stamp
        self._lists: dict[tuple[bool, int], _KeptList] = {}

    async def list(self, request: RequestContext) -> dict[str, Any]:
        """All the tools that a client sees, on one page."""
        if self._surface.is_arriving():
            await self._surface.arrive()
        context = WireContext(request)
        if self._surface.unknown_to(context):
            await self._surface.known_to(context)
        if (request.params or {}).get("cursor") is not None:
            raise MCPError(INVALID_PARAMS, "Unknown cursor: this server lists all its tools on one page")
        encoded, granted = self._encoded(context), self._surface.granted(context)
        return with_tools(encoded, [lowered_tool(tool) for tool in granted]) if granted else encoded

    def _encoded(self, context: WireContext) -> Encoded:
        """What clients of an era that see the same are told; brought into JSON once for as long as it is."""
        modern, tools = context.modern, self._surface.listed_to(context)
        hint = self._surface.list_hint() if modern else STRICTEST
        meta = self._surface.list_meta()
        known = self._lists.get((modern, id(tools)))
        if known is not None and known[0] is tools and known[1] == (hint, meta):
            return known[2]
        stamp = {**meta, **self._stamp} if modern else meta
        result = list_for(tools, modern=modern, stamp=stamp, hint=hint.to_wire())
        if len(self._lists) >= MAX_VARIANTS:
            self._lists.clear()
        self._lists[modern, id(tools)] = (tools, (hint, meta), encoded := Encoded(result, json_of(result)))
        return encoded

    async def call(self, request: RequestContext) -> dict[str, Any]:
        """The result of one call."""
        params: Mapping[str, Any] = request.params or {}
        context = WireContext(request)
        # What a modern client is granted is not on its list.
        issued = 0 if request.modern else self._surface.grants_issued(context)
        try:
            result = await self._answered(ToolCall(params["name"], params.get("arguments") or {}), context)
        except (UnknownToolError, UpstreamProtocolError) as fault:
            raise refusal(fault) from None
        if not request.modern and self._surface.grants_issued(context) != issued:
            await self._announcements.to(request.connection)
        return result_for(halted(result).wire, version=request.protocol_version, stamp=self._stamp)

    async def _answered(self, call: ToolCall, context: WireContext) -> ToolResult:
        """Run a call, or run it again with what the client answers; or ask the client."""
        bound = (call.name, call.arguments, context.principal)
        try:
            context.resume(self._trips, call)
            try:
                result = await self._surface.call(call, context)
            except (InputRequired, BaseExceptionGroup) as fault:
                asking = joined(fault)
                if not isinstance(asking, InputRequired):
                    raise asking from None
                return self._trips.suspend(context.replay, asking.requests, *bound)
            if result.is_complete:
                return result
            return self._trips.relayed(result, context.replay, *bound)
        except UnknownToolError:
            raise
        except RequestStateError as fault:
            raise refusal(fault) from None
        except ClientCapabilityError as fault:
            if context.modern:
                raise refusal(fault) from None
            return ToolResult.of_error(str(fault))
        except CallError as fault:
            return ToolResult.of_error(str(fault))
