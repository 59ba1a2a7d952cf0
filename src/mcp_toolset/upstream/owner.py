"""`ConnectionOwner`: the one task that connects to a mounted server, and reconnects after a loss.

It connects, lists, holds the session open, takes in changes, and after a loss starts again with backoff.
Calls from any other task go over the session that the owner holds; none of them opens one, none is repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, field
from typing import Any, Final

import anyio
import anyio.abc

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.backoff import Backoff
from mcp_toolset.concurrency.tasks import WorkingTime
from mcp_toolset.config.tables import ProtocolRule
from mcp_toolset.protocol.dispatch import Dispatcher
from mcp_toolset.protocol.json_rpc import ENDED, reason_of
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.screen import counted
from mcp_toolset.transports.stdio_client import StderrTail
from mcp_toolset.upstream.client_lists import ClientOffers
from mcp_toolset.upstream.known_server import KnownServer, MountState
from mcp_toolset.upstream.lists import UpstreamTools
from mcp_toolset.upstream.pool import SessionPool
from mcp_toolset.upstream.questions import Notified
from mcp_toolset.upstream.resting import Dormancy, ListingSession, Rest
from mcp_toolset.upstream.session import UpstreamSession
from mcp_toolset.upstream.target import Link
from mcp_toolset.upstream.watches import ACKNOWLEDGING, ChangeStream

LOGGED_OUT: Final = "its tokens are not kept any more: there was a logout"
"""Why a connection has ended whose tokens were removed."""

_WARNING: Final = {"kept_level": logging.WARNING}
"""On stderr, a server that is down is told of once, for all servers; see `serving.log_lines`."""


@dataclass(eq=False)
class ConnectionOwner:
    """Supervises the connection to one mounted server, for as long as it is mounted."""

    link: Link  # how the upstream is reached
    listing: ListingSession  # the session that lists, which each connection renews
    tools: UpstreamTools  # what is listed over it
    offers: ClientOffers
    changes: ChangeStream
    _: KW_ONLY
    pool: SessionPool  # the sessions of clients, which end with the connection
    rest: Rest  # when the connection is closed for a while
    dormancy: Dormancy  # when the server is started, and when it is stopped
    state: MountState  # how the server is doing
    log: logging.Logger  # where losses are noted
    server: KnownServer  # takes what the server says about itself
    notified: Notified  # takes the notifications of the server
    _era: str | None = field(default=None, init=False)
    _ready_at: float = field(default=float("inf"), init=False)
    _lost: anyio.Event = field(default_factory=anyio.Event, init=False)

    def __post_init__(self) -> None:
        self._protocol: ProtocolRule = self.pool.routing.options.protocol
        self._lost_by = ENDED
        self._stderr = StderrTail(self.link.name, self.link.scrubbed)

    async def supervise(self, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Connect, and connect again after each loss; started once the first attempt has come to an end."""
        backoff = Backoff()
        self.dormancy.begin()
        reported = False

        def settled() -> None:
            nonlocal reported
            if not reported:
                reported = True
                task_status.started()

        try:
            async with self.pool.running():
                if self.dormancy.resting:
                    settled()
                    await self.dormancy.until_wanted()
                await self.pool.routing.recall()
                self._era = "legacy" if self.pool.routing.facts.modern is False else None
                while True:
                    if self.dormancy.resting:
                        await self.dormancy.until_wanted()
                    self._ready_at = float("inf")
                    reason = await self._live(settled)
                    if self.dormancy.resting:
                        continue
                    if self.rest.resting:
                        if not await self.rest.until_needed() and self.dormancy.is_lazy:
                            self._sleep()
                        continue
                    wait = backoff.after(anyio.current_time() - self._ready_at)
                    self.log.info("offline: %s; next attempt in %.1f s", in_log(reason), wait, extra=_WARNING)
                    self.state.set("offline", reason, wait)
                    self.rest.over()
                    settled()
                    await self._pause(wait)
        finally:
            self.rest.over()
            self.dormancy.end()
            self.state.set("closed", "")

    async def _pause(self, wait: float) -> None:
        credentials = self.link.credentials
        with anyio.move_on_after(wait):
            await (anyio.sleep_forever() if credentials is None else credentials.changed())

    async def _live(self, settled: Callable[[], None]) -> str:
        """One connection from start to end; returns why it ended."""
        try:
            with anyio.fail_after(None) as deadline:
                deadline.deadline = anyio.current_time() + self.pool.start_timeout
                async with (
                    self._fresh_session().connected(self._stderr, self.notified) as opened,
                    anyio.create_task_group() as group,
                ):
                    await self._start(opened, WorkingTime(deadline), group)
                    deadline.deadline = float("inf")
                    self.rest.over()
                    settled()
                    await self._hold()
                    group.cancel_scope.cancel()
            return self._stderr.explained(self._lost_by)
        except TimeoutError:
            return self._stderr.explained(f"no answer within {self.pool.start_timeout:g} s")
        # A transport may fail in as many ways as there are transports and servers; here every one of
        # them means the same: this attempt is over, and the reason is for the status.
        except Exception as fault:
            return self._stderr.explained(reason_of(fault))
        finally:
            self.listing.main.dispatcher = None

    def _fresh_session(self) -> UpstreamSession:
        if self.rest.is_awaited:
            return self.listing.main
        main = self.listing.renew()
        main.on_lost, main.on_broken_off, main.awake = (self.lose, self.tools.outdated, self.rest.awake)
        main.health.on_change = self._health_changed
        return main

    async def _start(self, dispatcher: Dispatcher, time: WorkingTime, group: anyio.abc.TaskGroup) -> None:
        main = self.listing.main
        self._lost = anyio.Event()
        self.tools.begin()
        self._lost_by = ENDED
        # Forgotten until this attempt succeeds: the server may have come back as another one.
        era, self._era = self._era, None
        self._era = await main.begin(dispatcher, era, self._protocol)
        self.pool.routing.listens_in("modern" if main.modern else "legacy")
        self.server.take(main.server, main.instructions)
        declared = main.capabilities or {}
        await self._hear_of_changes(declared, group)
        listing = await self.tools.walked()
        # A quick server may list more in its time than can be looked at in what is left of it.
        time.pause()
        await self.tools.admit(listing)
        time.resume()
        await self.offers.take(declared, modern=main.modern)
        await self.offers.watches.begin(modern=main.modern)
        self.offers.lists.begin()
        self._ready_at = anyio.current_time()
        self.dormancy.started()
        self.log.info("ready: %s", counted(len(self.tools.snapshot.tools), "tool"))

    async def _hear_of_changes(self, declared: Mapping[str, Any], group: anyio.abc.TaskGroup) -> None:
        """Open the stream on which a modern server tells of changes, before anything is listed."""
        told_of, changes = _told_of(declared), self.changes
        self.tools.told_of_changes = "toolsListChanged" in told_of
        changes.begin()
        if self.listing.main.modern and told_of:
            group.start_soon(changes.hold, told_of, self._lost.is_set)
            await changes.settled(min(ACKNOWLEDGING, self.pool.start_timeout / 4))

    async def _hold(self) -> None:
        main = self.listing.main
        modern = main.modern
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self.tools.keep_fresh)
                group.start_soon(self.offers.keep_fresh)
                if modern:
                    group.start_soon(self.offers.watches.keep_watching)
                group.start_soon(self._watch, main.closed)
                group.start_soon(self._watch_health)
                group.start_soon(self._stop_unused, group.cancel_scope)
                group.start_soon(self._watch_login)
                if self.link.facts.starts_process and not modern:
                    group.start_soon(self._tire, group.cancel_scope)
                await self._lost.wait()
                group.cancel_scope.cancel()
        finally:
            if not (self.rest.resting or self.dormancy.resting):
                self.lose()

    async def _tire(self, holding: anyio.CancelScope) -> None:
        await self.rest.until_due()
        if not self._lost.is_set():
            self.rest.begin()
            self.listing.main.dispatcher = None
            holding.cancel()

    async def _stop_unused(self, holding: anyio.CancelScope) -> None:
        await self.dormancy.until_unused()
        if not self._lost.is_set():
            self._sleep()
            holding.cancel()

    def _sleep(self) -> None:
        self.dormancy.sleep()
        self.tools.sleep()
        self.pool.retire()
        self.listing.main.dispatcher = None

    def lose(self) -> None:
        """Give this connection up at once for calls; closing it may take a while."""
        self.listing.main.dispatcher = None
        self._lost.set()
        self.rest.over()
        self.pool.retire()
        self.state.set("offline", self._lost_by)

    async def _watch(self, closed: anyio.Event) -> None:
        await closed.wait()
        self._lost.set()

    async def _watch_health(self) -> None:
        health = self.listing.main.health
        health.heard()
        self._lost_by = await health.lost()
        self.log.warning("%s; reconnecting", in_log(self._lost_by))
        self.lose()

    async def _watch_login(self) -> None:
        if self.link.credentials is not None:
            await self.link.credentials.withdrawn()
            self._lost_by = LOGGED_OUT
            self.lose()

    def _health_changed(self) -> None:
        """Say that calls are refused while a health check is not answered, or go through again."""
        fault = self.listing.main.health.fault
        if self.state.now == ("ready" if fault else "offline") and not self._lost.is_set():
            self.state.set("offline" if fault else "ready", fault)

    def session_fell_silent(self, waited: float) -> None:
        """Check the session that lists as well, as it may lead to the same process; tell the status."""
        main = self.listing.main
        if waited and self.state.now == "ready" and main.dispatcher is not None:
            main.health.missed(waited)
        self.state.changed()


def _told_of(declared: Mapping[str, Any]) -> dict[str, bool]:
    offered: dict[str, Mapping[str, Any]] = {
        name: declared.get(name, {}) for name in ("tools", "resources", "prompts")
    }
    return {f"{name}ListChanged": True for name, each in offered.items() if each.get("listChanged")}
