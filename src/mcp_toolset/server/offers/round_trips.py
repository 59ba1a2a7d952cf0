"""Requests besides `tools/call` that may ask their client: `prompts/get` and `resources/read`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.tools.core.asking import InputRequired, joined
from mcp_toolset.tools.core.call import ToolCall
from mcp_toolset.tools.core.result import ToolResult


async def resumable(
    trips: RoundTrips,
    context: WireContext,
    name: str,
    arguments: Mapping[str, Any],
    run: Callable[[], Awaitable[Mapping[str, Any]]],
) -> Mapping[str, Any]:
    """Run a request, or run it again with what its client answers; or ask the client.

    Args:
        trips: What the server's states are opened and closed with.
        context: Whose request it is.
        name: What tells the request from others, its method included: `prompts/get greeting`.
        arguments: What else the state is bound to.
        run: Sends it on, with `UpstreamConnection.exchange`.

    Returns:
        The answer in wire form; one with the `resultType` `input_required` asks the client.

    Raises:
        CallError: its state was altered, has ended, was used, or belongs to another request.
        UpstreamError: the upstream failed.
    """
    bound = (name, arguments, context.principal)
    context.resume(trips, ToolCall(name, dict(arguments)))
    try:
        wire = await run()
    except (InputRequired, BaseExceptionGroup) as fault:
        asking = joined(fault)
        if not isinstance(asking, InputRequired):
            raise asking from None
        return trips.suspend(context.replay, asking.requests, *bound).wire
    if wire.get("resultType") != "input_required":
        return wire
    return trips.relayed(ToolResult(wire), context.replay, *bound).wire
