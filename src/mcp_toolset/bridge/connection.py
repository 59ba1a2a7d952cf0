"""`UpstreamConnection`: one mounted server, supervised by one owner task for as long as it is mounted.

The owner connects, lists, holds the session open, takes in changes, and after a loss starts again
with backoff (H24, F1–F7). Calls from any other task go over the session that the owner holds; none
of them opens one, none is repeated (F1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc
import mcp_types as types

from mcp_toolset.bridge.backoff import Backoff
from mcp_toolset.bridge.faults import ENDED, LOST, fault_of_result, reason_of, says_broke_off, says_ended
from mcp_toolset.bridge.link import Link
from mcp_toolset.bridge.listing import Listing, usable_over_http
from mcp_toolset.bridge.reports import CallsInFlight
from mcp_toolset.bridge.sdk import (
    CallOptions,
    ClientSession,
    MCPError,
    ObservedDispatcher,
    RequestTimedOut,
    header_map,
    negotiate,
    routing_headers,
)
from mcp_toolset.bridge.stderr import StderrTail
from mcp_toolset.bridge.wire import forwarded_meta, is_modern, modern_envelope, round_trip
from mcp_toolset.catalog.source import EMPTY_SNAPSHOT, CatalogSnapshot, take_snapshot
from mcp_toolset.errors import (
    InvalidOutputError,
    StateError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import SourceState, SourceStatus

REFRESH_GAP: Final = 0.5
"""Seconds between one listing and the next, however many changes are announced (F13)."""

MAX_IN_FLIGHT: Final = 256
"""Calls that one upstream is given at once; more wait, within their own deadline (F28)."""

_CLIENT: Final = types.Implementation(name="mcp-toolset", version="0.1.0")
_CLIENT_WIRE: Final = _CLIENT.model_dump(by_alias=True, exclude_none=True)


class UpstreamConnection:
    """The state of one mounted server, and the way to call it."""

    def __init__(self, link: Link, *, timeout: float, start_timeout: float) -> None:
        """Describe the upstream; nothing is opened before `run`.

        Args:
            link: How to reach it.
            timeout: Seconds that one call may take.
            start_timeout: Seconds that connecting and listing may take, together.
        """
        self.link = link
        self.timeout = timeout
        self.start_timeout = start_timeout
        self.snapshot: CatalogSnapshot = EMPTY_SNAPSHOT
        self.server_info: types.Implementation | None = None
        self.protocol_version: str | None = None
        self._era: str | None = None
        self._state: SourceState = "closed"
        self._reason = ""
        self._retry_in: float | None = None
        self._ready_at = float("inf")
        self._dispatcher: ObservedDispatcher | None = None
        self._refresh = anyio.Event()
        self._lost = anyio.Event()
        self._calls = CallsInFlight()
        self._slots = anyio.Semaphore(MAX_IN_FLIGHT, fast_acquire=True)
        self._listeners: dict[object, Callable[[], None]] = {}
        self._stderr = StderrTail(link.name, link.scrubbed)
        self._log = logging.getLogger(f"mcp_toolset.upstream.{link.name}")

    @property
    def status(self) -> SourceStatus:
        """How it is doing."""
        return SourceStatus(
            state=self._state,
            reason=self._reason,
            retry_in=self._retry_in,
            tools=len(self.snapshot.tools),
            set_aside=self.snapshot.set_aside,
        )

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
        backoff = Backoff()
        self._set("starting", "connecting")
        reported = False

        def settled() -> None:
            nonlocal reported
            if not reported:
                reported = True
                task_status.started()

        try:
            while True:
                self._ready_at = float("inf")
                reason = await self._live(settled)
                wait = backoff.after(anyio.current_time() - self._ready_at)
                self._log.info("offline: %s; next attempt in %.1f s", reason, wait)
                self._set("offline", reason, wait)
                settled()
                await anyio.sleep(wait)
        finally:
            self._set("closed", "")

    async def _live(self, settled: Callable[[], None]) -> str:
        """One connection from start to end; returns why it ended."""
        try:
            with anyio.fail_after(None) as deadline:
                deadline.deadline = anyio.current_time() + self.start_timeout
                async with self.link.open(self._stderr) as inner:
                    dispatcher = ObservedDispatcher(inner, self._notification)
                    async with ClientSession(dispatcher=dispatcher, client_info=_CLIENT) as session:
                        await self._start(session, dispatcher)
                        deadline.deadline = float("inf")
                        settled()
                        await self._hold(session, dispatcher)
            return self._explained(ENDED)
        except TimeoutError:
            return self._explained(f"no answer within {self.start_timeout:g} s")
        # A transport may fail in as many ways as there are transports and servers; here every one of
        # them means the same: this attempt is over, and the reason is for the status (decision 6).
        except Exception as fault:
            return self._explained(reason_of(fault))
        finally:
            self._dispatcher = None

    async def _start(self, session: ClientSession, dispatcher: ObservedDispatcher) -> None:
        self._lost, self._refresh = anyio.Event(), anyio.Event()
        # Forgotten until this attempt succeeds: the server may have come back as another one (F3).
        era, self._era = self._era, None
        self._era = await negotiate(session, dispatcher, era)
        self._dispatcher = dispatcher
        self.protocol_version = session.protocol_version
        self.server_info = session.server_info
        await self._take_list()
        self._ready_at = anyio.current_time()

    async def _hold(self, session: ClientSession, dispatcher: ObservedDispatcher) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._keep_fresh)
                if is_modern(self.protocol_version) and _announces_changes(session):
                    group.start_soon(self._listen)
                group.start_soon(self._watch, dispatcher)
                await self._lost.wait()
                group.cancel_scope.cancel()
        finally:
            self._lose()

    def _lose(self) -> None:
        """End this connection; closing may take its time, and nobody is to call into it meanwhile."""
        self._dispatcher = None
        self._lost.set()
        self._set("offline", ENDED)

    async def _watch(self, dispatcher: ObservedDispatcher) -> None:
        await dispatcher.closed.wait()
        self._lost.set()

    async def _keep_fresh(self) -> None:
        """List again after changes; any number of them during one listing cause one more (F13)."""
        while True:
            await self._refresh.wait()
            self._refresh = anyio.Event()
            try:
                await self._take_list()
            except UpstreamUnavailableError:
                return self._lose()
            except UpstreamError as fault:
                self._log.warning("listing again failed, the last list stays: %s", fault)
            await anyio.sleep(REFRESH_GAP)

    async def _listen(self) -> None:
        """Hold a `subscriptions/listen` stream open (2026-07-28); after a gap, list again."""
        backoff = Backoff()
        while True:
            began = anyio.current_time()
            try:
                await self._request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            except UpstreamProtocolError as fault:
                self._log.debug("no change notifications: %s", fault)
                return
            except UpstreamError:
                if self._lost.is_set():
                    return
            await anyio.sleep(backoff.after(anyio.current_time() - began))
            self._refresh.set()

    async def _take_list(self) -> None:
        """List, and take the list as the state of the server.

        Raises:
            UpstreamError: the server cannot be asked, refused, or listed nothing in time.
        """
        listing = Listing()
        try:
            await listing.walk(self._request, self.start_timeout)
        except TimeoutError:
            raise UpstreamTimeoutError(self.link.name, "it listed no tools in time") from None
        snapshot = take_snapshot(listing.tools, previous=self.snapshot, complete=listing.complete)
        self.snapshot = usable_over_http(snapshot) if self.link.transport == "http" else snapshot
        cut = f"its list of tools has no end; it was cut after {len(listing.tools)}"
        if not listing.complete:
            self._log.warning(cut)
        self._set("ready", "" if listing.complete else cut)

    async def call(self, definition: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolResult:
        """Send one call upstream, once.

        Raises:
            UpstreamUnavailableError: it is offline, or was lost during the call (F1, F6).
            UpstreamTimeoutError: no answer within the deadline; it was told to cancel (F4).
            UpstreamProtocolError: it answered with a protocol error.
            InvalidOutputError: it answered with something that is no result.
        """
        self._require_ready()
        params: dict[str, Any] = {"name": definition.name, "arguments": call.arguments}
        if is_modern(self.protocol_version) and is_modern(context.protocol_version):
            params.update(round_trip(context.params))
        opts: CallOptions = {}
        if context.wants_progress:
            opts["on_progress"] = partial(self._calls.progress, context)
        try:
            with self._calls.of(context):
                wire = await self._within_timeout(params, context, opts, definition)
        except TimeoutError:
            raise UpstreamTimeoutError(
                self.link.name, f"no answer within {self.timeout:g} s; it was told to cancel"
            ) from None
        return self._result(wire)

    async def _within_timeout(
        self, params: dict[str, Any], context: ToolContext, opts: CallOptions, tool: ToolDefinition
    ) -> dict[str, Any]:
        """One request and the wait for its turn (F28), within `timeout` seconds.

        Raises:
            TimeoutError: they took longer.
        """
        if self._dispatcher is not None and self._dispatcher.keeps_time and self._slots.value:
            opts["timeout"] = self.timeout
            async with self._slots:
                return await self._request("tools/call", params, context=context, opts=opts, tool=tool)
        with anyio.CancelScope(deadline=anyio.current_time() + self.timeout):
            async with self._slots:
                return await self._request("tools/call", params, context=context, opts=opts, tool=tool)
        raise TimeoutError

    def _result(self, wire: dict[str, Any]) -> ToolResult:
        fault = fault_of_result(wire)
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
        tool: ToolDefinition | None = None,
    ) -> dict[str, Any]:
        dispatcher, version = self._dispatcher, self.protocol_version
        if dispatcher is None or version is None:
            raise UpstreamUnavailableError(self.link.name, ENDED)
        opts = opts or {}
        self._stamp(version, method, params, context, opts, tool)
        try:
            return await dispatcher.send_raw_request(method, params, opts)
        except RequestTimedOut:
            raise TimeoutError from None
        except MCPError as fault:
            raise self._translated(fault, dispatcher) from None

    def _stamp(
        self,
        version: str,
        method: str,
        params: dict[str, Any],
        context: ToolContext | None,
        opts: CallOptions,
        tool: ToolDefinition | None,
    ) -> None:
        asked: Mapping[str, Any] = context.meta if context is not None else {}
        meta = forwarded_meta(asked)
        if is_modern(version):
            meta.update(modern_envelope(version, _CLIENT_WIRE, asked))
        if meta:
            params["_meta"] = meta
        if self.link.transport == "http":
            annotated: Mapping[tuple[str, ...], str] = (
                header_map(tool.input_schema) if tool is not None else {}
            )
            name = tool.name if tool is not None else None
            opts["headers"] = routing_headers(version, method, name, annotated, params.get("arguments") or {})

    def _translated(self, fault: MCPError, dispatcher: ObservedDispatcher) -> UpstreamError:
        """The SDK's error as ours; what the transport made up is not passed on as the upstream's."""
        if says_ended(fault) or dispatcher.closed.is_set():
            if dispatcher is self._dispatcher:
                self._lose()
            return UpstreamUnavailableError(self.link.name, LOST)
        if self.link.transport == "http" and says_broke_off(fault):
            # Listing again tells whether the server is still there.
            self._refresh.set()
            return UpstreamUnavailableError(self.link.name, f"{LOST} ({self.link.scrubbed(fault.message)})")
        message = self.link.scrubbed(fault.message)
        return UpstreamProtocolError(self.link.name, fault.code, message, self.link.cleaned(fault.data))

    def _require_ready(self) -> None:
        if self._state == "ready":
            return
        reason = f"the server is {self._state}" + (f": {self._reason}" if self._reason else "")
        again = f"; next attempt within {self._retry_in:g} s" if self._retry_in else ""
        raise UpstreamUnavailableError(self.link.name, reason + again)

    async def _notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        if method == "notifications/tools/list_changed":
            self._refresh.set()
            return True
        if method == "notifications/message":
            await self._calls.notify(method, self.link.cleaned(params))
            return True
        return False

    def _explained(self, reason: str) -> str:
        last = self._stderr.last
        return self.link.scrubbed(f"{reason} (stderr: {last})" if last else reason)

    def _set(self, state: SourceState, reason: str, retry_in: float | None = None) -> None:
        self._state, self._reason, self._retry_in = state, reason, retry_in
        self._changed()

    def _changed(self) -> None:
        for callback in list(self._listeners.values()):
            callback()


def _announces_changes(session: ClientSession) -> bool:
    capabilities = session.server_capabilities
    return (
        capabilities is not None and capabilities.tools is not None and bool(capabilities.tools.list_changed)
    )
