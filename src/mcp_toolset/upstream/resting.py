"""The session that lists, and its rest: it is closed while the sessions of clients do its work.

Over stdio a session is a process. While every client that lists has a session of its kind, that session
tells of changes and of the loss of the server; the one that lists is opened again once it is asked for
something, or once no session of a client is left to tell of changes. The status stays `ready` meanwhile
(docs/sessions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.config.tables import StartRule
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.upstream.mount_state import MountState
from mcp_toolset.upstream.session import SessionPool, UpstreamSession
from mcp_toolset.upstream.target import Link


class ListingSession:
    """The session that lists; each connection of the owner has another one."""

    def __init__(self, link: Link, *, forwards: bool, shows: Mapping[str, Any]) -> None:
        self._link = link
        self._forwards = forwards
        self._shows = shows
        self.asking = 0  # how many requests of the bridge itself are in flight in it
        self.main = self._made()  # its `dispatcher` is `None` while it is not open

    def _made(self) -> UpstreamSession:
        return UpstreamSession(self._link, forwards_credentials=self._forwards, shows=self._shows)

    def renew(self) -> UpstreamSession:
        """Another session in its place; it is for no client in particular, and none is asked through it."""
        self.main = self._made()
        return self.main

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        context: ToolContext | None = None,
        opts: CallOptions | None = None,
    ) -> dict[str, Any]:
        self.asking += 1
        try:
            return await self.main.request(method, params, context=context, opts=opts)
        finally:
            self.asking -= 1


QUIET: Final = 300.0  # seconds for which the session that lists stays open after its last use
SETTLING: Final = 3.0  # seconds in which a server may still add to what it lists after the handshake
LINGER: Final = 2.0  # seconds until it is opened again without a session of a client
BUSY: Final = 5.0  # seconds until another look at one that is at work


class Rest:
    """When the session that lists is closed for a while, and when it is opened again."""

    def __init__(self, pool: SessionPool, *, at_work: Callable[[], bool]) -> None:
        self.resting = False  # whether it is closed, or being closed
        self._pool = pool
        self._at_work = at_work
        self._used_at = float("-inf")
        self._wanted = False
        self._stirred = anyio.Event()
        self._back: anyio.Event | None = None

    def stir(self) -> None:
        self._stirred.set()

    def begin(self) -> None:
        self.resting, self._wanted, self._back = True, False, anyio.Event()

    def over(self) -> None:
        self.resting = False
        if self._back is not None:
            self._back.set()
            self._back = None

    def want(self) -> None:
        self._wanted = True
        self._stirred.set()

    @property
    def is_awaited(self) -> bool:
        """True if it has rested, and is not open again yet."""
        return self._back is not None

    async def awake(self) -> None:
        if self._back is not None:
            self.want()
            await self._back.wait()

    async def until_due(self) -> None:
        # Servers add to their lists after the handshake, and no other session would be told.
        await anyio.sleep(SETTLING)
        while wait := self._due_in():
            self._stirred = anyio.Event()
            with anyio.move_on_after(wait):
                await self._stirred.wait()

    def _due_in(self) -> float:
        if self._pool.uses_listing:
            self._pool.uses_listing, self._used_at = False, anyio.current_time()
        if not self._pool.stands_in:
            return float("inf")
        if self._at_work():
            return BUSY
        return max(0.0, self._used_at + QUIET - anyio.current_time())

    async def until_needed(self) -> bool:
        """Return when it is to be opened again; `False` if nothing but the news of changes needs it."""
        while not self._wanted:
            self._stirred = anyio.Event()
            with anyio.move_on_after(None if self._pool.stands_in else LINGER) as waiting:
                await self._stirred.wait()
            if waiting.cancelled_caught:
                break
        self.resting = False
        return self._wanted


IDLE: Final = 300.0  # seconds without a request after which a lazy server is stopped
_LOOKS: Final = 4  # looks in a row that find a server unused before it is stopped


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Options of a mount about the start and the end of its server."""

    rule: StartRule = "background"  # `lazy` starts it by a call, `eager` has lists wait for it
    idle_timeout: float | None = None  # seconds; by default `IDLE` if it is lazy

    @property
    def stops_after(self) -> float | None:
        return IDLE if self.idle_timeout is None and self.rule == "lazy" else self.idle_timeout


DEFAULT: Final = StartOptions()


class Dormancy:
    """The rule by which one server is to run or to rest."""

    def __init__(
        self,
        state: MountState,
        options: StartOptions,
        *,
        is_known: Callable[[], bool],
        in_use: Callable[[], bool],
    ) -> None:
        self.asleep = self.resting = False  # whether it is stopped, and the next call starts it
        self.stops = 0  # how often it was stopped because nothing used it
        self._state = state
        self._options = options
        self._is_known = is_known
        self._in_use = in_use
        state.wake = self.wake
        self._wanted = self._settled = anyio.Event()
        self._started_at = float("-inf")
        self._was_called = self._has_changed = False

    @property
    def is_lazy(self) -> bool:
        return self._options.rule == "lazy"

    def settle(self, options: StartOptions) -> None:
        if options != self._options:
            self._options = options
            self._settled.set()

    def begin(self) -> None:
        """Leave the server alone at first, if calls start it and its lists are known."""
        if self.is_lazy and self._is_known():
            self._sleep("it is not started; a call starts it")
        else:
            self._state.set("starting", "connecting")

    def end(self) -> None:
        self.asleep = self.resting = False

    def started(self) -> None:
        self._started_at, self._has_changed = anyio.current_time(), False

    def has_changed(self) -> None:
        """Its lists have changed; by a call, unless that is how it starts: another process would not know."""
        called = self._was_called or self._state.used
        if called and anyio.current_time() > self._started_at + SETTLING:
            self._has_changed = True

    def wake(self) -> None:
        if self.asleep:
            self.asleep, self._was_called = False, True
            self._state.set("starting", "a call starts it")
            self._wanted.set()

    async def until_wanted(self) -> None:
        if self.resting:
            await self._wanted.wait()
            self.resting = False

    async def until_unused(self) -> None:
        quiet = 0
        while quiet < _LOOKS:
            self._settled, self._state.used = anyio.Event(), False
            with anyio.move_on_after(self._until_look):
                await self._settled.wait()
                continue
            self._was_called |= self._state.used
            if self._state.used or self._has_changed or self._in_use():
                quiet = 0
            else:
                quiet += _LOOKS if self._only_listed else 1

    def sleep(self) -> None:
        seconds = self._options.stops_after or 0
        reason = "it was only listed" if self._only_listed else f"nothing used it for {seconds:g} s"
        self.stops += 1
        self._sleep(f"{reason}; a call starts it")

    @property
    def _only_listed(self) -> bool:
        """True if it is lazy and was started without a call, so that it need not stay."""
        return self.is_lazy and not self._was_called

    @property
    def _until_look(self) -> float | None:
        """Seconds until it is looked at next; `None` for never."""
        after = self._options.stops_after
        if after is None:
            return None
        return min(SETTLING, after) if self._only_listed else after / _LOOKS

    def _sleep(self, reason: str) -> None:
        self.asleep = self.resting = True
        self._was_called, self._wanted = False, anyio.Event()
        self._state.set("stopped", reason)
