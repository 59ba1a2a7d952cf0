"""Results of modern upstreams that ask for input (`input_required`), and the answers of a legacy client.

`Exchange` plays the rounds: a modern client gets such a result as it is, for a legacy client the bridge asks
and repeats the request (2026-07-28, basic/patterns/mrtr).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import anyio

from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import CallError, UpstreamProtocolError
from mcp_toolset.protocol.json_rpc import MISSING_REQUIRED_CLIENT_CAPABILITY, MCPError
from mcp_toolset.upstream.sessions.client_questions import for_legacy, required, undeclared


def requests_in(wire: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The requests in a result that asks for input, by their keys."""
    requests: object = wire.get("inputRequests")
    if not isinstance(requests, Mapping):
        return {}
    asked = cast("Mapping[str, Any]", requests)
    return {key: cast("Mapping[str, Any]", each) for key, each in asked.items() if isinstance(each, Mapping)}


def check_declared(name: str, wire: Mapping[str, Any], caller: WireContext) -> None:
    """Refuse what the client has not declared, as the upstream should have (-32021).

    Args:
        name: The name of the mount.
        wire: The result that asks for input.
        caller: Whose request it answers.

    Raises:
        UpstreamProtocolError: it asks for more than the client can do.
    """
    for request in requests_in(wire).values():
        method = str(request.get("method"))
        params = cast("Mapping[str, Any]", request.get("params") or {})
        missing = undeclared(method, params, caller.declares)
        if missing:
            raise UpstreamProtocolError(
                name,
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"it asks for {method}, and the client has not declared {missing}",
                required(missing),
            )


async def answers_to(
    name: str, requests: Mapping[str, Mapping[str, Any]], caller: WireContext
) -> dict[str, dict[str, Any]]:
    """What a legacy client answers to the requests of one round, asked all at once.

    Raises:
        CallError: the client refused one of them.
    """
    answers: dict[str, dict[str, Any]] = {}
    refused: list[MCPError] = []

    async def ask(key: str, request: Mapping[str, Any]) -> None:
        try:
            answers[key] = await caller.relay(*for_legacy(request))
        except MCPError as fault:
            refused.append(fault)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for key, request in requests.items():
            group.start_soon(ask, key, request)
    if refused:
        raise CallError(f"{name}: the client did not answer what the server asked: {refused[0].message}")
    return answers
