"""`PooledSession`: one session of the pool, the clients whose calls it takes, and when it is closed."""

from __future__ import annotations

from dataclasses import field
from typing import Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.errors import (
    CallError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol.json_rpc import INVALID_REQUEST
from mcp_toolset.upstream.pagination import Listing, NotAListError
from mcp_toolset.upstream.sessions.session import UpstreamSession
from mcp_toolset.upstream.sessions.session_key import SessionKey

IDLE: Final = 300.0
"""Seconds without a call after which a session is closed."""


class OtherEraError(Exception):
    """The server does not speak the era of this session; nothing of the call was sent."""


@dataclass(eq=False, slots=True)
class PooledSession:
    """A session of the pool, and who uses it.

    Attributes:
        key: Whom it is for and what it declares.
        serial: Its number, in the order in which sessions were opened.
        session: The session itself.
        used_at: When its last call ended, a time of the event loop.
        unsaid: What the session that lists declares and this one does not.
        users: How many calls are in flight in it.
        owner: The client whose calls they are, where clients take turns.
        called: Whether a client has called anything in it, so that its lists may be its own.
        holds: The subscriptions that keep it open.
        stays: Whether it is kept without calls, because it lists what no other session lists.
        retired: Whether it takes no more calls.
        fault: Why it could not be opened, or has ended.
        refused: Whether the server refused its era.
        idle: Seconds without a call after which it is closed; `None` for `IDLE`.
        listed: The tools that it listed when it was last asked for them.
        open: Set once calls go through it, or never will.
        ended: Set once it is closed.
    """

    key: SessionKey
    serial: int
    session: UpstreamSession
    used_at: float
    unsaid: tuple[str, ...] = ()
    idle: float | None = None
    users: int = 0
    owner: str | None = None
    called: bool = False
    holds: int = 0
    stays: bool = False
    retired: bool = False
    fault: str = ""
    refused: bool = False
    listed: frozenset[str] = frozenset()
    open: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    wake: anyio.Event = field(default_factory=anyio.Event)

    def takes(self, owner: str | None) -> bool:
        """Whether a call of this client can begin in it now."""
        if self.retired:
            return False
        return not self.key.turns or not self.users or (owner is not None and owner == self.owner)

    def retire(self) -> None:
        """Take no more calls; the session is closed after the last call in flight."""
        self.retired = True
        self.wake.set()

    async def opened(self) -> UpstreamSession:
        """The session once calls go through it."""
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
        """Refuse a tool that was listed because more was declared than this session's callers can do.

        What the session once listed is taken to be there; what it did not is asked for again.

        Raises:
            CallError: the server does not offer it to such clients; nothing was sent.
            UpstreamError: the server could not be asked.
        """
        if not self.unsaid or tool in self.listed:
            return
        name, listing = self.session.link.name, Listing()
        try:
            await listing.walk(self.session.request, within)
        except TimeoutError:
            raise UpstreamTimeoutError(name, "it listed no tools in time", sent=False) from None
        except NotAListError as fault:
            raise UpstreamProtocolError(name, INVALID_REQUEST, str(fault)) from None
        self.listed = frozenset(listing.names())
        if listing.complete and tool not in self.listed:
            raise CallError(
                f"{name}: {tool} is not offered to clients like this one, which has not declared "
                f"{' or '.join(self.unsaid)}; nothing was sent"
            )

    async def until_unused(self, closed: anyio.Event) -> None:
        """Return when the session is to be closed: lost, or not used and not to be."""
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
        """Whether it is to stay open at the moment, however long it was not used."""
        return bool(self.users or self.holds or self.stays)

    def _rest(self) -> float:
        """Seconds until it may be time to close it."""
        after = self._until_idle
        return after if self.is_kept else max(0.0, self.used_at + after - anyio.current_time())

    @property
    def _until_idle(self) -> float:
        return IDLE if self.idle is None else self.idle
