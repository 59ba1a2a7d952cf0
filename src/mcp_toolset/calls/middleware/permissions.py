"""`PolicyGuard`: a policy on every call: denied tools are unknown, others run once a person has approved.

It stands inside all middleware and hooks: the arguments that a person approves are those that the tool gets.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, cast

import anyio
import anyio.to_thread

from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import Rule
from mcp_toolset.calls.middleware.caller import MAX_KEPT, Recent, caller_of
from mcp_toolset.calls.pipeline.decision import Reject, record, rejection, rejection_reason
from mcp_toolset.calls.pipeline.middleware import CallNext, Run, ToolMiddleware
from mcp_toolset.calls.pipeline.observation import note_rule
from mcp_toolset.errors import CallError, CannotAskError, DefinitionError, StoreError, UnknownToolError
from mcp_toolset.security.policy.approvals import Approval, Approvals, CallToApprove
from mcp_toolset.security.policy.policy import Policy, Verdict
from mcp_toolset.tools.binding.binding import Gate, ToolBinding
from mcp_toolset.tools.core.call import ToolCall, ToolContext, digest_of_json
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.text.hidden_text import plain_to_see

APPROVAL_META_KEY: Final = "mcp-toolset/approval"
"""In the `_meta` of a refusal: the id, the state and the expiry of the approval that it is about."""

REMEMBERED: Final = 3600.0
"""Seconds for which "allow for this session" holds."""

MAX_EDITED: Final = 1000
"""Calls whose edited arguments are kept while they wait for an approval."""

LONGEST_VALUE: Final = 200
LONGEST: Final = 2000
"""Characters that are shown of one text in the arguments, and of all arguments together."""

ONCE, SESSION, HOUR, DENY = "allow once", "allow for this session", "allow for one hour", "deny"
"""The answers to choose from; a caller without a session is remembered for an hour."""

OWN_FORM: Final = "mcp-toolset needs your approval."
"""The first line of a question about a call; those of mounted servers begin with the name of the server."""

_SECRET: Final = re.compile(
    r"(?:^|_)(?:password|passwd|passphrase|pwd|secrets?|token|credentials?|authorization|cookie|api_?key"
    r"|private_?key)(?:_|$)"
)
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")

_Remembered = tuple[str, ...]


class Record(Protocol):
    """Notes an event, such as `AuditLog.record`; it neither waits nor raises."""

    def __call__(self, event: str, /, **fields: Any) -> object: ...


@dataclass(eq=False, slots=True)
class _Claim:
    """A call that a person has approved, on the way to its tool.

    Attributes:
        guard: What has to use the approval up.
        wanted: The call.
        obstacle: Why the client was not asked.
        rule: The rule of the policy.
        sent: What tells the call from others as it was sent.
        is_used: Whether it has come to the tool.
    """

    guard: PolicyGuard
    wanted: CallToApprove
    obstacle: str
    rule: str
    sent: str
    is_used: bool = False


_DECISIONS: Final = {
    "granted": "approved",
    "pending": "approval needed",
    "refused": "approval refused",
}
"""What an audit log says of an approval, by its state."""

_Look: TypeAlias = Callable[[Approvals, CallToApprove], Approval]
_claims: Final[ContextVar[tuple[_Claim, ...]]] = ContextVar("mcp_toolset_approved", default=())


class PolicyGuard(Rule):
    """Applies a policy to the calls of a server or a loop: `Rules(guards=[PolicyGuard(policy)])`.

    A tool that the policy denies is unknown to the caller. If the policy says `ask` and the client supports
    elicitation, the client asks its user. Otherwise the call is refused and waits in `approvals`: after a
    person has granted it there, the same caller may make the same call, with the same arguments, once.
    """

    _decides = ("denies", "__call__")

    def __init__(
        self,
        policy: Policy,
        *,
        approvals: Approvals | None = None,
        served: str = "",
        record: Record | None = None,
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
        if not isinstance(cast("object", policy), Policy):
            raise DefinitionError(f"PolicyGuard takes Policy(allow=[…], ask=[…], deny=[…]), not {policy!r}")
        if approvals is not None and not isinstance(cast("object", approvals), Approvals):
            raise DefinitionError(f"PolicyGuard takes approvals=Approvals(PATH), not {approvals!r}")
        self.policy = policy.taken()
        self._approvals = approvals
        self._served = served
        self._record = record
        self._now = now
        self._allowed: Recent[_Remembered, float] = Recent(MAX_KEPT)
        self._edited: Recent[str, tuple[float, Mapping[str, Any]]] = Recent(MAX_EDITED)

    def gate(self, binding: ToolBinding) -> Gate | None:
        """Refuses calls of denied tools; nothing for a tool that no caller is denied."""
        open_to_all = not self.policy.varies and not self.denies(binding)
        return None if open_to_all else partial(self._admit, binding)

    def layers(self, binding: ToolBinding) -> Sequence[ToolMiddleware]:
        """Asks before a tool runs; nothing for a tool that every caller may call."""
        fixed = not self.policy.varies and self.policy.decide(binding, None).kind == "allow"
        return () if fixed else (partial(self._permitted, binding),)

    def recorded(self, binding: ToolBinding, run: Run) -> Run:
        """What uses an approval up, right before the tool; `run` itself for a tool that needs none."""
        return partial(self._claimed, binding, run) if self._approvals and self.layers(binding) else run

    @property
    def varies(self) -> bool:
        """Whether it has rules for some callers only."""
        return self.policy.varies

    def denies(self, binding: ToolBinding) -> bool:
        """Whether the policy denies a tool to every caller."""
        return not self.policy.varies and self.policy.decide(binding, None).kind == "deny"

    def unused(self, bindings: Iterable[ToolBinding]) -> Iterable[tuple[str, str]]:
        """The patterns of the policy that fit none of these tools, each behind its place."""
        return self.policy.unused(map(self.policy.facts, bindings))

    def _admit(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> None:
        self._admitted(binding, call, context)

    def _admitted(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> Verdict:
        """What the policy says of a call that it does not deny."""
        verdict = self.policy.decide(binding, context.identity)
        if verdict.kind == "deny":
            self._note(binding, context, "deny", verdict.rule)
            raise UnknownToolError(call.name)
        return verdict

    async def _permitted(
        self, binding: ToolBinding, call: ToolCall, context: ToolContext, next: CallNext
    ) -> ToolResult:
        verdict = self._admitted(binding, call, context)
        if verdict.kind == "allow" or call.recorded is not None:
            return await next()
        who = (caller_of(context) or "", context.session or "")
        remembered = (*who, binding.source, binding.name, binding.definition.digest)
        if self._now() < (self._allowed.get(remembered) or 0.0):
            self._note(binding, context, "allowed before", verdict.rule)
            return await next()
        wanted = self._wanted(binding, call, context)
        try:
            # On 2026-07-28 the question ends the call here, and the repeated call has the answer.
            answer = await _answer(wanted, context)
        except CannotAskError as fault:
            sent = replace(wanted, digest=call.digest).key
            call = self._as_asked(call, sent)
            claim = _Claim(self, self._wanted(binding, call, context), fault.obstacle, verdict.rule, sent)
            refusal = await self._looked_up(claim, Approvals.ask, binding, context)
            if refusal is None:
                return await self._with(claim, partial(next, call))
            self._keep(call, sent)
            return _refused(call, refusal)
        self._note(binding, context, answer, verdict.rule)
        if answer == DENY:
            told = f"{call.name} did not run: the user did not allow it"
            return _refused(call, rejection(Reject(told, "policy")))
        if answer != ONCE:
            self._allowed.put(remembered, self._now() + REMEMBERED)
        return await next()

    def _wanted(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> CallToApprove:
        identity = context.identity
        return CallToApprove(
            served=self._served,
            caller=caller_of(context) or "",
            server=binding.source,
            tool=binding.name,
            definition=binding.definition.digest,
            digest=digest_of_json(call.arguments),
            who="" if identity is None else plain_to_see(identity.name),
            arguments=shown_arguments(call.arguments),
        )

    def _as_asked(self, call: ToolCall, sent: str) -> ToolCall:
        """The call with the arguments that its approval waits for."""
        until, edits = self._edited.get(sent) or (0.0, {})
        return call.with_edits(edits) if self._now() < until else call

    def _keep(self, call: ToolCall, sent: str) -> None:
        if self._approvals is not None and (edits := call.edits):
            # Once for the decision, and once more for the repeated call.
            self._edited.put(sent, (self._now() + 2 * self._approvals.lifetime, edits))

    async def _with(self, claim: _Claim, next: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Go on with an approved call; a limit may refuse it, and the approval then stays valid."""
        token = _claims.set((*_claims.get(), claim))
        result = None
        try:
            result = await next()
            return result
        finally:
            _claims.reset(token)
            is_kept = claim.is_used or (result is not None and rejection_reason(result) is not None)
            if not is_kept and self._approvals is not None:
                # What stands in between has made the call in a context of its own.
                with anyio.CancelScope(shield=True), suppress(StoreError):
                    await anyio.to_thread.run_sync(self._approvals.claim, claim.wanted)

    async def _claimed(
        self, binding: ToolBinding, run: Run, call: ToolCall, context: ToolContext
    ) -> ToolResult:
        """Run a tool; what was approved is used up here, as nothing refuses the call any more."""
        claims = _claims.get()
        claim = next((one for one in claims if one.guard is self and one.wanted.tool == binding.name), None)
        if claim is None:
            return await run(call, context)
        claim.is_used = True
        # The tool may make calls of its own.
        _claims.set(tuple(one for one in claims if one is not claim))
        refusal = await self._looked_up(claim, Approvals.claim, binding, context)
        if refusal is not None:
            return _refused(call, refusal)
        self._edited.drop(claim.sent)
        return await run(call, context)

    async def _looked_up(
        self, claim: _Claim, look: _Look, binding: ToolBinding, context: ToolContext
    ) -> ToolResult | None:
        """What the caller is told whose client cannot be asked; `None` if the call was granted."""
        needs = f"{claim.wanted.tool} did not run: it needs an approval"
        if self._approvals is None:
            mend = "use a client that shows questions (elicitation)"
            self._note(binding, context, "approval needed", claim.rule)
            return rejection(Reject(f"{needs}, and {claim.obstacle}; {mend}", "policy"))
        try:
            approval = await anyio.to_thread.run_sync(look, self._approvals, claim.wanted)
        except StoreError as fault:
            self._note(binding, context, "approval needed", claim.rule)
            return rejection(Reject(f"{needs}, and {fault}", "policy"))
        is_granted = approval.state == "granted"
        if look is Approvals.claim or not is_granted:
            self._note(binding, context, _DECISIONS[approval.state], claim.rule, approval)
        return None if is_granted else _waiting(approval, needs, claim.obstacle, self._approvals.lifetime)

    def _note(
        self,
        binding: ToolBinding,
        context: ToolContext,
        decision: str,
        rule: str,
        approval: Approval | None = None,
    ) -> None:
        note_rule(rule)
        if self._record is not None:
            self._record(
                "decision",
                decision=decision,
                rule=rule,
                tool=binding.name,
                server=binding.source,
                principal=None if context.identity is None else context.identity.name,
                session=context.session,
                approval=approval and approval.id,
                by=approval and approval.decider,
            )


def _refused(call: ToolCall, refusal: ToolResult) -> ToolResult:
    record(call, "Reject", call.arguments, reason=refusal.text)
    return refusal


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


async def _answer(wanted: CallToApprove, context: ToolContext) -> str:
    """What the user has chosen; anything but one of the choices denies.

    The question differs from that about any other call, so that no other answer is taken for its answer.
    """
    longer = SESSION if context.session else HOUR
    # Callers that cannot be told apart are not remembered.
    choices = [ONCE, longer, DENY] if wanted.caller else [ONCE, DENY]
    place = f" of {wanted.server}" if wanted.server else ""
    asks = f"{OWN_FORM}\nAllow the call of {wanted.tool}{place}?\nArguments: {wanted.arguments}"
    asks += f"\nCall: {wanted.key[:32]}"
    form = {
        "type": "object",
        "properties": {"decision": {"type": "string", "title": "Decision", "enum": choices}},
        "required": ["decision"],
    }
    try:
        answer = await context.elicit(asks, form)
    except CannotAskError:
        raise
    except CallError:
        return DENY
    decision = answer.content.get("decision") if answer.accepted else DENY
    return decision if decision in choices else DENY


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    """Arguments as people see them: hidden characters spelt out, secrets blanked, long texts cut.

    Of what is not shown there is the length, and a digest that tells it from other values.
    """
    text = plain_to_see(json.dumps(_shown(dict(arguments)), ensure_ascii=False, default=repr))
    return _cut(text, LONGEST)


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {
            name: _blanked(item) if item and _SECRET.search(_WORD.sub("_", name).lower()) else _shown(item)
            for name, item in table.items()
        }
    if isinstance(value, list):
        return [_shown(item) for item in cast("list[Any]", value)]
    return _cut(value, LONGEST_VALUE) if isinstance(value, str) else value


def _blanked(value: Any) -> str:
    # As JSON: "5" is another value than 5.
    text = json.dumps(value, ensure_ascii=False, default=repr)
    length = len(value) if isinstance(value, str) else len(text)
    return f"*** ({length} characters, sha256 {_fingerprint(text)})"


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    rest = text[longest:]
    return f"{text[:longest]}… ({len(rest)} more characters, sha256 {_fingerprint(rest)})"


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
