"""`SessionTable`: the legacy sessions of one transport: whose they are, which are idle, and how many.

A legacy session costs memory and lives for half an hour after its last request, and any client can open one.
When an address, or all of them, have as many as they may, a session is ended for a new one: of the caller
who has the most, the one that has been idle longest. One caller can have three quarters of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Generic, Protocol, TypeVar

import anyio

from mcp_toolset.concurrency.task_set import TaskSet
from mcp_toolset.errors import StateError
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.transports.http.limits import HttpLimits

IDLE: Final = 30 * 60.0
"""Seconds after the last request of a session until it ends."""

SHOWN: Final = 8
"""Characters of a session id that a log shows: enough to tell sessions apart, too few to use one."""

_log = logging.getLogger("mcp_toolset.http")


class Session(Protocol):
    """What the table knows of a session.

    Attributes:
        users: Requests of which the client is still there.
    """

    users: int

    @property
    def name(self) -> str: ...

    @property
    def owner(self) -> str | None:
        """The principal that opened it; `None` without authentication."""
        ...

    @property
    def peer(self) -> str: ...

    @property
    def is_busy(self) -> bool:
        """Whether a call is in flight, so that it is not to be ended for another session."""
        ...

    def end(self) -> None:
        """End its calls in flight, and take nothing more."""
        ...

    async def aclose(self) -> None:
        """Do what is to be done once it has ended."""
        ...


S = TypeVar("S", bound=Session)


class SessionTable(Generic[S]):
    """The open sessions, by their ids.

    Attributes:
        idle_time: Seconds after its last request until a session ends.
    """

    def __init__(self, limits: HttpLimits, idle_time: float = IDLE) -> None:
        """Start without any; `limits` says how many there may be."""
        self.idle_time = idle_time
        self._limits = limits
        self._sessions: dict[str, S] = {}
        self._peers: Counter[str] = Counter()
        self._idle: dict[str, float] = {}
        """When each idle session was used last; the one that has been idle longest is the first."""
        self._timer: asyncio.TimerHandle | None = None
        self._closing: TaskSet | None = None

    def require_running(self) -> None:
        """Check that sessions can be kept.

        Raises:
            StateError: the application is not running.
        """
        if self._closing is None:
            raise StateError(
                "the application of this server is not running: enter its lifespan "
                "(`app.router.lifespan_context(app)`) in that of the application that it is mounted in"
            )

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, name: str) -> bool:
        return name in self._sessions

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep sessions for as long as the block runs, and end them all with it."""
        closing = self._closing = TaskSet(self._failed)
        try:
            yield
        finally:
            for session in self.all():
                self.end(session)
            self._closing = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            with anyio.CancelScope(shield=True):
                await closing.done()

    def _failed(self) -> None:
        fault = None if self._closing is None else self._closing.fault
        _log.error("a session could not be closed", exc_info=fault)

    def find(self, name: str, owner: str | None) -> S | None:
        """The session with this id, if it is open and `owner` has opened it."""
        session = self._sessions.get(name)
        if session is None:
            _log.info("refused a request of session %s, which is not open", in_log(shortened(name)))
        elif session.owner != owner:
            # It is answered as if the session did not exist.
            _log.warning("refused a request of session %s: another user has opened it", shortened(name))
            return None
        return session

    def admit(self, peer: str, owner: str | None) -> str | None:
        """Make room for one more session of an address and a caller; why there is none, if there is none."""
        limits = self._limits
        places = (
            ((peer,), self._peers[peer], "sessions_per_peer", limits.sessions_per_peer),
            (self._peers, len(self._sessions), "sessions", limits.sessions),
        )
        for peers, taken, name, limit in places:
            share = limit - limit // 4
            if taken < (limit if owner is None else share):
                continue
            there = [each for each in self._sessions.values() if each.peer in peers]
            owners = Counter(each.owner for each in there)
            if owner is not None and owners[owner] >= share:
                # Of what is left others have their sessions.
                if not self._end_one_of([each for each in there if each.owner == owner], owners):
                    return _refusal("this caller has", share, name, limit)
            elif taken >= limit and not self._end_one_of(there, owners):
                whose = f"clients at {peer} have" if peers == (peer,) else "clients have"
                return _refusal(whose, limit, name, limit)
        return None

    def add(self, session: S) -> None:
        self._sessions[session.name] = session
        self._peers[session.peer] += 1
        self._rest(session)

    def use(self, session: S) -> None:
        """Say that a client is in the course of a request, so that its session is not idle."""
        session.users += 1
        self._idle.pop(session.name, None)

    def release(self, session: S) -> None:
        """Say that the request is over, or its client has left."""
        session.users -= 1
        if not session.users and session.name in self._sessions:
            self._rest(session)

    def end(self, session: S) -> None:
        """End a session: its id is unknown from now on."""
        if self._sessions.pop(session.name, None) is None:
            return
        self._idle.pop(session.name, None)
        self._peers[session.peer] -= 1
        if not self._peers[session.peer]:
            del self._peers[session.peer]
        session.end()
        if self._closing is not None:
            self._closing.begin(session.aclose)

    def all(self) -> list[S]:
        return list(self._sessions.values())

    def expire(self) -> None:
        self._timer = None
        latest = asyncio.get_running_loop().time() - self.idle_time
        for name, since in list(self._idle.items()):
            if since > latest:
                break
            _log.info("session %s has ended, as it was idle for %g s", shortened(name), self.idle_time)
            self.end(self._sessions[name])
        self._arm()

    def _rest(self, session: S) -> None:
        self._idle[session.name] = asyncio.get_running_loop().time()
        if self._timer is None:
            self._arm()

    def _arm(self) -> None:
        since = next(iter(self._idle.values()), None)
        if since is not None and self._closing is not None:
            self._timer = asyncio.get_running_loop().call_at(since + self.idle_time, self.expire)

    def _end_one_of(self, sessions: Sequence[S], owners: Mapping[str | None, int]) -> bool:
        """End the one that has been idle longest, of the caller who has the most; `False` if none is idle."""
        some = {each.name for each in sessions if not each.is_busy}
        idle = [self._sessions[name] for name in self._idle if name in some]
        if idle:
            self.end(max(idle, key=lambda each: owners[each.owner]))
        return bool(idle)


def shortened(name: str) -> str:
    """A session id as a log shows it: without authentication, who knows an id can use the session."""
    return name if len(name) <= SHOWN + 1 else f"{name[:SHOWN]}…"


def _refusal(who: str, number: int, name: str, limit: int) -> str:
    return (
        f"{who} {number} sessions open, all of them in use ({name} is {limit}); end one, or try again later"
    )
