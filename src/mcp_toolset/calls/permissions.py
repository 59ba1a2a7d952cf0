"""`AskingGuard`: a policy on every call: denied tools are unknown, others run once the user has allowed it.

It stands inside all middleware and hooks: the arguments that a person approves are those that the tool gets.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset._rule import Rule
from mcp_toolset.calls.checks import MAX_KEPT, Nobody, Recent, caller_of
from mcp_toolset.calls.decision import Reject, record, rejection
from mcp_toolset.calls.middleware import CallNext, Run, ToolMiddleware
from mcp_toolset.calls.observers import note_rule
from mcp_toolset.errors import CallError, CannotAskError, DefinitionError, UnknownToolError
from mcp_toolset.security.policy import Policy, Verdict
from mcp_toolset.tools.binding import Gate, ToolBinding
from mcp_toolset.tools.call import ToolCall, ToolContext, digest_of_json
from mcp_toolset.tools.hidden_text import plain_to_see
from mcp_toolset.tools.result import ToolResult

REMEMBERED: Final = 3600.0  # Seconds for which "allow for this session" holds.

LONGEST_VALUE: Final = 200
LONGEST: Final = 2000  # Characters that are shown of one text, and of all arguments together.

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


EventRecorder = Callable[..., object]
"""Records an event and its fields, such as `AuditLog.record`; must not wait or raise."""


@dataclass(frozen=True, slots=True)
class CallToApprove:
    """A call to be approved: what the approval is bound to, and how it is shown."""

    served: str  # The server or configuration that was called, so that servers can share a file.
    caller: str  # The key of the caller; empty if callers cannot be told apart.
    server: str  # The mounted server of the tool; empty for a local tool.
    tool: str
    definition: str  # The digest of the tool's definition.
    digest: str  # The digest of the arguments.
    who: str = ""  # The caller's name for people.
    arguments: str = ""  # The arguments as people see them: shortened, without secrets.

    @property
    def key(self) -> str:
        bound = [self.served, self.caller, self.server, self.tool, self.definition, self.digest]
        return hashlib.sha256(json.dumps(bound).encode()).hexdigest()


class AskingGuard(Rule):
    """Applies a policy: denied tools are unknown, and a call to `ask` about is the user's to allow."""

    _decides = ("denies", "__call__")

    def __init__(
        self,
        policy: Policy,
        *,
        served: str = "",
        record: EventRecorder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(cast("object", policy), Policy):
            named = type(self).__name__
            raise DefinitionError(f"{named} takes Policy(allow=[…], ask=[…], deny=[…]), not {policy!r}")
        self.policy = policy.taken()
        self.unreached = policy.unreached
        self._nobody = Nobody()
        self._served = served
        self._record = record
        self._now = clock
        self._allowed: Recent[_Remembered, float] = Recent(MAX_KEPT)

    def gate(self, binding: ToolBinding) -> Gate | None:
        """The gate that refuses calls of a denied tool; `None` for a tool that is denied to no caller."""
        open_to_all = not self.policy.varies and not self.denies(binding)
        return None if open_to_all else partial(self._admitted, binding)

    def layers(self, binding: ToolBinding) -> Sequence[ToolMiddleware]:
        """The middleware that asks before a tool runs; none for a tool that every caller may call."""
        fixed = not self.policy.varies and self.policy.decide(binding, None).kind == "allow"
        return () if fixed else (partial(self._permitted, binding),)

    def recorded(self, binding: ToolBinding, run: Run) -> Run:
        """Return `run` unchanged. Guards with this method come before others: see `ToolRules.guarded`."""
        return run

    @property
    def varies(self) -> bool:
        """True if it has rules for some callers only."""
        return self.policy.varies

    def denies(self, binding: ToolBinding) -> bool:
        """True if the policy denies a tool to every caller."""
        return not self.policy.varies and self.policy.decide(binding, None).kind == "deny"

    def unused(self, bindings: Iterable[ToolBinding]) -> Iterable[tuple[str, str]]:
        """The patterns of the policy that fit none of these tools: pairs of place and pattern."""
        return self.policy.unused(map(self.policy.facts, bindings))

    def _admitted(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> Verdict:
        """The policy's verdict on a call that it does not deny."""
        if self.policy.varies:
            self._nobody.look(context)
        verdict = self.policy.decide(binding, context.identity)
        if verdict.kind == "deny":
            self.note(binding, context, "deny", verdict.rule)
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
            self.note(binding, context, "allowed before", verdict.rule)
            return await next()
        wanted = self.wanted(binding, call, context)
        try:
            # On 2026-07-28 the question ends the call here, and the repeated call has the answer.
            answer = await _answer(wanted, context)
        except CannotAskError as fault:
            return await self.unasked(fault.obstacle, verdict.rule, binding, call, context, next)
        self.note(binding, context, answer, verdict.rule)
        if answer == DENY:
            message = f"{call.name} did not run: the user did not allow it"
            return refused(call, rejection(Reject(message, "policy")))
        if answer != ONCE:
            self._allowed.put(remembered, self._now() + REMEMBERED)
        return await next()

    async def unasked(
        self, why: str, rule: str, binding: ToolBinding, call: ToolCall, context: ToolContext, next: CallNext
    ) -> ToolResult:
        """Refuse a call whose client cannot be asked about it, and say why."""
        self.note(binding, context, "approval needed", rule)
        reason = f"{needs(binding)}, and {why}; use a client that shows questions (elicitation)"
        return refused(call, rejection(Reject(reason, "policy")))

    def wanted(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> CallToApprove:
        """The call, as a person is asked about it."""
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

    def note(self, binding: ToolBinding, context: ToolContext, decision: str, rule: str, **more: Any) -> None:
        """Note what was decided about a call, for an audit log."""
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
                **more,
            )


def needs(binding: ToolBinding) -> str:
    return f"{binding.name} did not run: it needs an approval"


def refused(call: ToolCall, refusal: ToolResult) -> ToolResult:
    record(call, "Reject", call.arguments, reason=refusal.text)
    return refusal


async def _answer(wanted: CallToApprove, context: ToolContext) -> str:
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
    """Arguments as people see them: hidden characters spelt out; secrets and long texts cut to a digest."""
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
