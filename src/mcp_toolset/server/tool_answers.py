"""`ToolAnswers`: the answers to `tools/list` and `tools/call`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcp_toolset import errors
from mcp_toolset._records import replace
from mcp_toolset.calls.dispatch import in_output_form
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.extending.joined import Extensions
from mcp_toolset.protocol import eras
from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, MCPError, json_of, refusal
from mcp_toolset.server.resource_handlers import Announcements
from mcp_toolset.server.tool_table import ServedTools
from mcp_toolset.tools.call import ToolCall
from mcp_toolset.tools.result import AskUser, ElicitationAnswer, Halt, InputRequired, ToolResult, joined
from mcp_toolset.tools.signature import UNTYPED
from mcp_toolset.tools.view import ToolBinding

if TYPE_CHECKING:
    from mcp_toolset.server.client_side import ClientSide

HALT_META_KEY: Final = "mcp-toolset/halt"
"""The key in `_meta` of a result under which a tool asks the loop to end, with the reason."""


def halted(result: ToolResult) -> ToolResult:
    """The result with its halt in `_meta` for programs, and as text for models."""
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
    return _checked(binding, in_output_form(binding.output, result, result.text))


def _structured(binding: ToolBinding, output: Any) -> ToolResult:
    try:
        text = output if isinstance(output, str) else None
        return ToolResult.of_structured(output, text=text)
    except ValueError as fault:
        raise errors.InvalidOutputError(f"the output for {binding.name} has no JSON form: {fault}") from None


def _checked(binding: ToolBinding, result: ToolResult) -> ToolResult:
    if binding.output is None or result.is_error or not result.is_complete:
        return result
    if not binding.output.is_valid(result.structured):
        faults = "; ".join(binding.output.problems(result.structured))
        raise errors.InvalidOutputError(
            f"the output for {binding.name} does not fit its output schema: {faults}"
        )
    return result


def answered(binding: ToolBinding, asked: AskUser, answer: ElicitationAnswer) -> ToolResult:
    """The result of a call that asked the user, from the answer; an error if the user did not answer."""
    # The answer to a question without a schema is its text.
    if answer.action == "decline":
        return ToolResult.of_error(f"{binding.name}: the user declined to answer: {asked.question}")
    if answer.action == "cancel":
        return ToolResult.of_error(f"{binding.name}: the user left the question unanswered: {asked.question}")
    content = dict(answer.content)
    if asked.schema is None:
        return fitted(binding, content["answer"])
    if binding.output is not None and not binding.output.is_valid(content):
        return fitted(binding, next(iter(content.values())) if len(content) == 1 else content)
    return ToolResult.of_structured(content)


_NO_TOOL: Final[Mapping[str, Any]] = {}
_KeptList = tuple[list[dict[str, Any]], tuple[eras.CacheHint, Mapping[str, Any]], eras.Encoded]

MAX_VARIANTS: Final = 16  # encoded lists of tools that are kept, for clients with different lists


class ToolAnswers:
    """Answers the requests about tools to one server."""

    def __init__(
        self,
        side: ClientSide,
        served: ServedTools,
        trips: RoundTrips,
        announcements: Announcements,
        stamp: Mapping[str, Any],
        extensions: Extensions,
    ) -> None:
        self._side = side
        self._served = served
        self._extensions = extensions
        self._trips = trips
        self._announcements = announcements
        self.definition = side.definition
        self.stamp = stamp  # the server info in `_meta` of modern results
        self.offers_tasks: Callable[[], bool] = lambda: False  # true if calls may become tasks
        self._lists: dict[tuple[bool, int], _KeptList] = {}

    async def list(self, request: RequestContext) -> dict[str, Any]:
        context = WireContext(request)
        await self._side.arrive(context)
        if self._side.unknown_to(context):
            await self._side.known_to(context)
        if (request.params or {}).get("cursor") is not None:
            raise MCPError(INVALID_PARAMS, "Unknown cursor: this server lists all its tools on one page")
        encoded, granted = self._encoded(context), self._served.granted(context)
        return eras.with_tools(encoded, [eras.lowered_tool(tool) for tool in granted]) if granted else encoded

    def _encoded(self, context: WireContext) -> eras.Encoded:
        modern, tools = context.modern, self._served.listed_to(context)
        hint = self._served.list_hint() if modern else eras.STRICTEST
        meta = self._served.list_meta(context.identity)
        cached = self._lists.get((modern, id(tools)))
        if cached is not None and cached[0] is tools and cached[1] == (hint, meta):
            return cached[2]
        stamp = {**meta, **self.stamp} if modern else meta
        result = eras.list_for(tools, modern=modern, stamp=stamp, hint=hint.to_wire())
        if len(self._lists) >= MAX_VARIANTS:
            self._lists.clear()
        self._lists[modern, id(tools)] = (
            tools,
            (hint, meta),
            encoded := eras.Encoded(result, json_of(result)),
        )
        return encoded

    async def call(self, request: RequestContext) -> dict[str, Any]:
        params: Mapping[str, Any] = request.params or {}
        context = WireContext(request)
        # Granted tools are not on the list of a modern client.
        counts = self._served.defers and not request.modern
        issued = self._side.grants_issued(context) if counts else 0
        try:
            result = await self._run(ToolCall(params["name"], params.get("arguments") or {}), context)
        except (errors.UnknownToolError, errors.UpstreamProtocolError) as fault:
            raise refusal(fault) from None
        if counts and self._side.grants_issued(context) != issued:
            await self._announcements.to(request.connection)
        return eras.result_for(halted(result).wire, version=request.protocol_version, stamp=self.stamp)

    def listed(self, name: str, context: WireContext) -> Mapping[str, Any]:
        """A tool as it is listed to a client; empty without such a tool."""
        tools = (*self._served.listed_to(context), *self._served.granted(context))
        return next((tool for tool in tools if tool["name"] == name), _NO_TOOL)

    async def result(self, call: ToolCall, context: WireContext) -> dict[str, Any]:
        """The wire form of a call's result; raises `InputRequired` once the call is a task."""
        try:
            result = await self._run(call, context)
        except (errors.UnknownToolError, errors.UpstreamProtocolError) as fault:
            raise refusal(fault) from None
        return eras.result_for(halted(result).wire, version=context.protocol_version or "", stamp=self.stamp)

    async def _run(self, call: ToolCall, context: WireContext) -> ToolResult:
        """Run a call, or a repeated call with the answers of the client; the result may be a question."""
        bound = (call.name, call.arguments, context.principal)
        sent: ToolCall | None = None
        try:
            if context.resume(self._trips, call):
                tools = await self._side.definition(call.name, context)
                await self._trips.claim(context.replay, tools)
            sent = call if self._extensions.sent is None else self._extensions.sent(call, context)
            try:
                result = await self._side.call(sent, context)
                if self._extensions.answered is not None:
                    result = self._extensions.answered(result, sent, context)
            except (InputRequired, BaseExceptionGroup) as fault:
                asking = joined(fault)
                if not isinstance(asking, InputRequired) or context.is_handed_over:
                    raise asking from None
                tools = await self._side.definition(call.name, context)
                return self._trips.suspend(context.replay, asking.requests, *bound, tools=tools)
            if result.is_complete or context.is_handed_over:
                return result
            tools = await self._side.definition(call.name, context)
            return self._trips.relayed(result, context.replay, *bound, tools=tools)
        except errors.CallError as fault:
            if sent is None:
                # The state of a repeated call was invalid, so no dispatch has reported the call.
                self._side.refused(call, context, fault)
            return _failed(fault, context)


def _failed(fault: errors.CallError, context: WireContext) -> ToolResult:
    """The error result of a call; raises faults that are errors of the protocol."""
    if isinstance(fault, errors.UnknownToolError):
        raise fault
    if isinstance(fault, errors.RequestStateError) or (
        isinstance(fault, errors.ClientCapabilityError) and context.modern
    ):
        raise refusal(fault) from None
    return ToolResult.of_error(str(fault))
