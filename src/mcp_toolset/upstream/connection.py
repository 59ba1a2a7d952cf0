"""`UpstreamConnection`: one mounted server as its toolset uses it: calls, lists, status, what is kept.

It connects to the server and holds the session that lists; `Exchange` forwards requests.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypedDict

import anyio
import anyio.abc

from mcp_toolset._records import replace
from mcp_toolset.catalog.pins.lockfile import LockEntry
from mcp_toolset.catalog.pins.policy import PinPolicy, Pins
from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
from mcp_toolset.catalog.snapshot import CatalogSnapshot
from mcp_toolset.concurrency.backoff import Backoff
from mcp_toolset.concurrency.tasks import WorkingTime
from mcp_toolset.config.tables import Asked, ProtocolRule
from mcp_toolset.context.connection import ANSWERABLE_WHOLE, PendingLogin
from mcp_toolset.context.offer_kinds import Offers, Takes
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import InvalidOutputError, StateError, UpstreamProtocolError
from mcp_toolset.extending.mounts import MountExtension, mount_extensions
from mcp_toolset.protocol.dispatch import Dispatcher
from mcp_toolset.protocol.eras import CacheHint, drop_own
from mcp_toolset.protocol.json_rpc import ENDED, reason_of
from mcp_toolset.tools.binding import Gate, Personal
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import ToolResult, fault_of_result
from mcp_toolset.tools.screen import counted
from mcp_toolset.tools.source import SourceStatus
from mcp_toolset.transports.stdio_client import StderrTail
from mcp_toolset.upstream.client_lists import CAPABILITY_CHANGED, TOOLS, TOOLS_CHANGED, ClientOffers
from mcp_toolset.upstream.forwarding import Exchange, UpstreamTasks, fault_of_task
from mcp_toolset.upstream.lists import ACKNOWLEDGING, ChangeStream, UpstreamTools
from mcp_toolset.upstream.mount_state import KnownServer, MountState, ServerInfo, catalog_of, keep_key
from mcp_toolset.upstream.resting import DEFAULT, Dormancy, ListingSession, Rest, StartOptions
from mcp_toolset.upstream.routing import SessionOptions
from mcp_toolset.upstream.secrets import Secrets
from mcp_toolset.upstream.session import PooledSession, SessionPool, UpstreamSession
from mcp_toolset.upstream.target import Link

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import ServerSettings
    from mcp_toolset.extending.mounts import Send

LOGGED_OUT: Final = "its tokens are not kept any more: there was a logout"
"""Why a connection has ended whose tokens were removed."""

_WARNING: Final = {"kept_level": logging.WARNING}
"""On stderr, a server that is down is told of once, for all servers; see `serving.log_lines`."""


def _told_of(declared: Mapping[str, Any]) -> dict[str, bool]:
    offered: dict[str, Mapping[str, Any]] = {
        name: declared.get(name, {}) for name in ("tools", "resources", "prompts")
    }
    return {f"{name}ListChanged": True for name, each in offered.items() if each.get("listChanged")}


Perform = Callable[[str, dict[str, Any], ToolContext, ToolDefinition], Awaitable[dict[str, Any]]]

_log = logging.getLogger("mcp_toolset.upstream")


class ConnectionOptions(TypedDict):
    """Options common to all connections."""

    timeout: float
    start_timeout: float
    options: SessionOptions
    forwards: bool
    shows: tuple[Asked, ...]
    stated: Mapping[str, ServerSettings]


class UpstreamConnection:
    """The state of one mounted server, and the way to call it."""

    def __init__(
        self,
        link: Link,  # how to reach it
        *,
        timeout: float,  # seconds that one call may take, without the time for which its client is asked
        start_timeout: float,  # seconds that connecting and listing may take, together
        pins: Pins,  # what judges its definitions; by default, pins of this process
        options: SessionOptions | None = None,  # era and sharing of sessions; docs/sessions.md
        forwards: bool = False,  # whether a caller's own credentials are sent on to it
        shows: Sequence[Asked] = (),  # what is declared for the sake of what it lists
        stated: Mapping[str, ServerSettings] = MappingProxyType({}),  # settings of extensions
        starts: StartOptions = DEFAULT,  # when it is started, and when it is stopped
    ) -> None:
        self.link = link
        self.timeout = timeout
        options = replace(options or SessionOptions(), shows=bool(shows))
        self.pool = SessionPool(
            link, options=options, start_timeout=start_timeout, forwards=forwards, shows=shows
        )
        self._shows = {name: ANSWERABLE_WHOLE[name] for name in shows}
        self._forwards = forwards
        self._protocol: ProtocolRule = options.protocol
        self._server = KnownServer(link)
        self._state = MountState(link)
        self.changed = self._state.changed
        self.extensions = self._extended(stated)  # the parts of extensions in it, the outermost first
        self._listing = ListingSession(link, forwards=forwards, shows=self._shows)
        self._exchange = Exchange(link, self._listing, self.pool, self._state, timeout=timeout)
        self._tasks = UpstreamTasks(self._exchange, options.task_timeout)
        self._rest = Rest(self.pool, at_work=self._at_work)
        self._log = logging.getLogger(f"mcp_toolset.upstream.{link.name}")  # where losses are noted
        self._stderr = StderrTail(link.name, link.secrets.scrubbed)
        self._era: str | None = None
        self._ready_at = float("inf")
        self._lost = anyio.Event()
        self._lost_by = ENDED
        self.tools = UpstreamTools(link, pins or Pins(link.name), self._listing, self.pool, self._state)
        self.dormancy = Dormancy(
            self._state, starts, is_known=lambda: self.tools.known, in_use=lambda: self._in_use
        )
        self.tools.is_lazy = self.dormancy.is_lazy
        self.pool.idle = starts.idle_timeout
        self.offers = ClientOffers(
            link.name,
            self.pool,
            self.tools,
            self._listing,
            changed=self._offers_others,
            exchange=self._exchange.perform,
            said=self.said,
        )
        self.lists, self.watches = self.offers.lists, self.offers.watches
        self._changes = ChangeStream(
            link.name, request=self._listing.request, outdated=self._outdated, refused=self.tools.not_told
        )
        self.lists.merge = lambda: self.tools.admit_more(self.lists.more(TOOLS), self.lists.changed_tools())
        self.lists.on_change = self.changed.tell
        self.offers.resting = lambda: self._rest.resting or self.dormancy.asleep
        self.pool.is_asleep = lambda: self.dormancy.asleep
        self._exchange.current = self.tools.current
        self.offers.summon = self.summoned
        self.tools.on_lost = self.lose
        self.tools.on_others = self._lists_others
        self.lists.on_heard = self._heard_elsewhere
        self.pool.on_heard = self._heard_by_client
        self.pool.on_ended = self.lists.ended
        self.pool.on_stir = self._rest.stir
        self.pool.on_broken_off = self.tools.outdated
        self.pool.on_silence = self._session_fell_silent

    @property
    def server_info(self) -> ServerInfo | None:
        return self._listing.main.server or self._server.info

    @property
    def server_capabilities(self) -> Mapping[str, Any] | None:
        """The capabilities that the server declares, in wire form; `None` before it has been reached."""
        return self._listing.main.capabilities

    @property
    def protocol_version(self) -> str | None:
        return self._listing.main.protocol_version

    @property
    def snapshot(self) -> CatalogSnapshot:
        return self.tools.snapshot

    @property
    def status(self) -> SourceStatus:
        snapshot, reason = self.snapshot, self._state.reason
        if not reason and self._state.now == "ready":
            reason = next((one.reason for one in self.extensions if one.reason), "") or self.pool.silence
        return SourceStatus(
            state=self._state.now,
            reason=reason,
            retry_in=self._state.retry_in,
            tools=len(snapshot.tools),
            set_aside=(*snapshot.set_aside, *self.offers.set_aside),
            changes=snapshot.changes,
            flagged=snapshot.flagged,
            remembered=bool(self.tools.remembered.tools),
            about=self._server.about,
            stops=self.dormancy.stops,
        )

    def carry(self, extensions: Mapping[str, str], takes: Takes) -> None:
        carries = self.link.carries
        carries.takes = takes
        if carries.tables != extensions:
            carries.tables = extensions
            self.pool.routing.forget_routes()

    @property
    def is_personal(self) -> bool:
        return False

    @property
    def offered(self) -> Offers:
        return self.offers

    def gate(self, definition: ToolDefinition) -> Gate | None:
        """A check that refuses callers to whom the tool is not listed; `None` if there are none."""
        return None

    def personal(self, definition: ToolDefinition) -> Personal | None:
        """A tool of the shared list as single callers see it; `None` if all see the same."""
        return None

    def login_of(self, ticket: str) -> PendingLogin | None:
        return None

    def watch_logins(self, callback: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        return lambda: None

    @property
    def identity(self) -> str:
        return self._server.identity(self._listing.main.server)

    def list_hint(self) -> CacheHint | None:
        return self.tools.hint()

    @property
    def instructions(self) -> str:
        return self._server.shown_instructions(self.tools.pins.hidden_text)

    @cached_property
    def keep_key(self) -> str | None:
        return keep_key(self.link, self._protocol, tuple(self._shows), self._forwards)

    def kept(self) -> KeptCatalog | None:
        if self._state.now != "ready":
            return None
        return catalog_of(
            self.link,
            self.tools.listed,
            server=self._server.info,
            instructions=self._server.instructions,
            capabilities=self.offers.declared,
            offers=self.offers.entries(),
        )

    async def remember(self, kept: KeptCatalog) -> None:
        """Serve what the last run knew until the server has listed; calls wait for it (see `call`)."""
        if self.tools.known:
            return
        self._server.take(ServerInfo.of(kept.server), kept.instructions)
        self.offers.remember(kept.capabilities, kept.offers)
        await self.tools.remember(kept.tools)
        self.changed.tell()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        if self._forwards:
            _log.warning(
                "%s: the Authorization of each caller is passed through to it, which the MCP specification "
                "forbids servers; see docs/upstream-login.md",
                self.link.name,
            )
        if self._state.now != "closed":
            raise StateError(f"mount {self.link.name!r} is open already; mount the server a second time")
        with self._exchange.ending.open():
            await self._supervise(task_status)

    async def _supervise(self, task_status: anyio.abc.TaskStatus[None]) -> None:
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
                    if self._rest.resting:
                        if not await self._rest.until_needed() and self.dormancy.is_lazy:
                            self._sleep()
                        continue
                    wait = backoff.after(anyio.current_time() - self._ready_at)
                    self._log.info(
                        "offline: %s; next attempt in %.1f s", in_log(reason), wait, extra=_WARNING
                    )
                    self._state.set("offline", reason, wait)
                    self._rest.over()
                    settled()
                    await self._pause(wait)
        finally:
            self._rest.over()
            self.dormancy.end()
            self._state.set("closed", "")

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
                    self._fresh_session().connected(self._stderr, self._notification) as opened,
                    anyio.create_task_group() as group,
                ):
                    await self._start(opened, WorkingTime(deadline), group)
                    deadline.deadline = float("inf")
                    self._rest.over()
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
            self._listing.main.dispatcher = None

    def _fresh_session(self) -> UpstreamSession:
        if self._rest.is_awaited:
            return self._listing.main
        main = self._listing.renew()
        main.on_lost, main.on_broken_off, main.awake = (self.lose, self.tools.outdated, self._rest.awake)
        main.health.on_change = self._health_changed
        return main

    async def _start(self, dispatcher: Dispatcher, time: WorkingTime, group: anyio.abc.TaskGroup) -> None:
        main = self._listing.main
        self._lost = anyio.Event()
        self.tools.begin()
        self._lost_by = ENDED
        # Forgotten until this attempt succeeds: the server may have come back as another one.
        era, self._era = self._era, None
        self._era = await main.begin(dispatcher, era, self._protocol)
        self.pool.routing.listens_in("modern" if main.modern else "legacy")
        self._server.take(main.server, main.instructions)
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
        self._log.info("ready: %s", counted(len(self.tools.snapshot.tools), "tool"))

    async def _hear_of_changes(self, declared: Mapping[str, Any], group: anyio.abc.TaskGroup) -> None:
        """Open the stream on which a modern server tells of changes, before anything is listed."""
        told_of, changes = _told_of(declared), self._changes
        self.tools.told_of_changes = "toolsListChanged" in told_of
        changes.begin()
        if self._listing.main.modern and told_of:
            group.start_soon(changes.hold, told_of, self._lost.is_set)
            await changes.settled(min(ACKNOWLEDGING, self.pool.start_timeout / 4))

    async def _hold(self) -> None:
        main = self._listing.main
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
                    group.start_soon(self._rest_when_due, group.cancel_scope)
                await self._lost.wait()
                group.cancel_scope.cancel()
        finally:
            if not (self._rest.resting or self.dormancy.resting):
                self.lose()

    async def _rest_when_due(self, holding: anyio.CancelScope) -> None:
        await self._rest.until_due()
        if not self._lost.is_set():
            self._rest.begin()
            self._listing.main.dispatcher = None
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
        self._listing.main.dispatcher = None

    def lose(self) -> None:
        """Give this connection up at once for calls; closing it may take a while."""
        self._listing.main.dispatcher = None
        self._lost.set()
        self._rest.over()
        self.pool.retire()
        self._state.set("offline", self._lost_by)

    async def _watch(self, closed: anyio.Event) -> None:
        await closed.wait()
        self._lost.set()

    async def _watch_health(self) -> None:
        health = self._listing.main.health
        health.heard()
        self._lost_by = await health.lost()
        self._log.warning("%s; reconnecting", in_log(self._lost_by))
        self.lose()

    async def _watch_login(self) -> None:
        if self.link.credentials is not None:
            await self.link.credentials.withdrawn()
            self._lost_by = LOGGED_OUT
            self.lose()

    def _health_changed(self) -> None:
        """Say that calls are refused while a health check is not answered, or go through again."""
        fault = self._listing.main.health.fault
        if self._state.now == ("ready" if fault else "offline") and not self._lost.is_set():
            self._state.set("offline" if fault else "ready", fault)

    def _session_fell_silent(self, waited: float) -> None:
        """Check the session that lists as well, as it may lead to the same process; tell the status."""
        main = self._listing.main
        if waited and self._state.now == "ready" and main.dispatcher is not None:
            main.health.missed(waited)
        self.changed.tell()

    async def end(self, drain: float) -> None:
        """Let `run` return once no request is in flight; after `drain` seconds the requests are cut off."""
        await self._exchange.ending.close(drain, lambda: bool(self._exchange.suspended))

    def _at_work(self) -> bool:
        listing = self._listing
        return bool(listing.main.calls or listing.asking or self.tools.due.is_set() or self.watches)

    @property
    def _in_use(self) -> bool:
        exchange = self._exchange
        return bool(
            exchange.ending.working
            or exchange.suspended
            or self.pool.is_kept
            or self.tools.due.is_set()
            or self.watches
        )

    def _outdated(self) -> None:
        self.tools.outdated()
        self.offers.outdated()

    def said(self) -> frozenset[str]:
        """The lists that the server has said to have changed, once they are listed again; told once."""
        return frozenset(self.tools.said() | self.offers.told())

    def settle(
        self,
        *,
        timeout: float,
        start_timeout: float,
        policy: PinPolicy,
        lock: LockEntry | None,
        stated: Mapping[str, ServerSettings],
        starts: StartOptions,
    ) -> None:
        """Take other settings from now on; `UpstreamTools.judged_anew` applies the policy."""
        self.dormancy.settle(starts)
        self.pool.idle = starts.idle_timeout
        self.tools.is_lazy = self.dormancy.is_lazy
        self.extensions = self._extended(stated, self.extensions)
        self.timeout = self._exchange.timeout = timeout
        self.pool.start_timeout = start_timeout
        self.tools.pins.settle(policy, lock)
        self._rest.want()
        self.offers.settle(policy.hidden_text)

    def _extended(
        self, stated: Mapping[str, ServerSettings], known: Sequence[MountExtension] = ()
    ) -> tuple[MountExtension, ...]:
        return mount_extensions(self.link.name, stated, lambda: self._state.now == "ready", known)

    def follow(self, before: UpstreamConnection) -> None:
        """Answer what was begun over another connection of the same mount, which ends."""
        self._exchange.suspended.follow(before._exchange.suspended)

    def unfollow(self, before: UpstreamConnection) -> None:
        self._exchange.suspended.unfollow(before._exchange.suspended)

    async def summoned(self) -> None:
        if self._state.now != "ready":
            await self._state.summoned(self.timeout)

    async def call(self, definition: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolResult:
        # A call of a tool that the last run knew waits for a server that is still starting, and runs only if
        # the server lists that tool as the same one.
        if self._state.now != "ready":
            await self.summoned()
        definition = self.tools.current(definition)
        params: dict[str, Any] = {"name": definition.name, "arguments": call.arguments}
        if call.meta is not None:
            params["_meta"] = call.meta
        perform = self._exchange.perform
        may_be_task = context.is_task or self._tasks.needed or "execution" in (definition.extra or ())
        if may_be_task and self._tasks.is_for(context, definition):
            perform = self._tasks.call
        try:
            if not self.extensions:
                result = self._result(await perform("tools/call", params, context, definition), context)
            else:
                send: Send = partial(self._once, perform, params, context, definition)
                for one in reversed(self.extensions):
                    send = partial(one.around, definition, context, send)
                result = await send()
        except UpstreamProtocolError as fault:
            if not self._tasks.is_needed(fault, context, definition):
                raise
            return await self.call(definition, call, context)
        output = definition.output_schema
        if output is None or "structuredContent" in result.wire or output.get("type") == "object":
            return result
        # The server may have answered in the revision of its client, which has structured objects alone.
        legacy = isinstance(context, WireContext) and not context.modern
        return replace(result, unstructured=legacy)

    async def _once(
        self, perform: Perform, params: dict[str, Any], context: ToolContext, tool: ToolDefinition
    ) -> ToolResult:
        return self._result(await perform("tools/call", dict(params), context, tool), context)

    def _result(self, wire: dict[str, Any], context: ToolContext) -> ToolResult:
        fault = fault_of_task() if wire.get("resultType") == "task" else fault_of_result(wire)
        if fault is not None:
            raise InvalidOutputError(f"{self.link.name}: its result does not follow the protocol: {fault}")
        wire.setdefault("content", [])
        drop_own(wire)
        if not wire.get("isError"):
            return ToolResult(wire)
        # What a server says about its own failure is where the secrets it was given come out.
        forwarded = context.authorization if self._forwards and isinstance(context, WireContext) else None
        own = Secrets.of((forwarded or "").split())
        return ToolResult(own.of_error(self.link.secrets.of_error(wire)))

    def hidden_from(self, context: ToolContext) -> frozenset[str]:
        seen = self.lists.seen_by(context).get(TOOLS)
        listed = self.tools.snapshot.tools.keys()
        common = self.tools.common if seen is None else seen.names
        return frozenset() if len(common) >= len(listed) and listed <= common else frozenset(listed - common)

    def unknown_to(self, context: ToolContext) -> bool:
        stale = self.tools.is_stale or (self.tools.is_asked_for and self.lists.has_session(context))
        return self.lists.unknown(context) or stale

    async def known_to(self, context: ToolContext) -> None:
        await self.lists.learned(context)
        if self.tools.is_asked_for:
            await self.tools.read_again()
            await self.lists.look(context, TOOLS)

    def _heard_by_client(self, pooled: PooledSession, method: str, params: Mapping[str, Any] | None) -> bool:
        return self.lists.heard(pooled, method, params) or self.offers.client_watches.heard(
            pooled, method, params
        )

    def _heard_elsewhere(self, method: str) -> None:
        """List again over the session that lists: the change that another session tells may be one of all."""
        if not (self._rest.resting or self.dormancy.asleep) and method == TOOLS_CHANGED:
            self.tools.outdated()
        elif not (self._rest.resting or self.dormancy.asleep):
            self.offers.outdated(CAPABILITY_CHANGED[method])

    def _lists_others(self) -> None:
        self.pool.start(self.lists.outdated)

    def _offers_others(self) -> None:
        self._lists_others()
        self.changed.tell()

    async def _notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        if method.endswith("list_changed"):
            self.dormancy.has_changed()
            self._lists_others()
        if method == TOOLS_CHANGED:
            self.tools.heard()
            return True
        return (
            self.offers.heard(method)
            or self.watches.heard(method, params)
            or self._changes.heard(method, params)
        )
