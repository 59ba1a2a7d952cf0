"""`WaitingCalls`: calls that a policy asks about wait in `Approvals` where the client cannot ask its user.

An approval is for one call: of one caller, one tool with its definition, and its arguments. A granted one
lets that call through once, whichever process makes it; each step is one transaction. `PolicyGuard` is what
asks, waits and lets through.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from os import PathLike
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, TypeAlias, cast

import anyio
import anyio.to_thread

from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.checks import Recent
from mcp_toolset.calls.decision import Reject, rejection, rejection_reason
from mcp_toolset.calls.middleware import CallNext, Run
from mcp_toolset.calls.permissions import AskingGuard, CallToApprove, EventRecorder, needs, refused
from mcp_toolset.concurrency.sqlite_file import SqliteFile, transaction
from mcp_toolset.errors import DefinitionError, StoreError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.security.policy import Policy
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.result import ToolResult

if TYPE_CHECKING:
    from mcp_toolset.calls.permissions import EventRecorder
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host
    from mcp_toolset.security.policy import Policy


TTL: Final = 3600.0
"""Seconds for which a call waits for a decision, and after it for which the decision holds."""

MAX_WAITING: Final = 100
"""Approvals of one caller that may wait at a time."""

VARIABLE: Final = "MCP_TOOLSET_APPROVALS"
"""The environment variable that names another file; `off` for none."""

State = Literal["pending", "granted", "refused"]

_TABLES: Final = """CREATE TABLE IF NOT EXISTS approvals (
    id TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, state TEXT NOT NULL, caller TEXT NOT NULL,
    who TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL,
    asked REAL NOT NULL, expires REAL NOT NULL, decider TEXT NOT NULL DEFAULT ''
)"""
_FILE: Final = SqliteFile(b"MTsa", (_TABLES,))
_FIELDS: Final = "id, state, who, server, tool, arguments, asked, expires, decider"


@dataclass(frozen=True, slots=True)
class Approval:
    """One call that waits, or that was decided about and not made since."""

    id: str  # what people name it by
    state: State  # `pending`, `granted` or `refused`
    who: str  # the caller; empty if unknown
    server: str  # the mounted server of the tool; empty for a local tool
    tool: str  # the public name of the tool
    arguments: str  # the arguments, shortened and without secrets
    asked: float  # when the call was made first, in seconds since the epoch
    expires: float  # until when it waits, or the decision holds
    decider: str = ""  # who has granted or refused it; empty if unknown


def approvals_path() -> Path | None:
    """The file, by `MCP_TOOLSET_APPROVALS` or else in the user's folder for state; `None` for none."""
    if path := os.environ.get(VARIABLE, ""):
        return None if path == "off" else Path(path)
    from platformdirs import user_state_path

    return user_state_path("mcp-toolset") / "approvals.sqlite3"


class Approvals:
    """The approvals in one file, or in memory. Methods wait for the disk: call them in a worker thread."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        ttl: float = TTL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Use this file; the first call that waits creates it, readable by its owner only.

        Args:
            path: The file; `None` keeps them in memory, where no other process sees them.
            ttl: Seconds for which a call waits, and for which a decision is valid.
            clock: Seconds since the epoch.
        """
        require_positive("Approvals", ttl=ttl)
        self.path = None if path is None else Path(path)
        self.ttl = ttl
        self._now = clock
        self._lock = RLock()
        self._memory: sqlite3.Connection | None = None

    def ask(self, call: CallToApprove) -> Approval:
        """The approval of a call, which stays valid; if there is none, the call waits for one from now on.

        Raises:
            StoreError: the file cannot be used, or too many calls of the caller wait.
        """
        with self._transaction() as file:
            return self._found(file, call)

    def claim(self, call: CallToApprove) -> Approval:
        """Use up the approval of a call; if there is none, the call waits for one from now on.

        Returns:
            The approval: if it is `granted`, the call may run now, and the approval is gone.

        Raises:
            StoreError: the file cannot be used, or too many calls of the caller wait.
        """
        with self._transaction() as file:
            approval = self._found(file, call)
            if approval.state == "granted":
                file.execute("DELETE FROM approvals WHERE id = ?", (approval.id,))
            return approval

    def waiting(self) -> list[Approval]:
        """All approvals that have not expired, the oldest first.

        Raises:
            StoreError: the file cannot be used.
        """
        if self.path is not None and not self.path.exists():
            return []
        with self._transaction() as file:
            query = f"SELECT {_FIELDS} FROM approvals WHERE expires > ? ORDER BY asked, id"
            return [Approval(*row) for row in file.execute(query, (self._now(),))]

    def decide(self, id: str, state: Literal["granted", "refused"], *, decider: str = "") -> Approval:
        """Grant or refuse; a decision can be changed until the call has been made.

        Args:
            id: The id of the approval.
            state: The decision.
            decider: The person who decides, for the audit log.

        Raises:
            StoreError: no such approval waits, or the file cannot be used.
        """
        if self.path is None or self.path.exists():
            with self._transaction() as file:
                now = self._now()
                update = (
                    "UPDATE approvals SET state = ?, expires = ?, decider = ? WHERE id = ? AND expires > ?"
                )
                file.execute(update, (state, now + self.ttl, decider, id, now))
                approval = _one(file, "SELECT {} FROM approvals WHERE id = ? AND expires > ?", id, now)
            if approval is not None:
                return approval
        raise StoreError(f"no approval {id} waits: it was used, has expired, or is in another file")

    def _found(self, file: sqlite3.Connection, call: CallToApprove) -> Approval:
        now = self._now()
        file.execute("DELETE FROM approvals WHERE expires <= ?", (now,))
        return _one(file, "SELECT {} FROM approvals WHERE key = ?", call.key) or self._added(file, call, now)

    def _added(self, file: sqlite3.Connection, call: CallToApprove, now: float) -> Approval:
        many = "SELECT count(*) FROM approvals WHERE caller = ?"
        if file.execute(many, (call.caller,)).fetchone()[0] >= MAX_WAITING:
            raise StoreError(f"{MAX_WAITING} calls of this caller wait for an approval already")
        made = Approval(
            secrets.token_hex(4),
            "pending",
            call.who,
            call.server,
            call.tool,
            call.arguments,
            now,
            now + self.ttl,
        )
        row = (made.id, call.key, made.state, call.caller, made.who, made.server, made.tool)
        put = "INSERT INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')"
        file.execute(put, (*row, made.arguments, made.asked, made.expires))
        return made

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        """One step that no other process can come between."""
        with self._lock:
            try:
                file = self._memory or _FILE.open(self.path)
                self._memory = file if self.path is None else None
                try:
                    with transaction(file):
                        yield file
                finally:
                    if file is not self._memory:
                        file.close()
            except (sqlite3.Error, OSError) as fault:
                raise StoreError(f"the approvals cannot be read or written: {fault}") from fault


def _one(file: sqlite3.Connection, query: str, *values: Any) -> Approval | None:
    row = file.execute(query.format(_FIELDS), values).fetchone()
    return None if row is None else Approval(*cast("tuple[Any, ...]", row))


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
"""The word in an audit log for each state of an approval."""

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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Apply `policy`.

        Args:
            policy: The policy to apply.
            approvals: The waiting calls, if the client has no elicitation; without it such calls are refused.
            served: The name of the server or loop, so that several can share a file of approvals.
            record: Notes decisions, for an audit log.
            clock: Seconds, from a monotonic clock.
        """
        super().__init__(policy, served=served, record=record, clock=clock)
        if approvals is not None and not isinstance(cast("object", approvals), Approvals):
            raise DefinitionError(f"PolicyGuard takes approvals=Approvals(PATH), not {approvals!r}")
        self._approvals = approvals
        self._edited: Recent[str, tuple[float, Mapping[str, Any]]] = Recent(MAX_EDITED)

    def recorded(self, binding: ToolBinding, run: Run) -> Run:
        """`run` with the approval used up right before it; `run` itself for a tool that needs none."""
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
            self._edited.put(sent, (self._now() + 2 * approvals.ttl, edits))
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
        """The result for a caller whose client cannot be asked; `None` if the call was granted."""
        try:
            approval = await anyio.to_thread.run_sync(look, approvals, claim.wanted)
        except StoreError as fault:
            self.note(binding, context, "approval needed", claim.rule)
            return rejection(Reject(f"{needs(binding)}, and {fault}", "policy"))
        is_granted = approval.state == "granted"
        if look is Approvals.claim or not is_granted:
            facts = {"approval": approval.id, "by": approval.decider}
            self.note(binding, context, _DECISIONS[approval.state], claim.rule, **facts)
        return None if is_granted else _waiting(approval, needs(binding), claim.obstacle, approvals.ttl)


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


def _waiting(approval: Approval, needs: str, obstacle: str, ttl: float) -> ToolResult:
    if approval.state == "refused":
        reason = f"{needs}, and approval {approval.id} was refused; do not make this call again"
    else:
        reason = (
            f"{needs}, and {obstacle}. Approval {approval.id} waits for `mcp-toolset approvals grant "
            f"{approval.id}`; then the same call, with the same arguments, may be made once within "
            f"{ttl / 60:g} min"
        )
    refusal = rejection(Reject(reason, "policy"))
    answer = {"id": approval.id, "state": approval.state, "expires": approval.expires}
    return ToolResult({**refusal.wire, "_meta": {**refusal.wire["_meta"], APPROVAL_META_KEY: answer}})


class WaitingCalls(Extension):
    """The extension that lets the calls of a server wait for an approval."""

    key: ClassVar = "approvals"

    def __init__(self, approvals: Approvals | str | PathLike[str] | None = None) -> None:
        """Let calls wait in this file; unless given, in the one that `mcp-toolset approvals` shows."""
        self._said = approvals

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        if not isinstance(cast("object", said), Approvals | str | PathLike | None):
            raise DefinitionError(f"approvals takes Approvals, the path of its file or False, not {said!r}")
        return cls(said)

    def guard_of(self, policy: Policy, record: EventRecorder | None) -> PolicyGuard:
        place = approvals_path() if self._said is None else self._said
        approvals = Approvals(place) if isinstance(place, str | PathLike) else place
        return PolicyGuard(policy, approvals=approvals, served=self.host.identified, record=record)


EXTENSION = WaitingCalls
