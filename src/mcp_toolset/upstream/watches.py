"""Subscriptions at a mounted server: to resources, shared or by client, and to changes of its lists.

An older server is sent `resources/subscribe` on the session that lists (`ResourceWatches`); a client with a
session of its own subscribes there (`ClientWatches`), as what changes is often what that session's calls
have done. A server of 2026-07-28 is held streams open (`subscriptions/listen`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from itertools import count
from typing import Any, Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.backoff import Backoff
from mcp_toolset.context.offer_kinds import Ending
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import (
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol.eras import meta_of
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.upstream.pool import OtherEraError, PooledSession, SessionPool
from mcp_toolset.upstream.routing import SessionKey

WATCH_DEADLINE: Final = 5.0  # seconds that a subscription may take
REFRESH_GAP: Final = 0.5  # seconds between the end of one stream and the next

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UPDATED: Final = "notifications/resources/updated"
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"

Request = Callable[..., Awaitable[dict[str, Any]]]


@dataclass(eq=False)
class _Stream:
    """A stream on which a modern server tells of changed resources."""

    uris: list[str]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    holds: anyio.Event = field(default_factory=anyio.Event)  # acknowledged, or ended


class ResourceWatches:
    """The resources of one server that are watched on the session that lists."""

    def __init__(self, name: str, request: Request, declares: Callable[[str, str], bool]) -> None:
        self._request = request
        self._declares = declares
        self._modern = False
        self._watchers: dict[str, dict[object, Callable[[], None]]] = {}
        self._rewatch = anyio.Event()
        self._streams: dict[str, _Stream] = {}
        self._numbers = count(1)
        self._told_of: frozenset[str] | None = None
        self._retold = anyio.Event()
        self._followed_by: ResourceWatches | None = None
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")

    def __bool__(self) -> bool:
        return any(self._watchers.values())

    async def begin(self, *, modern: bool) -> None:
        """Go on over a new connection: an older server is told again what is watched."""
        self._modern = modern
        if not modern and self._declares("resources", "subscribe"):
            for uri in list(self._watchers):
                await self._tried("resources/subscribe", {"uri": uri})

    async def follow(self, before: ResourceWatches) -> None:
        """Watch from now on what is watched over another connection of the same mount, which ends."""
        # Every watcher is told once: what the server says now may be something else.
        before._followed_by = self
        watched, before._watchers = before._watchers, {}
        for uri, watchers in watched.items():
            known = uri in self._watchers
            self._watchers.setdefault(uri, {}).update(watchers)
            if not known and self._declares("resources", "subscribe"):
                await self._resumed(uri)
            for updated in list(watchers.values()):
                updated()

    async def _resumed(self, uri: str) -> None:
        try:
            await self._subscribe("resources/subscribe", uri)
        except UpstreamError as fault:
            self._log.warning("%s is not watched any more: %s", in_log(uri), in_log(fault))

    def heard(self, method: str, params: Mapping[str, Any] | None) -> bool:
        if method == ACKNOWLEDGED:
            stream = self._streams.get(subscription_in(params))
            if stream is not None:
                stream.holds.set()
            return stream is not None
        if method != UPDATED:
            return False
        for updated in list(self._watchers.get(str((params or {}).get("uri")), {}).values()):
            updated()
        return True

    async def keep_watching(self) -> None:
        """Hold a stream for the watched resources of a modern server, another one whenever they change."""
        # The one before ends when the server has acknowledged the next one, so that no update is lost.
        before: _Stream | None = None
        try:
            async with anyio.create_task_group() as group:
                while True:
                    self._rewatch = anyio.Event()
                    stream = _Stream(list(self._watchers))
                    if stream.uris and self._declares("resources", "subscribe"):
                        group.start_soon(self._listen, stream)
                        with anyio.move_on_after(WATCH_DEADLINE):
                            await stream.holds.wait()
                    if before is not None:
                        before.scope.cancel()
                    before = stream
                    self._tell_watched(frozenset(stream.uris))
                    await self._rewatch.wait()
        finally:
            self._tell_watched(None)

    def _tell_watched(self, uris: frozenset[str] | None) -> None:
        """Note what the server tells the changes of; `None` while it is not asked to."""
        self._told_of = uris
        self._retold.set()
        self._retold = anyio.Event()

    async def _until_told(self, uri: str) -> None:
        """Wait, for a little while at most, until a modern server tells the changes of a resource."""
        with anyio.move_on_after(WATCH_DEADLINE):
            while self._told_of is not None and uri not in self._told_of:
                await self._retold.wait()

    async def _listen(self, stream: _Stream) -> None:
        wanted = {"notifications": {"resourceSubscriptions": stream.uris}}
        with stream.scope:
            while True:
                number = f"watch-{next(self._numbers)}"
                self._streams[number] = stream
                try:
                    if not await self._tried("subscriptions/listen", wanted, {"request_id": number}):
                        return
                finally:
                    del self._streams[number]
                    stream.holds.set()
                await anyio.sleep(REFRESH_GAP)

    async def _tried(
        self, method: str, params: Mapping[str, Any], opts: Mapping[str, Any] | None = None
    ) -> bool:
        try:
            # Each time another dictionary: what is sent is stamped.
            await self._request(method, dict(params), opts=opts)
        except UpstreamError as fault:
            self._log.log(level_of(fault), "%s failed: %s", method, fault)
            return False
        return True

    async def watch(self, uri: str, updated: Callable[[], None]) -> Ending:
        key = object()
        watchers = self._watchers.setdefault(uri, {})
        watchers[key] = updated
        try:
            if len(watchers) == 1:
                await self._subscribe("resources/subscribe", uri)
            if self._modern:
                await self._until_told(uri)
        except (UpstreamError, anyio.get_cancelled_exc_class()):
            await self._unwatch(uri, key, quietly=True)
            raise

        async def end() -> None:
            await self._unwatch(uri, key)

        return end

    async def _unwatch(self, uri: str, key: object, *, quietly: bool = False) -> None:
        if self._followed_by is not None:
            return await self._followed_by._unwatch(uri, key, quietly=quietly)
        watchers = self._watchers.get(uri, {})
        if watchers.pop(key, None) is None or watchers:
            return
        del self._watchers[uri]
        try:
            if not quietly:
                await self._subscribe("resources/unsubscribe", uri)
        except UpstreamError as fault:
            self._log.debug("unsubscribing failed: %s", in_log(fault))

    async def _subscribe(self, method: str, uri: str) -> None:
        if self._modern:
            self._rewatch.set()
            return
        with anyio.move_on_after(WATCH_DEADLINE):
            await self._request(method, {"uri": uri})


def level_of(fault: Exception) -> int:
    """How loud a failure is: the status of the mount tells of a lost or closed connection already."""
    return logging.DEBUG if isinstance(fault, UpstreamUnavailableError) else logging.WARNING


def subscription_in(params: Mapping[str, Any] | None) -> str:
    return str(meta_of(params or {}).get(_SUBSCRIPTION))


ACKNOWLEDGING: Final = 1.0  # seconds for which the first list waits for the stream


class ChangeStream:
    """The stream of one mounted server, opened anew whenever it ends."""

    def __init__(
        self,
        name: str,
        *,
        request: Callable[..., Awaitable[dict[str, Any]]],
        outdated: Callable[[], None],
        refused: Callable[[], None],
    ) -> None:
        self._request = request
        self._outdated = outdated
        self._refused = refused
        self._numbers = count(1)
        self._id = ""
        self._settled = anyio.Event()
        self._late = False
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")

    def begin(self) -> None:
        self._settled, self._late = anyio.Event(), False

    async def settled(self, seconds: float) -> None:
        """Wait until the server has acknowledged or refused the stream; lists that come sooner may be old."""
        with anyio.move_on_after(seconds):
            await self._settled.wait()
        self._late = not self._settled.is_set()

    def heard(self, method: str, params: Mapping[str, Any] | None) -> bool:
        if method != ACKNOWLEDGED or subscription_in(params) != self._id:
            return False
        self._settled.set()
        if self._late:
            self._late = False
            self._outdated()
        return True

    async def hold(self, wanted: Mapping[str, bool], lost: Callable[[], bool]) -> None:
        """Hold the stream open until the connection is lost; after a gap the lists are asked for again."""
        backoff = Backoff()
        while True:
            began = anyio.current_time()
            self._id = f"changes-{next(self._numbers)}"
            try:
                params = {"notifications": dict(wanted)}
                await self._request("subscriptions/listen", params, opts={"request_id": self._id})
            except UpstreamProtocolError as fault:
                self._log.debug("no change notifications: %s", in_log(fault))
                return self._refused()
            except UpstreamError:
                if lost():
                    return
            finally:
                self._settled.set()
            await anyio.sleep(backoff.after(anyio.current_time() - began))
            self._late = True
            self._outdated()


SUBSCRIBING: Final = 10.0  # seconds that subscribing may take, a session that is opened for it included
GOODBYE: Final = 2.0  # seconds that ending a subscription may take


@dataclass(eq=False, slots=True)
class _ClientWatch:
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
        self._watching: dict[tuple[int, str], dict[_ClientWatch, None]] = {}
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")

    def heard(self, pooled: PooledSession, method: str, params: Mapping[str, Any] | None) -> bool:
        if method != UPDATED:
            return False
        for watch in list(self._watching.get((pooled.serial, str((params or {}).get("uri"))), {})):
            watch.updated()
        return True

    async def watch(
        self, key: SessionKey, caller: WireContext, uri: str, updated: Callable[[], None]
    ) -> Ending:
        """Call `updated` whenever the session of a key says that a resource has changed."""
        # The session stays open meanwhile, and is opened again when it was lost.
        watch = _ClientWatch(key, caller, uri, updated)
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

    async def _hold(self, watch: _ClientWatch) -> None:
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

    async def _once(self, watch: _ClientWatch) -> None:
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

    async def _leave(self, pooled: PooledSession, place: tuple[int, str], watch: _ClientWatch) -> None:
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
