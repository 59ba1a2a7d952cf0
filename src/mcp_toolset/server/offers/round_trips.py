"""Answers to requests besides `tools/call`: some may ask their client; all are checked."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.context.result_shapes import result_fault
from mcp_toolset.protocol.errors import INVALID_RESULT
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.protocol.revisions import is_modern
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
    """
    bound = (name, arguments, context.principal)
    if context.resume(trips, ToolCall(name, dict(arguments))):
        await trips.claim(context.replay)
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


_KNOWN: Final = frozenset(
    {
        "annotations",
        "arguments",
        "completion",
        "content",
        "contents",
        "icons",
        "messages",
        "prompts",
        "resource",
        "resources",
        "resourceTemplates",
    }
)
"""Members of which the protocol says what is in them; what it does not know is passed on as it is."""

_log = logging.getLogger("mcp_toolset.server")


def whole_answer(
    method: str, version: str, answer: dict[str, Any], stamp: Mapping[str, Any]
) -> dict[str, Any]:
    """An answer as the revision has it, with what the revision does not know, and a modern server's stamp.

    A server may say more than the protocol knows, and its clients are to see it; a null member is left out.
    """
    modern = is_modern(version)
    fault = result_fault(method, answer, modern=modern)
    if fault is not None:
        _log.error("the answer to %s is invalid: %s", method, fault)
        raise MCPError.from_error_data(INVALID_RESULT)
    whole = without_nulls(answer)
    if modern:
        whole["_meta"] = {**(whole.get("_meta") or {}), **stamp}
    return whole


def without_nulls(given: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without the members that are null, as deep as the protocol knows the members."""
    return {key: _kept(key, value) for key, value in given.items() if value is not None}


def _kept(key: str, value: Any) -> Any:
    if key not in _KNOWN:
        return value
    if isinstance(value, Mapping):
        return without_nulls(cast("Mapping[str, Any]", value))
    if isinstance(value, list):
        return [_kept(key, each) for each in cast("list[Any]", value)]
    return value
