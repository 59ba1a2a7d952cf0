"""`CallFacts`: what the line of a call says, as it is queued; it costs a call less than a report."""

from __future__ import annotations

from typing import Literal, NamedTuple

from mcp_toolset.tools.core.identity import Identity

Common = tuple[str, str, str, str | None, str | None, str | None, str, int]
"""What a call has in common with others: called, tool, server, principal, protocol, session, client, caller.

The last is Python's `id` of the identity, which takes longer to compare: who keeps it must keep the identity.
"""


class CallFacts(NamedTuple):
    """What is known of a call that has ended; the fields of `CallReport`, in its order."""

    called: str
    tool: str
    server: str
    outcome: Literal["result", "refused", "error", "cancelled", "asked"]
    reason: str
    ran: bool
    decisions: tuple[str, ...]
    id: str
    round: str
    session: str | None
    principal: str | None
    client: str
    protocol_version: str | None
    started: float
    duration: float
    identity: Identity | None
    arguments: str
    rule: str
    trace: str
    repairs: tuple[str, ...]
    usage: tuple[tuple[str, int], ...] = ()


def common_of(call: CallFacts) -> Common:
    return (
        call.called,
        call.tool,
        call.server,
        call.principal,
        call.protocol_version,
        call.session,
        call.client,
        id(call.identity),
    )
