"""The tools that a mounted server lists to everybody (`UpstreamTools`), and its news of changes.

A list is taken when the connection is made and again when the server says that it has changed. A server that
declares no such news is asked once more when a client lists, after its own hint (`ToolRefresh` for tools).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field
from functools import partial
from itertools import count
from typing import Any, Final, cast

import anyio

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.pins.canonical import canonical
from mcp_toolset.catalog.pins.differences import in_one_line
from mcp_toolset.catalog.pins.policy import Pins, scrubbed
from mcp_toolset.catalog.snapshot import EMPTY_SNAPSHOT, CatalogSnapshot, take_snapshot
from mcp_toolset.concurrency.backoff import Backoff
from mcp_toolset.concurrency.tasks import BIG, in_worker, in_worker_if_large, staying
from mcp_toolset.context.offer_kinds import Ending
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import (
    CallError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol.eras import STRICTEST, CacheHint, meta_of
from mcp_toolset.protocol.json_rpc import METHOD_NOT_FOUND
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.hidden_text import in_log, visible
from mcp_toolset.upstream.mount_state import MountState
from mcp_toolset.upstream.resting import ListingSession
from mcp_toolset.upstream.routing import SessionKey
from mcp_toolset.upstream.session import (
    OtherEraError,
    PagedList,
    PooledSession,
    SessionPool,
    usable_over_http,
)
from mcp_toolset.upstream.target import Link

WATCH_TIMEOUT: Final = 5.0  # seconds that a subscription may take
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
                        with anyio.move_on_after(WATCH_TIMEOUT):
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
        with anyio.move_on_after(WATCH_TIMEOUT):
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
        with anyio.move_on_after(WATCH_TIMEOUT):
            await self._request(method, {"uri": uri})


def level_of(fault: Exception) -> int:
    """The log level of a failure: low for a lost or closed connection, which the status shows."""
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
    """Resources that clients watch on sessions of their own with one server."""

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


MIN_TTL: Final = 1.0  # seconds for which a list without news of changes is not asked for again
TIMEOUT: Final = 5.0  # seconds that a client waits for a list that is read again for it
_SHOWN: Final = 10  # names in one line of the log

_READ_AGAIN: Final = "; list the tools again, read its definition, and repeat the call"


class UpstreamTools:
    """The list of one server's tools, taken as a whole each time, at the start and after changes."""

    def __init__(
        self, link: Link, pins: Pins, listing: ListingSession, pool: SessionPool, state: MountState
    ) -> None:
        self.listing = listing
        self.pool = pool  # knows how long starting and listing may take
        self.state = state  # becomes ready with each list that is taken
        self.told_of_changes = False
        self.on_lost: Callable[[], None] = lambda: None  # listing found no connection
        self.on_others: Callable[[], None] = lambda: None  # other tools are listed
        self.due = anyio.Event()
        self._reading = anyio.Lock()
        self._read_at = float("-inf")
        self._calls = 0
        self._tools_said = False
        self._said: set[str] = set()
        self.is_lazy = False  # whether clients are served what is remembered until a call starts the server
        self.pins = pins  # what judges its definitions
        self.snapshot: CatalogSnapshot = EMPTY_SNAPSHOT  # served, and set aside
        self._link = link
        self.known = False  # whether anything is known of the list, from this run or the last
        self.remembered: CatalogSnapshot = EMPTY_SNAPSHOT  # served until the server has listed
        self.similar: CatalogSnapshot = EMPTY_SNAPSHOT  # has compiled schemas of equal tools
        self._superseded: dict[str, ToolDefinition] = {}
        self._log = logging.getLogger(f"mcp_toolset.upstream.{link.name}")
        self._listed: CatalogSnapshot = EMPTY_SNAPSHOT
        self._listing = PagedList()
        self._more: list[Any] = []
        self._newer: Mapping[str, Any] = {}
        self.common: frozenset[str] = frozenset()  # the names of the tools that are listed to everybody
        self._hint, self._began = STRICTEST, float("-inf")
        self._admitting = anyio.Lock()

    async def walked(self, seconds: float | None = None) -> PagedList:
        """The whole list as it is now; empty for a server that declares prompts or resources alone."""
        listing, declared = PagedList(), self.listing.main.capabilities
        try:
            await listing.walk(self._link.name, self.listing.request, seconds or self.pool.start_timeout)
        except TimeoutError:
            raise UpstreamTimeoutError(self._link.name, "it listed no tools in time") from None
        except UpstreamProtocolError as fault:
            if fault.code != METHOD_NOT_FOUND or declared is None or "tools" in declared:
                raise
            listing.complete = True
        return listing

    async def _taken(self, listing: PagedList) -> str:
        """Take a list as the state of the server, without what is held back; what is to be said of it."""
        # A big list takes its time, in which others are to have theirs.
        with staying() if len(listing.tools) > BIG else nullcontext():
            async with self._admitting:
                self._listing, self.common = listing, frozenset(listing.names())
                self._listed, self.snapshot = await in_worker(partial(self._judged, listing))
                if self.remembered.tools:
                    self._supersede()
        self._hint, self._began, self.known = listing.hint, listing.began, True
        return (
            "" if listing.complete else f"its list of tools has no end; it was cut after {len(listing.tools)}"
        )

    async def remember(self, entries: Sequence[Mapping[str, Any]]) -> None:
        async with self._admitting:
            if self.known:
                return
            self._listed, self.snapshot = await in_worker_if_large(
                partial(self._recalled, entries), len(entries)
            )
            self.remembered, self.known = self.snapshot, True
            self.common = frozenset(self._listed.tools)

    def sleep(self) -> None:
        """Take the present list as remembered: the server is stopped, and listed again after that."""
        if self.snapshot.tools:
            self.remembered = self.snapshot

    @property
    def listed(self) -> CatalogSnapshot:
        """The usable tools that were listed to everybody last, before pins and policies have their say."""
        return replace(
            self._listed,
            tools={name: tool for name, tool in self._listed.tools.items() if name in self.common},
        )

    def current(self, definition: ToolDefinition) -> ToolDefinition:
        """The live definition in the place of one that was remembered; another one unchanged."""
        # Grants, approvals and states of suspended calls are for one definition, so it has to be the same
        # one.
        name = definition.name
        if self._superseded.get(name) is not definition:
            return definition
        live = self.snapshot.tools.get(name)
        if live is not None and self._canonical(live.definition) == self._canonical(definition):
            return live.definition
        aside = dict(self.snapshot.set_aside).get(name, "")
        if live is None and not aside:
            raise CallError(
                f"{self._link.name}: {name} is gone: the server listed it in the last run, "
                "and does not list it now"
            )
        found = (
            aside
            if live is None
            else in_one_line(self._canonical(definition), self._canonical(live.definition))
        )
        raise CallError(
            f"{self._link.name}: {name} has changed since the last run, so the call did not run: "
            f"{self._link.secrets.scrubbed(found)}{'' if aside else _READ_AGAIN}"
        )

    def _canonical(self, definition: ToolDefinition) -> Mapping[str, Any]:
        return (
            scrubbed(canonical(definition), self._link.secrets.scrubbed)
            if self._link.secrets
            else canonical(definition)
        )

    def _supersede(self) -> None:
        """Note what was remembered and is not the same now; the live list has arrived."""
        remembered, self.remembered = self.remembered, EMPTY_SNAPSHOT
        live = self.snapshot.tools
        self._superseded = {
            name: tool.definition
            for name, tool in remembered.tools.items()
            if name not in live or live[name].definition is not tool.definition
        }
        changed = [name for name in self._superseded if name in live]
        if changed:
            names = ", ".join(map(visible, changed[:_SHOWN])) + (" …" if len(changed) > _SHOWN else "")
            self._log.warning("%d tools have changed since the last run: %s", len(changed), names)

    @property
    def meta(self) -> Mapping[str, Any]:
        return self._listing.meta

    @property
    def entries(self) -> list[Any]:
        return self._listing.tools

    async def admit_more(self, entries: Sequence[Any], newer: Mapping[str, Any]) -> None:
        """Serve tools as well that are listed to some clients alone; pins judge them like all others."""
        # `newer` are tools by name that took the place of others in sessions of clients, which have said so.
        async with self._admitting:
            self._more, self._newer = [*entries], newer
            self._listed, self.snapshot = await in_worker(partial(self._judged, self._listing))

    async def judged_anew(self) -> None:
        async with self._admitting:
            if not self.known:
                return
            self.snapshot = await in_worker(partial(self._admissible, self._listed))
            if self.remembered.tools:
                self.remembered = self.snapshot

    def _hint_now(self, *, told_of_changes: bool) -> CacheHint:
        """The cache hint of the list; unlimited if the server reports changes."""
        if told_of_changes or not self._hint.ttl_ms:
            return self._hint
        return self._hint.aged(anyio.current_time() - self._began)

    @property
    def outlived(self) -> bool:
        return bool(self._hint.ttl_ms) and not self._hint_now(told_of_changes=False).ttl_ms

    def _judged(self, listing: PagedList) -> tuple[CatalogSnapshot, CatalogSnapshot]:
        entries, names = list(listing.tools), set(listing.names())
        if self._newer:
            entries = [self._newer.get(_name_of(entry), entry) for entry in entries]
        for entry in [*self._newer.values(), *self._more]:
            if entry.get("name") not in names:
                names.add(entry.get("name"))
                entries.append(entry)
        previous = self._listed if self._listed.tools else self.similar
        listed = take_snapshot(entries, previous=previous, complete=listing.complete)
        return listed, self._admissible(listed)

    def _recalled(self, entries: Sequence[Mapping[str, Any]]) -> tuple[CatalogSnapshot, CatalogSnapshot]:
        listed = take_snapshot(entries)
        return listed, self._admissible(listed, remembered=True)

    def _admissible(self, listed: CatalogSnapshot, *, remembered: bool = False) -> CatalogSnapshot:
        usable = usable_over_http(listed) if self._link.facts.carries_headers else listed
        return self.pins.admit(usable, remembered=remembered, served_first=self.is_lazy)

    def begin(self) -> None:
        self.due = anyio.Event()

    def outdated(self) -> None:
        self.due.set()

    def heard(self) -> None:
        self._tools_said = True
        self.due.set()

    def not_told(self) -> None:
        self.told_of_changes = False

    @property
    def is_asked_for(self) -> bool:
        """True if the list is read again for clients: nothing tells of changes, or it is not to be kept."""
        main = self.listing.main
        if self.state.now != "ready" or main.dispatcher is None or "tools" not in (main.capabilities or ()):
            return False
        return not self.told_of_changes or (main.modern and not self._hint_now(told_of_changes=True).ttl_ms)

    @property
    def is_stale(self) -> bool:
        if not self.is_asked_for:
            return False
        ttl = self._hint_now(told_of_changes=True).ttl_ms / 1000
        was_called = not ttl and self._calls != self.state.calls
        return was_called or anyio.current_time() - self._read_at > max(MIN_TTL, ttl)

    async def read_again(self) -> None:
        with anyio.move_on_after(TIMEOUT):
            async with self._reading:
                if not self.is_stale:
                    return
                self._calls, self._read_at = self.state.calls, anyio.current_time()
                try:
                    listing = await self.walked(TIMEOUT)
                except UpstreamError as fault:
                    return self._log.info("listing again for a client failed: %s", in_log(str(fault)))
                if listing.tools != self.entries:
                    await self.admit(listing)

    def said(self) -> set[str]:
        """`tools`, if the server has said that they have changed, once they are listed again; told once."""
        said, self._said = self._said, set()
        return said

    def hint(self) -> CacheHint | None:
        """The cache hint of the tools from now on; `None` if the server declares that it has none."""
        if self.state.now != "ready":
            return STRICTEST
        declared = self.listing.main.capabilities
        if declared is not None and "tools" not in declared:
            return None
        if not self.told_of_changes and self.outlived:
            self.due.set()
        return self._hint_now(told_of_changes=self.told_of_changes)

    async def keep_fresh(self) -> None:
        """List again after changes; any number of them during one listing cause one more."""
        while True:
            await self.due.wait()
            self.due = anyio.Event()
            said, self._tools_said = self._tools_said, False
            try:
                await self._take_list_surely(said=said)
            except UpstreamUnavailableError:
                return self.on_lost()
            except UpstreamError as fault:
                self._failed(fault)
            await anyio.sleep(REFRESH_GAP)

    def _failed(self, fault: UpstreamError) -> None:
        health = self.listing.main.health
        reason = f"listing again failed, the last list stays: {fault}"
        self._log.warning("%s", in_log(reason))
        if isinstance(fault, UpstreamTimeoutError):
            health.missed(self.pool.start_timeout)
        if not health.fault:
            self.state.set("ready", reason)

    async def _take_list_surely(self, *, said: bool) -> None:
        """List, a second time if the request was lost on an open connection: one request proves nothing."""
        try:
            listing = await self.walked()
        except UpstreamUnavailableError:
            if self.listing.main.dispatcher is None:
                raise
            listing = await self.walked()
        await self.admit(listing, said=said)

    async def admit(self, listing: PagedList, *, said: bool = False) -> None:
        """Take a list as the state of the server; `said` if the server has said that it is another one."""
        self._read_at = listing.began
        before = self.entries
        fault = await self._taken(listing)
        if before and before != listing.tools:
            self.on_others()
        if said:
            self._said.add("tools")
        if fault:
            self._log.warning("%s", in_log(fault))
        self.state.set("ready", fault)


def _name_of(entry: Any) -> Any:
    name = cast("Mapping[str, Any]", entry).get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else None
