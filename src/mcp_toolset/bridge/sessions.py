"""`SessionPool`: sessions with a legacy upstream beside the one that lists, as its callers need them.

A legacy client declares what it answers once, in the handshake, and over stdio and SSE nothing says
for which call the server asks. So calls whose clients can be asked go over sessions that declare just
that, shared as far as a question can still be brought to the right client (`plan_for`, docs/sessions.md).
Each session has one owner task, is opened by the first call that needs it, and is closed when its
client leaves or nobody has used it for a while; there are never more than `MAX_SESSIONS` (F46).
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

import anyio
import anyio.abc

from mcp_toolset.bridge.client import ServedClient
from mcp_toolset.bridge.faults import reason_of
from mcp_toolset.bridge.forward import WireContext
from mcp_toolset.bridge.link import Link
from mcp_toolset.bridge.listing import Listing
from mcp_toolset.bridge.session import UpstreamSession, digest_of
from mcp_toolset.bridge.stderr import StderrTail
from mcp_toolset.config import Asked, SessionRule
from mcp_toolset.errors import CallError, UpstreamTimeoutError, UpstreamUnavailableError

MAX_SESSIONS: Final = 32
"""Sessions with one upstream beside the one that lists; further callers wait for one to be free."""

MAX_ALONE: Final = 4
"""Sessions of one capability set that take one call at a time."""

IDLE: Final = 300.0
"""Seconds after which a session that nobody uses is closed."""

_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """Which session a call needs.

    Attributes:
        declares: What the session declares, as canonical JSON.
        client: The one client that it is for; empty if it is for several.
        principal: The one principal that it is for; empty if it is for several.
        credentials: A digest of the credentials that it forwards.
        alone: Whether it takes one call at a time.
        single: Whether it is for this one call.
    """

    declares: str
    client: str = ""
    principal: str = ""
    credentials: str = ""
    alone: bool = False
    single: bool = False


def plan_for(
    rule: SessionRule, link: Link, caller: WireContext, *, forwards: bool, apart: bool = False
) -> SessionPlan | None:
    """The session that a call needs; `None` for the shared one, which declares nothing.

    With `apart` the shared one only lists: it declares what some callers can do.

    Roots are a client's own, and servers keep them for the life of a session: they are declared only
    on sessions that are for one client.
    """
    credentials = digest_of(caller.authorization) if forwards and caller.authorization else ""
    declares = _NOTHING if rule == "shared" else caller.declares
    bare = SessionPlan("{}", credentials=credentials) if credentials or apart else None
    if not declares:
        return bare
    if rule == "call":
        return SessionPlan(_canonical(declares), credentials=credentials, alone=True, single=True)
    principal = caller.principal or ""
    client = _own_client(rule, link, caller, declares)
    if client:
        return SessionPlan(_canonical(declares), client, principal, credentials)
    shared = {name: value for name, value in declares.items() if name != "roots"}
    if not shared:
        return bare
    plan = SessionPlan(_canonical(shared), principal=principal, credentials=credentials)
    return plan if rule == "capabilities" or link.transport == "http" else replace(plan, alone=True)


def _own_client(rule: SessionRule, link: Link, caller: WireContext, declares: Mapping[str, Any]) -> str:
    """The client, if the session is to be for it alone."""
    key = caller.client_key or ""
    if rule == "capabilities":
        return ""
    return key if rule == "client" or link.transport != "http" or "roots" in declares else ""


def _canonical(declares: Mapping[str, Any]) -> str:
    return json.dumps(declares, sort_keys=True, separators=(",", ":"))


@dataclass(eq=False, slots=True)
class PooledSession:
    """A session of the pool, and who uses it."""

    plan: SessionPlan
    serial: int
    session: UpstreamSession
    used_at: float
    users: int = 0
    retired: bool = False
    fault: str = ""
    listed: frozenset[str] = frozenset()
    open: anyio.Event = field(default_factory=anyio.Event)
    wake: anyio.Event = field(default_factory=anyio.Event)

    def retire(self) -> None:
        """Give it to nobody any more; it is closed as soon as nobody uses it."""
        self.retired = True
        self.wake.set()

    async def opened(self) -> UpstreamSession:
        """The session once calls go through it.

        Raises:
            UpstreamUnavailableError: it could not be opened.
        """
        await self.open.wait()
        if self.fault:
            raise UpstreamUnavailableError(
                self.session.link.name, f"no session for this client could be opened: {self.fault}"
            )
        return self.session


class SessionPool:
    """The sessions with one upstream that are for some of its callers."""

    def __init__(
        self,
        link: Link,
        *,
        rule: SessionRule,
        start_timeout: float,
        forwards: bool,
        shows: Sequence[Asked] = (),
    ) -> None:
        """Describe a pool; nothing is opened before a call needs it.

        Args:
            link: How the upstream is reached.
            rule: How far sessions are shared.
            start_timeout: Seconds that opening one may take.
            forwards: Whether the caller's credentials are sent on.
            shows: What the session that lists declares beyond what its callers can do.
        """
        self._shows = shows
        self._link = link
        self._rule: SessionRule = rule
        self.start_timeout = start_timeout
        self._forwards = forwards
        self._sessions: dict[int, PooledSession] = {}
        self._serials = count(1)
        self._freed = anyio.Event()
        self._group: anyio.abc.TaskGroup | None = None
        self._context: Context = copy_context()
        self.on_broken_off: Callable[[], None] = lambda: None
        self._log = logging.getLogger(f"mcp_toolset.upstream.{link.name}")

    def __len__(self) -> int:
        return len(self._sessions)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[anyio.abc.TaskGroup]:
        """Own the sessions for the length of a block."""
        # An owner must not inherit the call that it was started by, or all it hears would be that call's.
        self._context = copy_context()
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield group
            finally:
                self._group = None
                group.cancel_scope.cancel()

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run something for as long as the pool runs, outside of the call that asks for it.

        Raises:
            UpstreamUnavailableError: the upstream is closed.
        """
        if self._group is None:
            raise UpstreamUnavailableError(self._link.name, "the server is closed")
        self._context.run(self._group.start_soon, function, *arguments)

    def plan(self, caller: WireContext) -> SessionPlan | None:
        """The session that a call needs; `None` for the shared one."""
        if self._rule == "shared" and not self._forwards:
            return None
        apart = self.bare is not None
        return plan_for(self._rule, self._link, caller, forwards=self._forwards, apart=apart)

    @property
    def bare(self) -> SessionPlan | None:
        """The session for those who can be asked for nothing; `None` if the one that lists will do."""
        return SessionPlan("{}") if self._shows and self._rule != "shared" else None

    async def check_offered(self, pooled: PooledSession, tool: str) -> None:
        """Refuse a tool that was listed because more was declared than this session's callers can do.

        What the session once listed is taken to be there; what it did not is asked for again.

        Raises:
            CallError: the server does not offer it to such clients; nothing was sent.
            UpstreamError: the server could not be asked.
        """
        missing = [name for name in self._shows if name not in pooled.session.declares]
        if not missing or tool in pooled.listed:
            return
        listing = Listing()
        try:
            await listing.walk(pooled.session.request, self.start_timeout)
        except TimeoutError:
            raise UpstreamTimeoutError(self._link.name, "it listed no tools in time") from None
        pooled.listed = frozenset(listing.names())
        if listing.complete and tool not in pooled.listed:
            raise CallError(
                f"{self._link.name}: {tool} is not offered to clients like this one, which has not declared "
                f"{' or '.join(missing)}; nothing was sent"
            )

    def retire(self) -> None:
        """Begin anew, because the upstream has: no call is cut off, and none is added to an old session."""
        for pooled in self._sessions.values():
            pooled.retire()

    @asynccontextmanager
    async def lease(
        self, plan: SessionPlan, caller: WireContext | None, *, within: float
    ) -> AsyncGenerator[PooledSession]:
        """A session of a plan, for one call; it may still be opening.

        Raises:
            UpstreamTimeoutError: all that there may be are in use and stay so for `within` seconds.
        """
        try:
            with anyio.fail_after(within):
                pooled = await self._taken(plan, caller)
        except TimeoutError:
            raise UpstreamTimeoutError(
                self._link.name, f"all its sessions stayed in use for {within:g} s; nothing was sent"
            ) from None
        try:
            yield pooled
        finally:
            pooled.users -= 1
            pooled.used_at = anyio.current_time()
            if plan.single:
                pooled.retired = True
            pooled.wake.set()
            self._tell_waiting()

    async def _taken(self, plan: SessionPlan, caller: WireContext | None) -> PooledSession:
        while True:
            found = None if plan.single else self._free(plan)
            if found is None and self._has_room(plan):
                found = self._begun(plan, caller)
            if found is not None:
                found.users += 1
                return found
            await self._freed.wait()

    def _free(self, plan: SessionPlan) -> PooledSession | None:
        """The oldest that fits: calls one after another find the same server process."""
        fitting = (each for each in self._sessions.values() if each.plan == plan and not each.retired)
        return next((each for each in fitting if not (plan.alone and each.users)), None)

    def _has_room(self, plan: SessionPlan) -> bool:
        alike = [each for each in self._sessions.values() if each.plan == plan and not each.retired]
        if plan.alone and not plan.single and len(alike) >= MAX_ALONE:
            return False
        if len(self._sessions) < MAX_SESSIONS:
            return True
        idle = [each for each in self._sessions.values() if not each.users and not each.retired]
        if idle:
            min(idle, key=lambda each: each.used_at).retire()
        return False

    def _begun(self, plan: SessionPlan, caller: WireContext | None) -> PooledSession:
        client = caller.client if plan.client and caller is not None else None
        link = self._link
        if plan.credentials and caller is not None:
            link = replace(link, headers=_with_credentials(link.headers, caller.authorization or ""))
        session = UpstreamSession(link, declares=json.loads(plan.declares), client=client)
        pooled = PooledSession(plan, next(self._serials), session, anyio.current_time())
        session.on_lost = pooled.retire
        session.on_broken_off = self.on_broken_off
        self.start(self._own, pooled, client)
        self._sessions[pooled.serial] = pooled
        return pooled

    async def _own(self, pooled: PooledSession, client: ServedClient | None) -> None:
        """The life of one session."""
        endings = (
            [client.when_gone(pooled.retire), client.when_roots_change(self._roots_of(pooled))]
            if client
            else []
        )
        stderr = StderrTail(self._link.name, self._link.scrubbed)
        try:
            with anyio.fail_after(self.start_timeout) as starting:
                async with pooled.session.connected(stderr, _nobody) as (session, dispatcher):
                    await pooled.session.begin(session, dispatcher, "legacy")
                    starting.deadline = float("inf")
                    pooled.open.set()
                    await self._until_unused(pooled, dispatcher.closed)
        except TimeoutError:
            pooled.fault = f"no answer within {self.start_timeout:g} s"
        # As many kinds of failure as there are transports and servers; all mean that it has ended.
        except Exception as fault:
            pooled.fault = self._link.scrubbed(reason_of(fault))
            self._log.info("a session has ended: %s", pooled.fault)
        finally:
            for end in endings:
                end()
            pooled.retired = True
            pooled.fault = pooled.fault or "it has ended"
            pooled.open.set()
            del self._sessions[pooled.serial]
            self._tell_waiting()

    async def _until_unused(self, pooled: PooledSession, closed: anyio.Event) -> None:
        """Return when the session is to be closed: lost, or not used and not to be."""
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await closed.wait()
                group.cancel_scope.cancel()

            group.start_soon(watch)
            while not (pooled.retired and not pooled.users):
                pooled.wake = anyio.Event()
                with anyio.move_on_after(None if pooled.users else IDLE) as idle:
                    await pooled.wake.wait()
                if idle.cancelled_caught and not pooled.users:
                    break
            pooled.retired = True
            group.cancel_scope.cancel()

    def _roots_of(self, pooled: PooledSession) -> Callable[[], None]:
        def changed() -> None:
            if "roots" in pooled.session.declares:
                self.start(pooled.session.notify, "notifications/roots/list_changed")

        return changed

    def _tell_waiting(self) -> None:
        freed, self._freed = self._freed, anyio.Event()
        freed.set()


def _with_credentials(headers: Mapping[str, str], authorization: str) -> dict[str, str]:
    kept = {name: value for name, value in headers.items() if name.lower() != "authorization"}
    return {**kept, "Authorization": authorization}


async def _nobody(method: str, params: Mapping[str, Any] | None) -> bool:
    """Changes are taken in from the session that lists."""
    return method.endswith("list_changed")
