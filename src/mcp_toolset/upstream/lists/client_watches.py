"""`ClientWatches`: subscriptions to resources on the sessions of the clients that subscribe.

An older server tells of a changed resource on the session that has subscribed to it, and what changes is
often what that session's own calls have done. So a client with a session of its own subscribes on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.backoff import Backoff
from mcp_toolset.context.offer_kinds import Ending
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import UpstreamError, UpstreamTimeoutError
from mcp_toolset.upstream.sessions.pool import SessionPool
from mcp_toolset.upstream.sessions.pooled_session import OtherEraError, PooledSession
from mcp_toolset.upstream.sessions.session_key import SessionKey

UPDATED: Final = "notifications/resources/updated"

SUBSCRIBING: Final = 10.0
"""Seconds that subscribing may take, a session that is opened for it included."""

GOODBYE: Final = 2.0
"""Seconds that ending a subscription may take."""


@dataclass(eq=False, slots=True)
class _Watch:
    """One client that watches one resource on its session."""

    key: SessionKey
    caller: WireContext
    uri: str
    updated: Callable[[], None]
    fault: Exception | None = None
    began: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class ClientWatches:
    """What clients watch on sessions of their own with one server."""

    def __init__(self, name: str, pool: SessionPool) -> None:
        self._name = name
        self._pool = pool
        self._watching: dict[tuple[int, str], dict[_Watch, None]] = {}
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")

    def heard(self, pooled: PooledSession, method: str, params: Mapping[str, Any] | None) -> bool:
        """Take in a notification of a session; `False` if it is none of a resource."""
        if method != UPDATED:
            return False
        for watch in list(self._watching.get((pooled.serial, str((params or {}).get("uri"))), {})):
            watch.updated()
        return True

    async def watch(
        self, key: SessionKey, caller: WireContext, uri: str, updated: Callable[[], None]
    ) -> Ending:
        """Call `updated` whenever the session of a key says that a resource has changed.

        The session stays open meanwhile, and is opened again when it was lost.
        """
        watch = _Watch(key, caller, uri, updated)
        self._pool.start(self._hold, watch)
        try:
            with anyio.move_on_after(SUBSCRIBING) as waiting:
                await watch.began.wait()
        finally:
            # A client that left meanwhile has nothing to end it by.
            if not watch.began.is_set():
                watch.scope.cancel()
        if waiting.cancelled_caught:
            raise UpstreamTimeoutError(self._name, f"it did not subscribe within {SUBSCRIBING:g} s")
        if watch.fault is not None:
            raise watch.fault

        async def end() -> None:
            watch.scope.cancel()
            with anyio.move_on_after(GOODBYE):
                await watch.ended.wait()

        return end

    async def _hold(self, watch: _Watch) -> None:
        backoff = Backoff()
        try:
            with watch.scope:
                while True:
                    began = anyio.current_time()
                    await self._once(watch)
                    await anyio.sleep(backoff.after(anyio.current_time() - began))
        except (UpstreamError, OtherEraError) as fault:
            watch.fault = fault
            self._log.debug("%s is not watched: %s", watch.uri, fault)
        finally:
            watch.began.set()
            watch.ended.set()

    async def _once(self, watch: _Watch) -> None:
        """Watch for as long as one session lasts; a server that refuses ends the watch."""
        pooled = await self._pool.take(watch.key, watch.caller, within=SUBSCRIBING)
        pooled.holds += 1
        try:
            session = await pooled.opened()
        finally:
            self._pool.give_back(pooled)
            pooled.holds -= 1
        place = (pooled.serial, watch.uri)
        watching = self._watching.setdefault(place, {})
        first, watching[watch] = not watching, None
        pooled.holds += 1
        try:
            session.calls.outside.meet(watch.caller)
            if first:
                await session.request("resources/subscribe", {"uri": watch.uri})
            if watch.began.is_set():
                # It was lost and is here again; what the resource is by now may be something else.
                watch.updated()
            watch.began.set()
            await pooled.ended.wait()
        finally:
            pooled.holds -= 1
            pooled.wake.set()
            await self._leave(pooled, place, watch)

    async def _leave(self, pooled: PooledSession, place: tuple[int, str], watch: _Watch) -> None:
        watching = self._watching.get(place, {})
        watching.pop(watch, None)
        if watching:
            return
        self._watching.pop(place, None)
        if pooled.ended.is_set() or not watch.began.is_set():
            return
        with anyio.move_on_after(GOODBYE, shield=True):
            try:
                await pooled.session.request("resources/unsubscribe", {"uri": watch.uri})
            except UpstreamError as fault:
                self._log.debug("unsubscribing failed: %s", fault)
