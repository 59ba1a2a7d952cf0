"""`SessionPool`: opens and closes the sessions of clients with an upstream, as their calls need them.

Which session a call takes is told by `routing`; the pool opens the session and closes it. A server of an
older revision learns what its client answers once, in the handshake, and over stdio and SSE nothing says for
which call it asks; so clients that can be asked have sessions that declare just that. Each session has one
owner task, is opened by the first call that needs it, and is closed when its client leaves or after a while
without calls; there are never more than `MAX_SESSIONS`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from dataclasses import field
from itertools import count
from typing import Any, Final

import anyio
import anyio.abc

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.tables import Asked
from mcp_toolset.context.connection import ServedClient
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import CallError, UpstreamTimeoutError, UpstreamUnavailableError, innermost
from mcp_toolset.protocol.json_rpc import reason_of
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.stdio_client import StderrTail
from mcp_toolset.upstream.pagination import PagedList
from mcp_toolset.upstream.routing import NOTHING_DECLARED, Routing, SessionKey, SessionOptions
from mcp_toolset.upstream.session import UpstreamSession
from mcp_toolset.upstream.target import Link

IDLE: Final = 300.0  # seconds without a call after which a session is closed


class OtherEraError(Exception):
    """The server does not speak the era of this session; nothing of the call was sent."""


@dataclass(eq=False, slots=True)
class PooledSession:
    """A session of the pool, and who uses it."""

    key: SessionKey  # whom it is for and what it declares
    serial: int  # its number, in the order in which sessions were opened
    session: UpstreamSession  # the session itself
    used_at: float  # when its last call ended, a time of the event loop
    unsaid: tuple[str, ...] = ()  # what the session that lists declares and this one does not
    idle: float | None = None  # seconds without a call after which it is closed; `None` for `IDLE`
    users: int = 0  # how many calls are in flight in it
    owner: str | None = None  # the client whose calls they are, where clients take turns
    called: bool = False  # whether a client has called anything in it, so that its lists may be its own
    holds: int = 0  # the subscriptions that keep it open
    stays: bool = False  # whether it is kept without calls, because it lists what no other session lists
    retired: bool = False  # whether it takes no more calls
    fault: str = ""  # why it could not be opened, or has ended
    refused: bool = False  # whether the server refused its era
    listed: frozenset[str] = frozenset()  # the tools that it listed when it was last asked for them
    open: anyio.Event = field(default_factory=anyio.Event)  # set once calls go through it, or never will
    ended: anyio.Event = field(default_factory=anyio.Event)  # set once it is closed
    wake: anyio.Event = field(default_factory=anyio.Event)

    def takes(self, owner: str | None) -> bool:
        if self.retired:
            return False
        return not self.key.turns or not self.users or (owner is not None and owner == self.owner)

    def retire(self) -> None:
        self.retired = True
        self.wake.set()

    async def opened(self) -> UpstreamSession:
        # To wait for what is there takes a turn of the event loop.
        if not self.open.is_set():
            await self.open.wait()
        if self.refused:
            raise OtherEraError(self.fault)
        if self.fault:
            raise UpstreamUnavailableError(
                self.session.link.name,
                f"no session for this client could be opened: {self.fault}",
                sent=False,
            )
        return self.session

    async def check_offered(self, tool: str, within: float) -> None:
        """Refuse a tool that was listed because more was declared than this session's callers can do."""
        # What the session once listed is taken to be there; what it did not is asked for again.
        if not self.unsaid or tool in self.listed:
            return
        name, listing = self.session.link.name, PagedList()
        try:
            await listing.walk(name, self.session.request, within)
        except TimeoutError:
            raise UpstreamTimeoutError(name, "it listed no tools in time", sent=False) from None
        self.listed = frozenset(listing.names())
        if listing.complete and tool not in self.listed:
            raise CallError(
                f"{name}: {tool} is not offered to clients like this one, which has not declared "
                f"{' or '.join(self.unsaid)}; nothing was sent"
            )

    async def until_unused(self, closed: anyio.Event) -> None:
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await closed.wait()
                group.cancel_scope.cancel()

            async def watch_health() -> None:
                self.fault = await self.session.health.lost()
                self.retire()
                group.cancel_scope.cancel()

            group.start_soon(watch)
            group.start_soon(watch_health)
            while not (self.retired and not self.users):
                self.wake = anyio.Event()
                with anyio.move_on_after(self._rest()):
                    await self.wake.wait()
                if not self.is_kept and anyio.current_time() - self.used_at >= self._until_idle:
                    break
            self.retired = True
            group.cancel_scope.cancel()

    @property
    def is_kept(self) -> bool:
        return bool(self.users or self.holds or self.stays)

    def _rest(self) -> float:
        after = self._until_idle
        return after if self.is_kept else max(0.0, self.used_at + after - anyio.current_time())

    @property
    def _until_idle(self) -> float:
        return IDLE if self.idle is None else self.idle


MAX_SESSIONS: Final = 32  # with one upstream, beside the one that lists; further callers wait
OWN_SESSIONS: Final = 8  # sessions that calls and subscriptions of one caller may hold at once

MAX_ALIKE: Final = 4
"""Sessions whose callers take turns and are alike; a further one is opened for who has waited `TURN`."""

TURN: Final = 1.0  # seconds that a call waits for its turn before it is given a session of its own
Ended = Callable[[PooledSession], None]  # is told that a session has ended

Heard = Callable[[PooledSession, str, Mapping[str, Any] | None], bool]
"""Takes in a notification of a session; `True` says that it is dealt with."""


class SessionPool:
    """The sessions with one upstream that are for some of its callers."""

    def __init__(
        self,
        link: Link,
        *,
        options: SessionOptions,
        start_timeout: float,
        forwards: bool,
        shows: Sequence[Asked] = (),
    ) -> None:
        self._shows = shows
        self._link = link
        self.start_timeout = start_timeout  # seconds that opening one may take
        self.routing = Routing(link, options, forwards=forwards)  # which session each request takes
        self.routing.start = self.start
        self._sessions: dict[int, PooledSession] = {}
        self._ready: dict[SessionKey, PooledSession] = {}
        self._serials = count(1)
        self._freed: anyio.Event | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._context: Context = copy_context()
        self.on_broken_off: Callable[[], None] = lambda: None
        self.on_silence: Callable[[float], None] = lambda waited: None
        self.on_heard: Heard = _nobody
        self.on_stir: Callable[[], None] = lambda: None
        self.idle: float | None = None
        self.is_asleep: Callable[[], bool] = lambda: False  # the server is stopped until a call
        self.uses_listing = False  # whether the session that lists was used
        self.on_ended: Ended = lambda pooled: None
        self._log = logging.getLogger(f"mcp_toolset.upstream.{link.name}")
        self.routing.on_clients = lambda: self.on_stir()

    def __len__(self) -> int:
        return len(self._sessions)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[anyio.abc.TaskGroup]:
        # An owner must not inherit the call that it was started by, or all it hears would be that call's.
        self._context = copy_context()
        # An earlier opening may have waited on another event loop.
        self._freed = None
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield group
            finally:
                self._group = None
                self.routing.forget_clients()
                group.cancel_scope.cancel()

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        if self._group is None:
            raise UpstreamUnavailableError(self._link.name, "the server is closed", sent=False)
        self._context.run(self._group.start_soon, function, *arguments)

    @property
    def listens(self) -> bool:
        return self._group is not None and self.routing.settled and not self.is_asleep()

    @property
    def stands_in(self) -> bool:
        """True if sessions of clients tell every client that has listed what the listing one would."""
        # What is listed to clients that can be asked nothing is told by the one that lists alone.
        if self.routing.options.shows:
            return False
        there = {
            each.key.shelf
            for each in self._sessions.values()
            if each.open.is_set()
            and not (each.retired or each.key.single)
            and each.key.declares != NOTHING_DECLARED
        }
        return bool(there) and self.routing.all_in(there)

    @property
    def is_kept(self) -> bool:
        return any(each.is_kept for each in self._sessions.values())

    @property
    def silence(self) -> str:
        """Why the calls of some clients fail at once; empty while all sessions answer."""
        faults = (each.session.health.fault for each in self._sessions.values() if not each.retired)
        return next((f"a session of some clients fails: {fault}" for fault in faults if fault), "")

    def retire(self) -> None:
        """Begin anew, because the upstream has: no call is cut off, and none is added to an old session."""
        for pooled in self._sessions.values():
            pooled.retire()

    def ready(self, key: SessionKey, owner: str | None) -> PooledSession | None:
        pooled = self._ready.get(key)
        if pooled is None or not pooled.takes(owner):
            return None
        pooled.users += 1
        pooled.owner = owner
        return pooled

    def standing(self, key: SessionKey) -> PooledSession | None:
        pooled = self._ready.get(key)
        return None if pooled is None or pooled.retired else pooled

    async def take(self, key: SessionKey, caller: WireContext | None, *, within: float) -> PooledSession:
        try:
            with anyio.fail_after(within):
                return await self._taken(key, caller)
        except TimeoutError:
            own = self._is_share_taken(key)
            which = f"the {OWN_SESSIONS} sessions that one caller may have" if own else "all its sessions"
            told = f"{which} stayed in use for {within:g} s; nothing was sent"
            raise UpstreamTimeoutError(self._link.name, told, sent=False) from None

    def give_back(self, pooled: PooledSession) -> None:
        pooled.users -= 1
        pooled.used_at = asyncio.get_running_loop().time()
        if pooled.key.single:
            pooled.retired = True
        if pooled.retired:
            pooled.wake.set()
        self._tell_waiting()

    async def _taken(self, key: SessionKey, caller: WireContext | None) -> PooledSession:
        owner = None if caller is None else caller.client_key
        until = anyio.current_time() + TURN
        while True:
            found = None if key.single else self._free(key, owner)
            patience = until - anyio.current_time() if key.turns and self._alike(key) else 0.0
            if found is None and patience <= 0 and self._has_room(key):
                found = self._begun(key, caller)
            if found is not None:
                found.users += 1
                found.owner = owner
                return found
            if self._freed is None:
                self._freed = anyio.Event()
            with anyio.move_on_after(patience if patience > 0 else None):
                await self._freed.wait()

    def _alike(self, key: SessionKey) -> list[PooledSession]:
        return [each for each in self._sessions.values() if each.key == key and not each.retired]

    def _free(self, key: SessionKey, owner: str | None) -> PooledSession | None:
        """The oldest that fits: calls one after another find the same server process."""
        return next((each for each in self._alike(key) if each.takes(owner)), None)

    def _has_room(self, key: SessionKey) -> bool:
        most = 1 if self.routing.options.sessions == "capabilities" else MAX_ALIKE
        if key.turns and len(self._alike(key)) >= most:
            return False
        if self._is_share_taken(key):
            return False
        if len(self._sessions) < MAX_SESSIONS:
            return True
        idle = [each for each in self._sessions.values() if not (each.users or each.holds or each.retired)]
        if idle:
            min(idle, key=lambda each: (each.stays, each.used_at)).retire()
        return False

    def _is_share_taken(self, key: SessionKey) -> bool:
        own = (each for each in self._sessions.values() if key.share and each.key.share == key.share)
        return sum(bool(each.users or each.holds) for each in own) >= OWN_SESSIONS

    def _begun(self, key: SessionKey, caller: WireContext | None) -> PooledSession:
        client = caller.client if key.client and caller is not None else None
        link = self._link
        if key.credentials and caller is not None:
            link = replace(link, headers=_with_credentials(link.headers, caller.authorization or ""))
        session = UpstreamSession(link, declares=json.loads(key.declares), client=client)
        unsaid = tuple(name for name in self._shows if name not in session.declares)
        pooled = PooledSession(key, next(self._serials), session, anyio.current_time(), unsaid, self.idle)
        session.on_lost = pooled.retire
        session.on_broken_off = self.on_broken_off
        session.health.on_change = lambda: self.on_silence(session.health.waited)
        self.start(self._own, pooled, client)
        self._sessions[pooled.serial] = pooled
        return pooled

    async def _own(self, pooled: PooledSession, client: ServedClient | None) -> None:
        endings = (
            [client.when_gone(pooled.retire), client.when_roots_change(self._roots_of(pooled))]
            if client
            else []
        )
        stderr = StderrTail(self._link.name, self._link.scrubbed)
        patience = self.start_timeout

        async def heard(method: str, params: Mapping[str, Any] | None) -> bool:
            return self.on_heard(pooled, method, params)

        try:
            with anyio.fail_after(patience) as starting:
                async with pooled.session.connected(stderr, heard) as dispatcher:
                    await pooled.session.begin(dispatcher, "legacy")
                    starting.deadline = float("inf")
                    self.routing.learn({"legacy": True})
                    if not pooled.key.single:
                        self._ready.setdefault(pooled.key, pooled)
                    pooled.open.set()
                    self.on_stir()
                    await pooled.until_unused(pooled.session.closed)
        except TimeoutError:
            self._failed(pooled, stderr.explained(f"no answer within {patience:g} s"))
        # As many kinds of failure as there are transports and servers; all mean that it has ended.
        except Exception as fault:
            self._failed(pooled, stderr.explained(reason_of(fault)), fault)
        finally:
            for end in endings:
                end()
            self._forget(pooled)

    def _failed(self, pooled: PooledSession, reason: str, fault: Exception | None = None) -> None:
        pooled.fault = reason
        self._log.info("a session has ended: %s", in_log(reason))
        if pooled.open.is_set() or not self.routing.is_modern:
            return
        # The server works in the other era, so the call goes there.
        pooled.refused = self.routing.legacy_failed(None if fault is None else innermost(fault))

    def _forget(self, pooled: PooledSession) -> None:
        pooled.retired = True
        pooled.fault = pooled.fault or "it has ended"
        pooled.open.set()
        pooled.ended.set()
        del self._sessions[pooled.serial]
        if self._ready.get(pooled.key) is pooled:
            del self._ready[pooled.key]
            for other in self._alike(pooled.key):
                if other.open.is_set():
                    self._ready[pooled.key] = other
                    break
        self.on_ended(pooled)
        self.on_stir()
        self._tell_waiting()

    def _roots_of(self, pooled: PooledSession) -> Callable[[], None]:
        def changed() -> None:
            if "roots" in pooled.session.declares:
                self.start(pooled.session.notify, "notifications/roots/list_changed")

        return changed

    def _tell_waiting(self) -> None:
        if self._freed is not None:
            self._freed.set()
            self._freed = None


def _with_credentials(headers: Mapping[str, str], authorization: str) -> dict[str, str]:
    kept = {name: value for name, value in headers.items() if name.lower() != "authorization"}
    return {**kept, "Authorization": authorization}


def _nobody(pooled: PooledSession, method: str, params: Mapping[str, Any] | None) -> bool:
    """Changes are taken in from the session that lists."""
    return method.endswith("list_changed")
