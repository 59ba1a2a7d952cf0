"""`ToolAnswers`: `tools/list` and `tools/call`, with raw dictionaries in the envelope of the client's era.

It needs a `ServerSurface` of a toolset server; `ClientSide` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from mcp_toolset._records import replace
from mcp_toolset.calls.dispatch import promised
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.errors import (
    CallError,
    ClientCapabilityError,
    InvalidOutputError,
    RequestStateError,
    UnknownToolError,
    UpstreamProtocolError,
)
from mcp_toolset.extending.joined import Extensions
from mcp_toolset.protocol.codec import json_of
from mcp_toolset.protocol.eras import (
    STRICTEST,
    CacheHint,
    Encoded,
    list_for,
    lowered_tool,
    result_for,
    with_tools,
)
from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, MCPError, refusal
from mcp_toolset.server.resource_handlers import Announcements
from mcp_toolset.server.tool_table import ServedTools
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.result import AskUser, ElicitationAnswer, Halt, InputRequired, ToolResult, joined
from mcp_toolset.tools.signature import UNTYPED
from mcp_toolset.tools.view import ToolBinding


class ServerSurface(Protocol):
    """What the wire needs of a toolset server."""

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult: ...

    def refused(self, call: ToolCall, context: ToolContext, fault: CallError) -> None:
        """Report a call that is refused before it gets to the dispatch table."""

    def unknown_to(self, context: ToolContext) -> bool:
        """True if it has still to be found out what some server lists to clients like this one."""
        ...

    async def known_to(self, context: ToolContext) -> None: ...

    async def definition(self, name: str, context: ToolContext) -> Mapping[str, str]:
        """The digest of a tool's definition, by its name, once its server is there; nothing without it."""
        ...

    def handshake_meta(self, identity: Identity | None) -> dict[str, Any]: ...
    def instructions_to(self, identity: Identity | None) -> str | None: ...
    def is_arriving(self) -> bool: ...
    async def arrive(self) -> None: ...

    def grants_issued(self, context: ToolContext) -> int: ...

    def opened(self) -> AbstractAsyncContextManager[None]: ...


HALT_META_KEY: Final = "mcp-toolset/halt"
"""In the `_meta` of a result: why the tool wants the loop to end after it."""


def halted(result: ToolResult) -> ToolResult:
    """The result with its halt said twice: in `_meta` for a program, in words for a model."""
    if result.halt is None:
        return result
    note = {"type": "text", "text": f"[The tool asks to stop here: {result.halt.reason}]"}
    meta: dict[str, Any] = {**(result.wire.get("_meta") or {}), HALT_META_KEY: result.halt.reason}
    return replace(result, wire={**result.wire, "content": [*result.content, note], "_meta": meta})


def fitted(binding: ToolBinding, output: Any) -> ToolResult:
    if isinstance(output, Halt):
        return replace(fitted(binding, output.result), halt=output)
    if isinstance(output, ToolResult | AskUser):
        return _checked(binding, UNTYPED.to_result(output, binding.name))
    if binding.output is None:
        structured = not isinstance(output, str | None)
        return _structured(binding, output) if structured else UNTYPED.to_result(output, binding.name)
    result = _structured(binding, output)
    return _checked(binding, promised(binding.output, result, result.text))


def _structured(binding: ToolBinding, output: Any) -> ToolResult:
    try:
        text = output if isinstance(output, str) else None
        return ToolResult.of_structured(output, text=text)
    except ValueError as fault:
        raise InvalidOutputError(f"the output for {binding.name} has no JSON form: {fault}") from None


def _checked(binding: ToolBinding, result: ToolResult) -> ToolResult:
    if binding.output is None or result.is_error or not result.is_complete:
        return result
    if not binding.output.is_valid(result.structured):
        faults = "; ".join(binding.output.problems(result.structured))
        raise InvalidOutputError(f"the output for {binding.name} does not fit its output schema: {faults}")
    return result


def answered(binding: ToolBinding, asked: AskUser, answer: ElicitationAnswer) -> ToolResult:
    """The result of a call that asked the user: the answer, or that there is none."""
    # The answer to a question without a schema is its text.
    if answer.action == "decline":
        return ToolResult.of_error(f"{binding.name}: the user declined to answer: {asked.question}")
    if answer.action == "cancel":
        return ToolResult.of_error(f"{binding.name}: the user left the question unanswered: {asked.question}")
    content = dict(answer.content)
    if asked.schema is None:
        return fitted(binding, content["answer"])
    sole = next(iter(content.values())) if len(content) == 1 else content
    if binding.output is not None and not binding.output.is_valid(content):
        return fitted(binding, sole)
    return ToolResult.of_structured(content)


_NO_TOOL: Final[Mapping[str, Any]] = {}
_KeptList = tuple[list[dict[str, Any]], tuple[CacheHint, Mapping[str, Any]], Encoded]

MAX_VARIANTS: Final = 16  # lists of tools that are kept in JSON, for clients that do not see the same


class ToolAnswers:
    """Answers about tools, for one server."""

    def __init__(
        self,
        surface: ServerSurface,
        served: ServedTools,
        trips: RoundTrips,
        announcements: Announcements,
        stamp: Mapping[str, Any],
        extensions: Extensions,
    ) -> None:
        self._surface = surface
        self._served = served
        self._extensions = extensions
        self._trips = trips
        self._announcements = announcements
        self.stamp = stamp  # what a server says of itself in modern results
        self.offers_tasks: Callable[[], bool] = lambda: False  # calls may become tasks
        self._lists: dict[tuple[bool, int], _KeptList] = {}

    async def list(self, request: RequestContext) -> dict[str, Any]:
        if self._surface.is_arriving():
            await self._surface.arrive()
        context = WireContext(request)
        if self._surface.unknown_to(context):
            await self._surface.known_to(context)
        if (request.params or {}).get("cursor") is not None:
            raise MCPError(INVALID_PARAMS, "Unknown cursor: this server lists all its tools on one page")
        encoded, granted = self._encoded(context), self._served.granted(context)
        return with_tools(encoded, [lowered_tool(tool) for tool in granted]) if granted else encoded

    def _encoded(self, context: WireContext) -> Encoded:
        modern, tools = context.modern, self._served.listed_to(context)
        hint = self._served.list_hint() if modern else STRICTEST
        meta = self._served.list_meta(context.identity)
        known = self._lists.get((modern, id(tools)))
        if known is not None and known[0] is tools and known[1] == (hint, meta):
            return known[2]
        stamp = {**meta, **self.stamp} if modern else meta
        result = list_for(tools, modern=modern, stamp=stamp, hint=hint.to_wire())
        if len(self._lists) >= MAX_VARIANTS:
            self._lists.clear()
        self._lists[modern, id(tools)] = (tools, (hint, meta), encoded := Encoded(result, json_of(result)))
        return encoded

    async def call(self, request: RequestContext) -> dict[str, Any]:
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
        told = result if result.halt is None else halted(result)
        return result_for(told.wire, version=request.protocol_version, stamp=self.stamp)

    def listed(self, name: str, context: WireContext) -> Mapping[str, Any]:
        every = (*self._served.listed_to(context), *self._served.granted(context))
        return next((tool for tool in every if tool["name"] == name), _NO_TOOL)

    async def definition(self, name: str, context: ToolContext) -> Mapping[str, str]:
        return await self._surface.definition(name, context)

    async def result(self, call: ToolCall, context: WireContext) -> dict[str, Any]:
        """The result of a call for a client, on the wire; `InputRequired` once it is handed over."""
        try:
            result = await self._answered(call, context)
        except (UnknownToolError, UpstreamProtocolError) as fault:
            raise refusal(fault) from None
        return result_for(halted(result).wire, version=context.protocol_version or "", stamp=self.stamp)

    async def _answered(self, call: ToolCall, context: WireContext) -> ToolResult:
        """Run a call, or run it again with what the client answers; or ask the client."""
        bound = (call.name, call.arguments, context.principal)
        filled: ToolCall | None = None
        try:
            if context.resume(self._trips, call):
                tools = await self._surface.definition(call.name, context)
                await self._trips.claim(context.replay, tools)
            filled = call if self._extensions.sent is None else self._extensions.sent(call, context)
            try:
                result = await self._surface.call(filled, context)
                if self._extensions.answered is not None:
                    result = self._extensions.answered(result, filled, context)
            except (InputRequired, BaseExceptionGroup) as fault:
                asking = joined(fault)
                if not isinstance(asking, InputRequired) or context.is_handed_over:
                    raise asking from None
                tools = await self._surface.definition(call.name, context)
                return self._trips.suspend(context.replay, asking.requests, *bound, tools=tools)
            if result.is_complete or context.is_handed_over:
                return result
            tools = await self._surface.definition(call.name, context)
            return self._trips.relayed(result, context.replay, *bound, tools=tools)
        except CallError as fault:
            if filled is None:
                # What a client refers to was not there: no tool was looked up, and so nothing was reported.
                self._surface.refused(call, context, fault)
            return _failed(fault, context)


def _failed(fault: CallError, context: WireContext) -> ToolResult:
    """The result of a call that failed; some faults are errors of the protocol."""
    if isinstance(fault, UnknownToolError):
        raise fault
    if isinstance(fault, RequestStateError) or (isinstance(fault, ClientCapabilityError) and context.modern):
        raise refusal(fault) from None
    return ToolResult.of_error(str(fault))
