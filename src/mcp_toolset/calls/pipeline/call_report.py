"""`CallReport`: the outcome of one call, as observers get it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from mcp_toolset._records import dataclass
from mcp_toolset.calls.pipeline.decision import rejection_reason
from mcp_toolset.concurrency.cancel_reason import CancelledError
from mcp_toolset.errors import (
    ClientCapabilityError,
    GrantError,
    InvalidArgumentsError,
    PermissionDeniedError,
    RequestStateError,
    StoreError,
    UnknownToolError,
)
from mcp_toolset.tools.core.asking import InputRequired, joined
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.identity import Identity
from mcp_toolset.tools.core.result import ToolResult

Outcome = Literal["result", "error", "refused", "asked", "cancelled"]
"""The outcome of a call.

- `result`: the caller has a result.
- `error`: the tool, its server or a rule failed; the caller has an error.
- `refused`: the call did not run: unknown tool, no grant, wrong arguments, a hook, a policy.
- `asked`: the call ended with a question; the repeated call with the answer is reported as well.
- `cancelled`: the caller, or the loop, cancelled it.
"""

_REFUSALS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (UnknownToolError, "unknown tool"),
    (InvalidArgumentsError, "invalid arguments"),
    (GrantError, "no valid grant"),
    (StoreError, "a store failed"),
    (PermissionDeniedError, "permission denied"),
    (ClientCapabilityError, "the client lacks a capability"),
    (RequestStateError, "invalid request state"),
)
REFUSALS: Final = frozenset(told for _, told in _REFUSALS)
"""The reasons of a refusal that are no text of a rule."""


@dataclass(frozen=True, slots=True)
class CallReport:
    """The report of one call. It has no arguments, no result and no credentials.

    Attributes:
        called: The name that the caller used: `call_tool` for a deferred tool that was called by its grant.
        tool: The public name of the called tool; empty if it does not exist.
        server: The name of the mounted server of the tool; empty for local tools.
        outcome: The outcome of the call.
        reason: Of a refusal: the rule's text or a fixed text. Of an exception: its type. Empty otherwise.
        ran: Whether the tool ran; for a manual tool, whether the application got the call.
        decisions: The decisions of execution hooks, in order: `RunNormally`, `Complete`, `Reject`.
        id: The id of the call, in a round.
        round: The id of the round, the same for all calls of one model reply; empty for other calls.
        session: The caller's session, if the protocol has sessions.
        principal: The authenticated user.
        client: The name and version that the client program gives itself; empty if unknown.
        protocol_version: The protocol revision of the call; `None` without a client.
        started: When the call arrived, in seconds since the epoch.
        duration: Seconds until the result.
        identity: The authenticated caller, with name and roles.
        arguments: A keyed digest of the arguments as the caller sent them, if an observer makes digests: an
            `AuditLog` does.
        rule: The rule of a policy that decided about the call; empty if no rule did.
        trace: The id of the call's trace; empty without a trace.
        repairs: What was repaired in the arguments, in words and without values.
        usage: Tokens by kind that the program's own model took for the call; see `sampler` of a server.
    """

    called: str
    tool: str
    server: str
    outcome: Outcome
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
    identity: Identity | None = None
    arguments: str = ""
    rule: str = ""
    trace: str = ""
    repairs: tuple[str, ...] = ()
    usage: tuple[tuple[str, int], ...] = ()


def outcome_of(fault: BaseException | None, result: ToolResult | None) -> tuple[Outcome, str]:
    """The outcome of a call, and why it failed; see `CallReport`."""
    if fault is not None:
        outcome, reason = _of_fault(fault)
        # A middleware that was cancelled by what it waited for; the caller has an error result.
        return ("error", reason) if outcome == "cancelled" and result is not None else (outcome, reason)
    if result is None or not result.is_complete:
        return "asked", ""
    refused = rejection_reason(result)
    if refused is not None:
        return "refused", refused.reason
    return ("error" if result.is_error else "result"), ""


def _of_fault(fault: BaseException) -> tuple[Outcome, str]:
    fault = joined(fault)
    if isinstance(fault, InputRequired):
        return "asked", ""
    if isinstance(fault, CancelledError):
        return "cancelled", ""
    refusal = next((told for kind, told in _REFUSALS if isinstance(fault, kind)), None)
    return ("error", type(fault).__name__) if refusal is None else ("refused", refusal)


def client_label(context: ToolContext) -> str:
    """The name and version that the client program gives itself; empty if unknown."""
    return label_of(context.client_info)


def label_of(client: Mapping[str, Any]) -> str:
    """The name and version in a `clientInfo`."""
    name, version = client.get("name"), client.get("version")
    return f"{name} {version}" if name and version else str(name or version or "")
