"""`UpstreamConnection`: one mounted server, supervised by one owner task for as long as it is mounted.

The owner connects, lists, holds the session open, takes in changes, and after a loss starts again
with backoff. Calls from any other task go over the session that the owner holds; none
of them opens one, none is repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, cast

import anyio
import anyio.abc
import mcp_types as types

from mcp_toolset.catalog.deferred.preview import one_line
from mcp_toolset.catalog.instructions import clean_instructions
from mcp_toolset.catalog.pins.lockfile import LockEntry
from mcp_toolset.catalog.pins.policy import PinPolicy, Pins
from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
from mcp_toolset.catalog.snapshot import CatalogSnapshot
from mcp_toolset.concurrency.backoff import Backoff
from mcp_toolset.concurrency.deadlines import WorkingTime
from mcp_toolset.concurrency.drain import Ending
from mcp_toolset.config import Asked, ProtocolRule
from mcp_toolset.context.client import ANSWERABLE_WHOLE
from mcp_toolset.context.offer_kinds import KINDS
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import (
    InvalidOutputError,
    StateError,
    UpstreamError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol.cache_hints import STRICTEST, CacheHint
from mcp_toolset.protocol.errors import ENDED, reason_of
from mcp_toolset.sdk.dispatch import ObservedDispatcher
from mcp_toolset.sdk.models import CallOptions, ClientSession
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.result_shape import fault_of_result
from mcp_toolset.tools.core.source import SourceState, SourceStatus
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.transports.stderr import StderrTail
from mcp_toolset.upstream.forwarding import Exchange
from mcp_toolset.upstream.kept_mount import catalog_of, keep_key, server_of
from mcp_toolset.upstream.lists.change_stream import ACKNOWLEDGING, ChangeStream
from mcp_toolset.upstream.lists.client_lists import CAPABILITIES, TOOLS, ClientLists
from mcp_toolset.upstream.lists.client_offers import ClientOffers
from mcp_toolset.upstream.lists.client_watches import ClientWatches
from mcp_toolset.upstream.lists.offers import UpstreamOffers
from mcp_toolset.upstream.lists.tool_list import UpstreamTools
from mcp_toolset.upstream.pagination import Listing
from mcp_toolset.upstream.resting import Rest
from mcp_toolset.upstream.sessions.pool import SessionPool
from mcp_toolset.upstream.sessions.pooled_session import PooledSession
from mcp_toolset.upstream.sessions.session import UpstreamSession
from mcp_toolset.upstream.sessions.session_key import SessionOptions
from mcp_toolset.upstream.sessions.unsupported import fault_of_task
from mcp_toolset.upstream.target import Link

REFRESH_GAP: Final = 0.5
"""Seconds between one listing and the next, however many changes are announced."""


class UpstreamConnection:
    """The state of one mounted server, and the way to call it."""

    def __init__(
        self,
        link: Link,
        *,
        timeout: float,
        start_timeout: float,
        pins: Pins,
        options: SessionOptions | None = None,
        forward_authorization: bool = False,
        shows: Sequence[Asked] = (),
    ) -> None:
        """Describe the upstream; nothing is opened before `run`.

        Args:
            link: How to reach it.
            timeout: Seconds that one call may take, without the time for which its client is asked.
            start_timeout: Seconds that connecting and listing may take, together.
            pins: What judges its definitions; by default, pins of this process.
            options: In which era it is spoken to and how callers share sessions; see docs/sessions.md.
            forward_authorization: Whether a caller's own credentials are sent on to it.
            shows: What is declared for the sake of what it lists.
        """
        self.link = link
        self.timeout = timeout
        self.start_timeout = start_timeout
        self.tools = UpstreamTools(link, pins or Pins(link.name), self._request)
        options = replace(options or SessionOptions(), shows=bool(shows))
        self.pool = SessionPool(
            link, options=options, start_timeout=start_timeout, forwards=forward_authorization, shows=shows
        )
        self._shows = {name: ANSWERABLE_WHOLE[name] for name in shows}
        self._forwards = forward_authorization
        self._exchange = Exchange(link, self.pool, timeout=timeout)
        self._rest = Rest(self.pool, at_work=self._at_work)
        self._asking = 0
        self._main = UpstreamSession(link, forwards_credentials=forward_authorization, shows=self._shows)
        self._introduced: types.Implementation | None = None
        self._instructions = self._about = ""
        self._era: str | None = None
        self._protocol: ProtocolRule = options.protocol
        self._state: SourceState = "closed"
        self._reason = ""
        self._retry_in: float | None = None
        self._ready_at = float("inf")
        self._refresh = anyio.Event()
        self._lost = anyio.Event()
        self._lost_by = ENDED
        self._told_of_changes = False
        self._tools_said = False
        self._said: set[str] = set()
        self._ending = Ending()
        self._exchange.parked.on_freed = self._ending.freed
        self.offers = UpstreamOffers(
            link.name,
            request=self._request,
            exchange=self.exchange,
            changed=self._changed,
            hidden_text=self.tools.pins.hidden_text,
        )
        self._changes = ChangeStream(
            link.name, request=self._request, outdated=self._outdated, refused=self._not_told
        )
        self.lists = ClientLists(
            link.name,
            self.pool,
            request=self._request,
            common=self._common,
            checked=self._usable,
            told_of=lambda method: self.offers.declares(CAPABILITIES[method], "listChanged"),
        )
        self.lists.merge = self._merge
        self.lists.on_change = self._changed
        self._watches = ClientWatches(link.name, self.pool)
        self.client_offers = ClientOffers(
            self.offers, self.lists, self._watches, self.pool, said=self.said, met=self._met
        )
        self.pool.on_heard = self._heard_by_client
        self.pool.on_ended = self.lists.ended
        self.pool.on_stir = self._rest.stir
        self.offers.resting = lambda: self._rest.resting
        self._listeners: dict[object, Callable[[], None]] = {}
        self._stderr = StderrTail(link.name, link.scrubbed)
        self._log = logging.getLogger(f"mcp_toolset.upstream.{link.name}")
        self.pool.on_broken_off = self._suspect
        self.pool.on_silence = self._session_fell_silent

    @property
    def server_info(self) -> types.Implementation | None:
        """What the server says about itself; while it is down, what it said last."""
        return self._main.server or self._introduced

    @property
    def server_capabilities(self) -> types.ServerCapabilities | None:
        """What the server declares that it offers."""
        return self._main.capabilities

    @property
    def protocol_version(self) -> str | None:
        """The revision that was settled with the server."""
        return self._main.protocol_version

    @property
    def pins(self) -> Pins:
        """What judges its definitions."""
        return self.tools.pins

    @property
    def snapshot(self) -> CatalogSnapshot:
        """Its tools as they are served."""
        return self.tools.snapshot

    @property
    def status(self) -> SourceStatus:
        """How it is doing."""
        snapshot = self.snapshot
        return SourceStatus(
            state=self._state,
            reason=self._reason or (self.pool.silence if self._state == "ready" else ""),
            retry_in=self._retry_in,
            tools=len(snapshot.tools),
            set_aside=(*snapshot.set_aside, *self.offers.set_aside),
            changes=snapshot.changes,
            flagged=snapshot.flagged,
            remembered=bool(self.tools.remembered.tools),
            about=self._about,
        )

    @property
    def identity(self) -> str:
        """Which server this is: its address, and the name that it gave itself when it was reached."""
        return f"{self.link.identity}:{self.server_info.name if self.server_info else ''}"

    def list_hint(self) -> CacheHint | None:
        """How long the tools may be kept from now on; `None` if it declares that it has none."""
        if self._state != "ready":
            return STRICTEST
        declared = self.server_capabilities
        if declared is not None and declared.tools is None:
            return None
        if not self._told_of_changes and self.tools.outlived:
            self._refresh.set()
        return self.tools.hint(told_of_changes=self._told_of_changes)

    @property
    def instructions(self) -> str:
        """What the server tells models, as the policy lets it through; while it is down, what it said."""
        return clean_instructions(self.link.scrubbed(self._instructions), self.pins.hidden_text)

    @cached_property
    def keep_key(self) -> str | None:
        """What its lists are kept under from one run to the next; see `kept_mount`."""
        return keep_key(self.link, self._protocol, tuple(self._shows), self._forwards)

    def kept(self) -> KeptCatalog | None:
        """What is to be kept of it for the next run; `None` while it is not ready."""
        if self._state != "ready":
            return None
        return catalog_of(
            self.link,
            self.tools.listed,
            server=self._introduced,
            instructions=self._instructions,
            capabilities=self.offers.declared,
            offers=self.offers.entries(),
        )

    async def remember(self, kept: KeptCatalog) -> None:
        """Serve what the last run knew until the server has listed; calls wait for it (see `call`)."""
        if self.tools.known:
            return
        self._introduce(server_of(kept), kept.instructions)
        self.offers.remember(kept.capabilities, kept.offers)
        await self.tools.remember(kept.tools)
        self._changed()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the tools or the status have changed."""
        key = object()
        self._listeners[key] = callback
        return lambda: self._listeners.pop(key, None) and None

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the upstream until cancelled; started once the first attempt has succeeded or failed.

        Raises:
            StateError: something else owns it already.
        """
        if self._state != "closed":
            raise StateError(f"mount {self.link.name!r} is open already; mount the server a second time")
        with self._ending.open():
            await self._supervise(task_status)

    async def end(self, drain: float) -> None:
        """Have `run` return, once nothing is under way here; after `drain` seconds that is ended too."""
        await self._ending.after(drain, lambda: bool(self._exchange.parked))

    async def _supervise(self, task_status: anyio.abc.TaskStatus[None]) -> None:
        backoff = Backoff()
        self._set("starting", "connecting")
        reported = False

        def settled() -> None:
            nonlocal reported
            if not reported:
                reported = True
                task_status.started()

        try:
            async with self.pool.running():
                self._era = "legacy" if self.pool.facts.modern is False else None
                while True:
                    self._ready_at = float("inf")
                    reason = await self._live(settled)
                    if self._rest.resting:
                        await self._rest.until_needed()
                        continue
                    wait = backoff.after(anyio.current_time() - self._ready_at)
                    self._log.info("offline: %s; next attempt in %.1f s", in_log(reason), wait)
                    self._set("offline", reason, wait)
                    self._rest.over()
                    settled()
                    await anyio.sleep(wait)
        finally:
            self._rest.over()
            self._set("closed", "")

    async def _live(self, settled: Callable[[], None]) -> str:
        """One connection from start to end; returns why it ended."""
        try:
            with anyio.fail_after(None) as deadline:
                deadline.deadline = anyio.current_time() + self.start_timeout
                async with (
                    self._fresh_session().connected(self._stderr, self._notification) as opened,
                    anyio.create_task_group() as group,
                ):
                    await self._start(*opened, WorkingTime(deadline), group)
                    deadline.deadline = float("inf")
                    self._rest.over()
                    settled()
                    await self._hold(opened[1])
                    group.cancel_scope.cancel()
            return self._explained(self._lost_by)
        except TimeoutError:
            return self._explained(f"no answer within {self.start_timeout:g} s")
        # A transport may fail in as many ways as there are transports and servers; here every one of
        # them means the same: this attempt is over, and the reason is for the status.
        except Exception as fault:
            return self._explained(reason_of(fault))
        finally:
            self._main.dispatcher = None

    def _fresh_session(self) -> UpstreamSession:
        """The session that lists: it is for nobody in particular, and nobody is asked through it."""
        if self._rest.is_awaited:
            return self._main
        main = self._main = UpstreamSession(self.link, forwards_credentials=self._forwards, shows=self._shows)
        main.on_lost, main.on_broken_off, main.awake = self._lose, self._suspect, self._rest.awake
        main.health.on_change = self._health_changed
        return main

    async def _start(
        self,
        session: ClientSession,
        dispatcher: ObservedDispatcher,
        time: WorkingTime,
        group: anyio.abc.TaskGroup,
    ) -> None:
        self._lost, self._refresh = anyio.Event(), anyio.Event()
        self._lost_by = ENDED
        # Forgotten until this attempt succeeds: the server may have come back as another one.
        era, self._era = self._era, None
        self._era = await self._main.begin(session, dispatcher, era, self._protocol)
        self.pool.listens_in("modern" if self._main.modern else "legacy")
        self._introduce(self._main.server, session.instructions or "")
        declared = session.server_capabilities
        told_of = _told_of(declared)
        self._told_of_changes = "toolsListChanged" in told_of
        self._changes.begin()
        if self._main.modern and told_of:
            group.start_soon(self._changes.hold, told_of, self._lost.is_set)
            await self._changes.settled(min(ACKNOWLEDGING, self.start_timeout / 4))
        listing = await self._walked()
        # A quick server may list more in its time than can be looked at in what is left of it.
        time.pause()
        await self._admit(listing)
        time.resume()
        await self.offers.take(
            {} if declared is None else declared.model_dump(by_alias=True, exclude_none=True),
            modern=self._main.modern,
        )
        self.lists.begin()
        self._ready_at = anyio.current_time()

    def _introduce(self, server: types.Implementation | None, instructions: str) -> None:
        """Note what the server says about itself."""
        self._introduced, self._instructions = server, instructions
        said = "" if server is None else server.description or server.title or ""
        self._about = self.link.scrubbed(one_line(said or self.instructions))

    async def _hold(self, dispatcher: ObservedDispatcher) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._keep_fresh)
                group.start_soon(self.offers.keep_fresh)
                if self._main.modern:
                    group.start_soon(self.offers.keep_watching)
                group.start_soon(self._watch, dispatcher)
                group.start_soon(self._watch_health)
                if self.link.facts.starts_process and not self._main.modern:
                    group.start_soon(self._tire, group.cancel_scope)
                await self._lost.wait()
                group.cancel_scope.cancel()
        finally:
            if not self._rest.resting:
                self._lose()

    async def _tire(self, holding: anyio.CancelScope) -> None:
        """End this connection for a while, when sessions of clients take its place."""
        await self._rest.until_due()
        if not self._lost.is_set():
            self._rest.begin()
            self._main.dispatcher = None
            holding.cancel()

    def _at_work(self) -> bool:
        """Whether the session that lists has anything under way, or tells somebody of a resource."""
        return bool(self._main.calls or self._asking or self._refresh.is_set() or self.offers.watched)

    def _lose(self) -> None:
        """End this connection; closing may take its time, and nobody is to call into it meanwhile."""
        self._main.dispatcher = None
        self._lost.set()
        self._rest.over()
        self.pool.retire()
        self._set("offline", self._lost_by)

    def _suspect(self) -> None:
        """Find out whether the server is still there, by listing again."""
        self._refresh.set()

    async def _watch(self, dispatcher: ObservedDispatcher) -> None:
        await dispatcher.closed.wait()
        self._lost.set()

    def said(self) -> frozenset[str]:
        """The lists that the server has said to have changed, once they are listed again; told once."""
        said, self._said = frozenset(self._said | self.offers.said()), set()
        return said

    async def _watch_health(self) -> None:
        """Give up a server that answers nothing any more."""
        self._main.health.heard()
        self._lost_by = await self._main.health.lost()
        self._log.warning("%s; the connection is ended and made anew", in_log(self._lost_by))
        self._lose()

    def _health_changed(self) -> None:
        """Say that calls are refused while a health check is not answered, or go through again."""
        fault = self._main.health.fault
        if self._state == ("ready" if fault else "offline") and not self._lost.is_set():
            self._set("offline" if fault else "ready", fault)

    def _session_fell_silent(self, waited: float) -> None:
        """Check the session that lists as well, as it may lead to the same process; tell the status."""
        if waited and self._state == "ready" and self._main.dispatcher is not None:
            self._main.health.missed(waited)
        self._changed()

    async def _keep_fresh(self) -> None:
        """List again after changes; any number of them during one listing cause one more."""
        while True:
            await self._refresh.wait()
            self._refresh = anyio.Event()
            said, self._tools_said = self._tools_said, False
            try:
                await self._take_list_surely(said=said)
            except UpstreamUnavailableError:
                return self._lose()
            except UpstreamError as fault:
                said = f"listing again failed, the last list stays: {fault}"
                self._log.warning("%s", in_log(said))
                if isinstance(fault, UpstreamTimeoutError):
                    self._main.health.missed(self.start_timeout)
                if not self._main.health.fault:
                    self._set("ready", said)
            await anyio.sleep(REFRESH_GAP)

    def _outdated(self) -> None:
        """List again: a change may have been missed."""
        self._refresh.set()
        self.offers.outdated()

    def _not_told(self) -> None:
        self._told_of_changes = False

    async def _take_list_surely(self, *, said: bool) -> None:
        """List, a second time if the request was lost on an open connection: one request proves nothing."""
        try:
            listing = await self._walked()
        except UpstreamUnavailableError:
            if self._main.dispatcher is None:
                raise
            listing = await self._walked()
        await self._admit(listing, said=said)

    async def _walked(self) -> Listing:
        return await self.tools.walked(self.start_timeout, self.server_capabilities)

    async def _admit(self, listing: Listing, *, said: bool = False) -> None:
        """Take a list as the state of the server; `said` if the server has said that it is another one."""
        fault = await self.tools.admit(listing)
        if said:
            self._said.add("tools")
        if fault:
            self._log.warning("%s", in_log(fault))
        self._set("ready", fault)

    def settle(
        self, *, timeout: float, start_timeout: float, policy: PinPolicy, lock: LockEntry | None
    ) -> None:
        """Take other times and another policy from now on; `UpstreamTools.judged_anew` applies the policy."""
        self.timeout = self._exchange.timeout = timeout
        self.start_timeout = self.pool.start_timeout = start_timeout
        self.pins.settle(policy, lock)
        self._rest.want()
        self.offers.settle(policy.hidden_text)

    def follow(self, before: UpstreamConnection) -> None:
        """Answer what was begun over another connection of the same mount, which ends."""
        self._exchange.parked.follow(before._exchange.parked)

    def unfollow(self, before: UpstreamConnection) -> None:
        """Forget a connection that has ended."""
        self._exchange.parked.unfollow(before._exchange.parked)

    async def call(self, definition: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolResult:
        """Send one call upstream, once.

        A call of a tool that the last run knew waits for a server that is still starting, and runs only
        if the server lists that tool as the same one.

        Raises:
            CallError: the tool that was known from the last run is gone, or is not the same any more.
            UpstreamUnavailableError: it is offline, or was lost during the call.
            UpstreamTimeoutError: no answer within the deadline; it was told to cancel.
            UpstreamProtocolError: it answered with a protocol error.
            InvalidOutputError: it answered with something that is no result.
        """
        if self._state == "starting":
            await self._arrived()
        definition = self.tools.current(definition)
        params: dict[str, Any] = {"name": definition.name, "arguments": call.arguments}
        result = self._result(await self.exchange("tools/call", params, context, tool=definition))
        output = definition.output_schema
        if output is None or "structuredContent" in result.wire or output.get("type") == "object":
            return result
        # The server may have answered in the revision of its client, which has structured objects alone.
        legacy = isinstance(context, WireContext) and not context.modern
        return replace(result, unstructured=legacy)

    async def exchange(
        self,
        method: str,
        params: dict[str, Any],
        context: ToolContext,
        *,
        tool: ToolDefinition | None = None,
    ) -> dict[str, Any]:
        """Send a request of a client on, once, and return the answer in wire form; see `Exchange`.

        Raises:
            InputRequired: the client is to be asked, and to repeat its request.
            CallError: the client cannot be asked for what the upstream wants.
            UpstreamError: it is offline, was lost, gave no answer in time, or answered with an error.
        """
        if self._state == "starting":
            await self._arrived()
        self._require_ready()
        ending = self._ending
        ending.working += 1
        try:
            return await self._exchange.perform(self._main, method, params, context, tool)
        finally:
            ending.working -= 1
            ending.freed()

    def _result(self, wire: dict[str, Any]) -> ToolResult:
        fault = fault_of_task(wire) or fault_of_result(wire)
        if fault is not None:
            raise InvalidOutputError(f"{self.link.name}: its result does not follow the protocol: {fault}")
        wire.setdefault("content", [])
        # What a server says about its own failure is where the secrets it was given come out.
        return ToolResult(self.link.cleaned(wire) if wire.get("isError") else wire)

    async def _request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        context: ToolContext | None = None,
        opts: CallOptions | None = None,
    ) -> dict[str, Any]:
        self._asking += 1
        try:
            return await self._main.request(method, params, context=context, opts=opts)
        finally:
            self._asking -= 1

    def _met(self, context: ToolContext) -> None:
        self._main.calls.outside.meet(context)

    async def _arrived(self) -> None:
        """Wait for the first attempt to succeed or fail, at most as long as a call may take."""
        arrived = anyio.Event()

        def changed() -> None:
            if self._state != "starting":
                arrived.set()

        stop = self.on_change(changed)
        try:
            with anyio.move_on_after(self.timeout):
                await arrived.wait()
        finally:
            stop()

    def hidden_from(self, context: ToolContext) -> frozenset[str]:
        """The tools that are listed to other clients than this one."""
        seen = self.lists.seen_by(context).get(TOOLS)
        listed = self.tools.snapshot.tools.keys()
        common = self.tools.common if seen is None else seen.names
        return frozenset() if len(common) >= len(listed) and listed <= common else frozenset(listed - common)

    async def _merge(self) -> None:
        await self.tools.admit_more(self.lists.more(TOOLS))

    def _common(self, method: str) -> Sequence[Mapping[str, Any]] | None:
        if method == TOOLS:
            return self.tools.entries
        kind = next(kind for kind in KINDS if kind.method == method)
        return self.offers.common(method) if self.offers.declares(kind.capability) else None

    def _usable(self, listing: Listing) -> Sequence[Mapping[str, Any]]:
        if listing.method == TOOLS:
            return [cast("Mapping[str, Any]", entry) for entry in listing.tools if isinstance(entry, dict)]
        kind = next(kind for kind in KINDS if kind.method == listing.method)
        return self.offers.checked(kind, listing).sequence

    def _heard_by_client(self, pooled: PooledSession, method: str, params: Mapping[str, Any] | None) -> bool:
        return self.lists.heard(pooled, method, params) or self._watches.heard(pooled, method, params)

    def _require_ready(self) -> None:
        if self._state == "ready":
            return
        reason = f"the server is {self._state}" + (f": {self._reason}" if self._reason else "")
        again = f"; next attempt within {self._retry_in:g} s" if self._retry_in else ""
        raise UpstreamUnavailableError(self.link.name, reason + again)

    async def _notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        if method.endswith("list_changed") and self.lists.has_shelves:
            self.pool.start(self.lists.outdated)
        if method == "notifications/tools/list_changed":
            self._tools_said = True
            self._refresh.set()
            return True
        return self.offers.heard(method, params) or self._changes.heard(method, params)

    def _explained(self, reason: str) -> str:
        last = self._stderr.last
        return self.link.scrubbed(f"{reason} (stderr: {last})" if last else reason)

    def _set(self, state: SourceState, reason: str, retry_in: float | None = None) -> None:
        self._state, self._reason, self._retry_in = state, self.link.scrubbed(reason), retry_in
        self._changed()

    def _changed(self) -> None:
        for callback in list(self._listeners.values()):
            callback()


def _told_of(declared: types.ServerCapabilities | None) -> dict[str, bool]:
    """The lists of which the server tells that they have changed, as `subscriptions/listen` names them."""
    offered = {
        name: None if declared is None else getattr(declared, name)
        for name in ("tools", "resources", "prompts")
    }
    return {f"{name}ListChanged": True for name, each in offered.items() if each and each.list_changed}
