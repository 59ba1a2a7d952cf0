"""`PolicyGuard`: a policy on every call; one about which the client cannot ask waits for an approval."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.to_thread

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.checks import Recent
from mcp_toolset.calls.decision import Reject, rejection, rejection_reason
from mcp_toolset.calls.middleware import CallNext, Run
from mcp_toolset.calls.permissions import AskingGuard, CallToApprove, EventRecorder, needs, refused
from mcp_toolset.errors import DefinitionError, StoreError
from mcp_toolset.extensions.approvals.approvals import Approval, Approvals
from mcp_toolset.security.policy import Policy
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.result import ToolResult

APPROVAL_META_KEY: Final = "mcp-toolset/approval"
"""In the `_meta` of a refusal: the id, the state and the expiry of the approval that it is about."""

MAX_EDITED: Final = 1000
"""Calls whose edited arguments are kept while they wait for an approval."""


@dataclass(eq=False, slots=True)
class _Claim:
    """A call that a person has approved, on the way to its tool."""

    guard: PolicyGuard  # what has to use the approval up
    wanted: CallToApprove  # the call
    obstacle: str  # why the client was not asked
    rule: str  # the rule of the policy
    sent: str  # what tells the call from others as it was sent
    is_used: bool = False  # whether it has come to the tool


_DECISIONS: Final = {"granted": "approved", "pending": "approval needed", "refused": "approval refused"}
"""What an audit log says of an approval, by its state."""

_Look: TypeAlias = Callable[[Approvals, CallToApprove], Approval]
_claims: Final[ContextVar[tuple[_Claim, ...]]] = ContextVar("mcp_toolset_approved", default=())


class PolicyGuard(AskingGuard):
    """Applies a policy to the calls of a server or a loop: `Rules(guards=[PolicyGuard(policy)])`.

    A tool that the policy denies is unknown to the caller. If the policy says `ask` and the client supports
    elicitation, the client asks its user. Otherwise the call is refused and waits in `approvals`: after a
    person has granted it there, the same caller may make the same call, with the same arguments, once.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        approvals: Approvals | None = None,
        served: str = "",
        record: EventRecorder | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Apply `policy`.

        Args:
            policy: The policy to apply.
            approvals: Where calls wait if the client has no elicitation; without it such calls are refused.
            served: The name of the server or loop, so that several can share a file of approvals.
            record: Notes decisions, for an audit log.
            now: Seconds, from a monotonic clock.
        """
        super().__init__(policy, served=served, record=record, now=now)
        if approvals is not None and not isinstance(cast("object", approvals), Approvals):
            raise DefinitionError(f"PolicyGuard takes approvals=Approvals(PATH), not {approvals!r}")
        self._approvals = approvals
        self._edited: Recent[str, tuple[float, Mapping[str, Any]]] = Recent(MAX_EDITED)

    def recorded(self, binding: ToolBinding, run: Run) -> Run:
        """What uses an approval up, right before the tool; `run` itself for a tool that needs none."""
        if self._approvals is None or not self.layers(binding):
            return run
        return partial(self._claimed, self._approvals, binding, run)

    async def unasked(
        self, why: str, rule: str, binding: ToolBinding, call: ToolCall, context: ToolContext, next: CallNext
    ) -> ToolResult:
        """Let a call pass that a person has approved; another one waits for that."""
        if (approvals := self._approvals) is None:
            return await super().unasked(why, rule, binding, call, context, next)
        sent = replace(self.wanted(binding, call, context), digest=call.digest).key
        # The approval waits for the arguments as hooks and middleware had edited them.
        until, edits = self._edited.get(sent) or (0.0, {})
        call = call.with_edits(edits) if self._now() < until else call
        claim = _Claim(self, self.wanted(binding, call, context), why, rule, sent)
        refusal = await self._looked_up(approvals, claim, Approvals.ask, binding, context)
        if refusal is None:
            return await _with(approvals, claim, partial(next, call))
        if edits := call.edits:
            # Once for the decision, and once more for the repeated call.
            self._edited.put(sent, (self._now() + 2 * approvals.lifetime, edits))
        return refused(call, refusal)

    async def _claimed(
        self, approvals: Approvals, binding: ToolBinding, run: Run, call: ToolCall, context: ToolContext
    ) -> ToolResult:
        """Run a tool; what was approved is used up here, as nothing refuses the call any more."""
        claims = _claims.get()
        claim = next((one for one in claims if one.guard is self and one.wanted.tool == binding.name), None)
        if claim is None:
            return await run(call, context)
        claim.is_used = True
        # The tool may make calls of its own.
        _claims.set(tuple(one for one in claims if one is not claim))
        refusal = await self._looked_up(approvals, claim, Approvals.claim, binding, context)
        if refusal is not None:
            return refused(call, refusal)
        self._edited.drop(claim.sent)
        return await run(call, context)

    async def _looked_up(
        self, approvals: Approvals, claim: _Claim, look: _Look, binding: ToolBinding, context: ToolContext
    ) -> ToolResult | None:
        """What the caller is told whose client cannot be asked; `None` if the call was granted."""
        try:
            approval = await anyio.to_thread.run_sync(look, approvals, claim.wanted)
        except StoreError as fault:
            self.note(binding, context, "approval needed", claim.rule)
            return rejection(Reject(f"{needs(binding)}, and {fault}", "policy"))
        is_granted = approval.state == "granted"
        if look is Approvals.claim or not is_granted:
            facts = {"approval": approval.id, "by": approval.decider}
            self.note(binding, context, _DECISIONS[approval.state], claim.rule, **facts)
        return None if is_granted else _waiting(approval, needs(binding), claim.obstacle, approvals.lifetime)


async def _with(approvals: Approvals, claim: _Claim, next: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
    """Go on with an approved call; a limit may refuse it, and the approval then stays valid."""
    token = _claims.set((*_claims.get(), claim))
    result = None
    try:
        result = await next()
        return result
    finally:
        _claims.reset(token)
        is_kept = claim.is_used or (result is not None and rejection_reason(result) is not None)
        if not is_kept:
            # What stands in between has made the call in a context of its own.
            with anyio.CancelScope(shield=True), suppress(StoreError):
                await anyio.to_thread.run_sync(approvals.claim, claim.wanted)


def _waiting(approval: Approval, needs: str, obstacle: str, lifetime: float) -> ToolResult:
    if approval.state == "refused":
        reason = f"{needs}, and approval {approval.id} was refused; do not make this call again"
    else:
        reason = (
            f"{needs}, and {obstacle}. Approval {approval.id} waits for `mcp-toolset approvals grant "
            f"{approval.id}`; then the same call, with the same arguments, may be made once within "
            f"{lifetime / 60:g} min"
        )
    refusal = rejection(Reject(reason, "policy"))
    told = {"id": approval.id, "state": approval.state, "expires": approval.expires}
    return ToolResult({**refusal.wire, "_meta": {**refusal.wire["_meta"], APPROVAL_META_KEY: told}})
