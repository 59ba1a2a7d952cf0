"""`StandIn`: what answers requests of a mounted server in calls of clients that cannot be asked.

The server is told of its capability as of those of the client; see `MountExtension.stand_in`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from mcp_toolset.context.request import WireContext
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.upstream.sessions.call_in_flight import CallInFlight

_KEPT: Final = "lent "
"""Begins the names of its answers among those of the client; no request is named so."""

Requests = Mapping[str, Mapping[str, Any]]


class StandIn(Protocol):
    """Answers one kind of request.

    Attributes:
        method: The method of the requests.
        capability: What clients that answer them declare.
    """

    method: str
    capability: str

    def serves(self, context: ToolContext) -> bool:
        """Whether requests in the course of this call are answered here."""
        ...

    def takes(self, request: Mapping[str, Any]) -> bool:
        """Whether a request of a round trip is one that can be answered here."""
        ...

    async def relay(self, call: CallInFlight, params: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request of a legacy server, in wire form.

        Raises:
            MCPError: there is none; the server decides what to do then.
        """
        ...

    async def answers(self, call: CallInFlight, requests: Requests) -> dict[str, dict[str, Any]]:
        """The answers to the requests of one round trip (2026-07-28).

        Raises:
            CallError: there is none for one of them.
        """
        ...


def carried_to(stand_in: StandIn | None, carried: Mapping[str, Any]) -> Mapping[str, Any]:
    """The capabilities that a mounted server is told of: those of the client, and that of the stand-in."""
    return (
        carried
        if stand_in is None or stand_in.capability in carried
        else {**carried, stand_in.capability: {}}
    )


def parted(
    stand_in: StandIn | None, requests: Requests, context: ToolContext
) -> tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
    """The requests of a round trip that the stand-in answers, and those for the client."""
    if stand_in is None or not stand_in.serves(context):
        return {}, dict(requests)
    own = {key: each for key, each in requests.items() if stand_in.takes(each)}
    return own, {key: each for key, each in requests.items() if key not in own}


def keep(answers: Mapping[str, dict[str, Any]], caller: WireContext) -> None:
    """Keep answers until the client repeats the call with answers of its own (2026-07-28)."""
    caller.replay.answers |= {f"{_KEPT}{key}": answer for key, answer in answers.items()}


def with_kept(trip: dict[str, Any], caller: WireContext) -> dict[str, Any]:
    """What a repeated request brings to the server, with the answers that were kept."""
    known = caller.replay.answers
    kept = {name.removeprefix(_KEPT): known.pop(name) for name in list(known) if name.startswith(_KEPT)}
    return {**trip, "inputResponses": {**kept, **trip.get("inputResponses", {})}} if kept else trip
