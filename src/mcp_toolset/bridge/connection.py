"""`UpstreamConnection`: one mounted server, supervised by one owner task for as long as it is mounted.

The owner connects, lists, holds the session open, takes in changes, and after a loss starts again
with backoff (H24, F1–F7). Calls from any other task go over the session that the owner holds; none
of them opens one, none is repeated (F1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, cast

import anyio
import anyio.abc
import mcp_types as types
from pydantic import ValidationError

from mcp_toolset.bridge.link import Link
from mcp_toolset.bridge.sdk import (
    CallOptions,
    ClientSession,
    MCPError,
    ObservedDispatcher,
    header_map,
    negotiate,
    routing_headers,
)
from mcp_toolset.bridge.stderr import StderrTail
from mcp_toolset.bridge.wire import forwarded_meta, is_modern, modern_envelope, round_trip
from mcp_toolset.catalog.source import EMPTY_SNAPSHOT, CatalogSnapshot, take_snapshot
from mcp_toolset.errors import (
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import SourceState, SourceStatus

FIRST_BACKOFF: Final = 0.5
LAST_BACKOFF: Final = 30.0
STABLE_AFTER: Final = 10.0
"""Seconds that a connection must have lived before a loss starts the backoff anew (F25)."""

MAX_PAGES: Final = 200
MAX_TOOLS: Final = 20_000
"""Where a listing that never ends is cut (F15)."""

_TRANSPORT_CODES: Final = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
_SESSION_GONE: Final = "Session terminated"
_calling: ContextVar[ToolContext | None] = ContextVar("mcp_toolset_calling", default=None)

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
        self._dispatcher: ObservedDispatcher | None = None
        self._session: ClientSession | None = None
        self._refresh = anyio.Event()
        self._lost = anyio.Event()
        self._in_flight: dict[int, ToolContext] = {}
        self._listeners: dict[object, Callable[[], None]] = {}
        self._stderr = StderrTail(link.name)
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
        """Own the upstream until cancelled; started once the first attempt has succeeded or failed."""
        backoff = FIRST_BACKOFF
        self._set("starting", "connecting")
        reported = False

        def settled() -> None:
            nonlocal reported
            if not reported:
                reported = True
                task_status.started()

        try:
            while True:
                began = anyio.current_time()
                reason = await self._live(settled)
                if anyio.current_time() - began >= STABLE_AFTER:
                    backoff = FIRST_BACKOFF
                self._log.info("offline: %s; next attempt in %.1f s", reason, backoff)
                self._set("offline", reason, backoff)
                settled()
                await anyio.sleep(backoff)
                backoff = min(LAST_BACKOFF, backoff * 2)
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
                        return await self._hold(session, dispatcher)
        except TimeoutError:
            return self._explained(f"no answer within {self.start_timeout:g} s")
        # A transport may fail in as many ways as there are transports and servers; here every one of
        # them means the same: this attempt is over, and the reason is for the status (decision 6).
        except Exception as fault:
            return self._explained(_reason_of(fault))
        finally:
            self._dispatcher = self._session = None

    async def _start(self, session: ClientSession, dispatcher: ObservedDispatcher) -> None:
        self._lost, self._refresh = anyio.Event(), anyio.Event()
        self._era = await negotiate(session, dispatcher, self._era)
        self._dispatcher, self._session = dispatcher, session
        self.protocol_version = session.protocol_version
        self.server_info = session.server_info
        self.snapshot = await self._list()
        self._set("ready", "")

    async def _hold(self, session: ClientSession, dispatcher: ObservedDispatcher) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(self._keep_fresh)
            if is_modern(self.protocol_version) and _announces_changes(session):
                group.start_soon(self._listen)
            group.start_soon(self._watch, dispatcher)
            await self._lost.wait()
            group.cancel_scope.cancel()
        return self._explained("the connection was lost")

    async def _watch(self, dispatcher: ObservedDispatcher) -> None:
        await dispatcher.closed.wait()
        self._lost.set()

    async def _keep_fresh(self) -> None:
        """List again after changes; any number of them during one listing cause one more (F13)."""
        while True:
            await self._refresh.wait()
            self._refresh = anyio.Event()
            try:
                with anyio.fail_after(self.start_timeout):
                    self.snapshot = await self._list()
            except (UpstreamError, TimeoutError) as fault:
                self._log.warning("listing again failed, the last list stays: %s", fault)
                continue
            self._changed()

    async def _listen(self) -> None:
        """Hold a `subscriptions/listen` stream open (2026-07-28); after a gap, list again."""
        backoff = FIRST_BACKOFF
        while True:
            try:
                await self._request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            except UpstreamProtocolError as fault:
                self._log.debug("no change notifications: %s", fault)
                return
            except UpstreamError:
                return
            await anyio.sleep(backoff)
            backoff = min(LAST_BACKOFF, backoff * 2)
            self._refresh.set()

    async def _list(self) -> CatalogSnapshot:
        listed: list[Any] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            page = await self._request("tools/list", {"cursor": cursor} if cursor else {})
            entries: Any = page.get("tools")
            listed.extend(cast("list[Any]", entries) if isinstance(entries, list) else ())
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                return take_snapshot(listed, previous=self.snapshot)
            if cursor in seen or len(listed) >= MAX_TOOLS:
                break
            seen.add(cursor)
        self._log.warning("the list of tools was cut at %d tools", len(listed))
        return take_snapshot(listed[:MAX_TOOLS], previous=self.snapshot, complete=False)

    async def call(self, definition: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolResult:
        """Send one call upstream, once.

        Raises:
            UpstreamUnavailableError: it is offline, or was lost during the call (F1, F6).
            UpstreamTimeoutError: no answer within the deadline; it was told to cancel (F4).
            UpstreamProtocolError: it answered with a protocol error.
        """
        self._require_ready()
        params: dict[str, Any] = {"name": definition.name, "arguments": call.arguments}
        if is_modern(self.protocol_version) and is_modern(context.protocol_version):
            params.update(round_trip(context.params))
        opts: CallOptions = {}
        if context.wants_progress:
            opts["on_progress"] = context.progress
        key = id(call)
        self._in_flight[key] = context
        token = _calling.set(context)
        try:
            return ToolResult(
                await self._request(
                    "tools/call", params, limit=self.timeout, context=context, opts=opts, tool=definition
                )
            )
        finally:
            del self._in_flight[key]
            _calling.reset(token)

    async def _request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        limit: float | None = None,
        context: ToolContext | None = None,
        opts: CallOptions | None = None,
        tool: ToolDefinition | None = None,
    ) -> dict[str, Any]:
        dispatcher, version = self._dispatcher, self.protocol_version
        if dispatcher is None or version is None:
            raise UpstreamUnavailableError(self.link.name, "the connection was lost")
        opts = opts or {}
        self._stamp(version, method, params, context, opts, tool)
        try:
            with anyio.fail_after(limit):
                return await dispatcher.send_raw_request(method, params, opts)
        except TimeoutError:
            raise UpstreamTimeoutError(
                self.link.name, f"no answer within {limit or 0:g} s; it was told to cancel"
            ) from None
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
        """The SDK's error as ours; codes that the transport made up are not passed on as the upstream's."""
        gone = fault.message == _SESSION_GONE
        if gone or dispatcher.closed.is_set() or fault.code in _TRANSPORT_CODES:
            self._lost.set()
            return UpstreamUnavailableError(
                self.link.name,
                "the connection was lost during the call; it may have run and was not repeated",
            )
        return UpstreamProtocolError(self.link.name, fault.code, fault.message, fault.data)

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
            owner = self._owner()
            if owner is not None:
                await owner.notify(method, params)
            return True
        return False

    def _owner(self) -> ToolContext | None:
        """The call that an incoming message belongs to; nobody when it cannot be told (P5)."""
        current = _calling.get()
        if current is not None:
            return current
        return next(iter(self._in_flight.values())) if len(self._in_flight) == 1 else None

    def _explained(self, reason: str) -> str:
        last = self._stderr.last
        return self._scrubbed(f"{reason} (stderr: {last})" if last else reason)

    def _scrubbed(self, text: str) -> str:
        """`text` without the secrets this mount was given (F42)."""
        environment = (self.link.process.env or {}) if self.link.process is not None else {}
        for secret in (*environment.values(), *self.link.headers.values()):
            if len(secret) >= 6:
                text = text.replace(secret, "***")
        return text

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


def _reason_of(fault: BaseException) -> str:
    while isinstance(fault, BaseExceptionGroup):
        fault = cast("BaseExceptionGroup[BaseException]", fault).exceptions[0]
    if isinstance(fault, UpstreamError):
        return fault.reason
    if isinstance(fault, ValidationError):
        return "its answer does not follow the protocol"
    text = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
    return text if isinstance(fault, MCPError) else f"{type(fault).__name__}: {text}"
