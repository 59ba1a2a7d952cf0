"""`CallerConnections`: a mounted server to which each caller has a connection of its own.

Sessions, lists, pins, tokens and watched resources of a caller are in that caller's `UpstreamConnection` and
in no other. The tools of all callers are in one snapshot, for names and rules; a caller is listed, and can
call, those that the server lists to that caller. Requests without a caller have the mount's own connection.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import anyio
import anyio.abc

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.pins.lockfile import LockEntry
from mcp_toolset.catalog.pins.policy import PinPolicy, Pins
from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
from mcp_toolset.catalog.snapshot import CatalogSnapshot, ListedTool
from mcp_toolset.errors import ToolsetError, UnknownToolError, UpstreamUnavailableError, sole
from mcp_toolset.extensions.upstream_access.callers.caller_calls import CallerCalls, needs_login
from mcp_toolset.extensions.upstream_access.callers.caller_lists import CallerLists
from mcp_toolset.extensions.upstream_access.callers.caller_offers import CallerOffers
from mcp_toolset.extensions.upstream_access.callers.logins import CallerLogins, CallerTokens
from mcp_toolset.extensions.upstream_access.callers.reach import Reach
from mcp_toolset.protocol.eras import STRICTEST, CacheHint
from mcp_toolset.tools.binding.binding import Gate, Personal, StoreMiss
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.source import SourceStatus
from mcp_toolset.upstream import client_lists
from mcp_toolset.upstream.connection import ConnectionOptions, UpstreamConnection
from mcp_toolset.upstream.resting import DEFAULT, StartOptions
from mcp_toolset.upstream.target import Link

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import ServerSettings
    from mcp_toolset.context.connection import PendingLogin
    from mcp_toolset.context.offer_kinds import Offers

MAX_CALLERS: Final = 256
"""Connections to one server for callers; one more takes the place of one of whoever has the most."""

IDLE: Final = 300.0
"""Seconds without a request after which the connection of a caller is closed."""
_LOOK: Final = 60.0


class ChangedSettings(TypedDict):
    """What `UpstreamConnection.settle` takes."""

    timeout: float
    start_timeout: float
    policy: PinPolicy
    lock: LockEntry | None
    stated: Mapping[str, ServerSettings]
    starts: StartOptions


@dataclass(eq=False, slots=True)
class _Caller:
    """The connection of one caller.

    Attributes:
        connection: The connection.
        forget: Ends what is told of its changes.
        whose: The principal; empty without authentication. One may have several, by headers of its own.
        used_at: When it was used last.
        watching: The resources that the caller watches.
    """

    connection: UpstreamConnection
    forget: Callable[[], None]
    whose: str = ""
    used_at: float = 0.0
    watching: int = 0


class CallerConnections(UpstreamConnection):
    """The connections to one server: that of the mount itself, and one for each caller."""

    def __init__(
        self,
        link: Link,
        *,
        reach: Reach,
        logins: CallerLogins | None = None,
        pins: Callable[[], Pins],
        lenient: bool = True,
        **options: Unpack[ConnectionOptions],
    ) -> None:
        """Describe the upstream; nothing is opened before `run`.

        Args:
            link: How to reach it without a caller.
            reach: How to reach it for a caller.
            logins: The logins of callers, if each caller logs in.
            pins: Makes what judges the definitions that one caller is listed.
            lenient: Whether arguments are repaired.
            options: See `UpstreamConnection`.
        """
        super().__init__(reach.link(link, LOCAL_CONTEXT), pins=pins(), **options)
        self._plain = link
        self._reach = reach
        self._logins = logins
        if logins is not None:
            logins.on_login = self._logged_in
        self._fresh_pins = pins
        self._given = options
        self._settled: Callable[[UpstreamConnection], None] = lambda connection: None
        self._callers: OrderedDict[str, _Caller] = OrderedDict()
        self._lists_of_callers = CallerLists(MAX_CALLERS)
        self.start: Callable[..., object] | None = None
        self._calls = CallerCalls(self, link, reach, logins, lenient=lenient)
        self._offers_of_callers = CallerOffers(self, self._calls)

    @property
    def is_personal(self) -> bool:
        """Always true."""
        return True

    @property
    def offered(self) -> Offers:
        """What the server offers each caller beside its tools."""
        return self._offers_of_callers

    def login_of(self, ticket: str) -> PendingLogin | None:
        """The pending login of a caller."""
        return None if self._logins is None else self._logins.find(ticket)

    def watch_logins(self, callback: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Call `callback` with the facts of each login of a caller that ends; return what stops this."""
        if self._logins is None:
            return lambda: None
        watchers, key = self._logins.watchers, object()
        watchers[key] = callback

        def end() -> None:
            watchers.pop(key, None)

        return end

    def every(self) -> list[UpstreamConnection]:
        return [caller.connection for caller in self._callers.values()]

    def said_by_callers(self) -> frozenset[str]:
        """`tools`, if the list of a caller is another one by now; told once."""
        return frozenset({"tools"} if self._lists_of_callers.told_changed() else ())

    def held(self, context: ToolContext) -> Callable[[], None]:
        """Keep the connection of a caller open; returns what ends that."""
        caller = self._callers.get(self._reach.key(context))
        if caller is None:
            return lambda: None
        caller.watching += 1

        def release() -> None:
            caller.watching -= 1

        return release

    def __len__(self) -> int:
        return len(self._callers)

    def of(self, context: ToolContext) -> UpstreamConnection:
        """The connection of a caller, which is opened if there is none."""
        key = self._reach.key(context)
        if not key:
            return self
        caller = self._callers.get(key) or self._begun(
            key, self._reach.link(self._plain, context), context.principal or ""
        )
        self._callers.move_to_end(key)
        caller.used_at = anyio.current_time()
        return caller.connection

    async def arrived(self, context: ToolContext, within: float) -> UpstreamConnection:
        """The connection of a caller, once it has been tried; see `of` for what it raises."""
        connection = self.of(context)
        if connection._state.now in ("closed", "starting"):
            await connection._state.arrived(within)
        return connection

    def _begun(self, key: str, link: Link, whose: str) -> _Caller:
        if self.start is None:
            raise UpstreamUnavailableError(self.link.name, "the server is closed", sent=False)
        connection = UpstreamConnection(link, pins=self._fresh_pins(), **self._given)
        connection.tools.similar = self.snapshot
        self._settled(connection)
        forget = connection.on_change(partial(self._changed, key, connection))
        caller = self._callers[key] = _Caller(connection, forget, whose)
        # A connection must not inherit the call that it was begun by.
        self.start(self._own, key, caller)
        if len(self._callers) > MAX_CALLERS:
            # Of those of whoever has the most, the one that was idle for longest.
            counts = Counter(each.whose for each in self._callers.values())
            self.retire(max(self._callers, key=lambda each: counts[self._callers[each].whose]))
        return caller

    async def _own(self, key: str, caller: _Caller) -> None:
        try:
            await caller.connection.run()
        finally:
            caller.forget()
            if self._callers.get(key) is caller:
                del self._callers[key]

    def retire(self, key: str) -> None:
        """Close the connection of a caller, once its calls in flight are done."""
        caller = self._callers.pop(key, None)
        if caller is not None and self.start is not None:
            self.start(caller.connection.end, self.timeout)

    def _logged_in(self, user: str) -> None:
        """Connect anew for a caller who has logged in, perhaps with another account; lists are told."""
        for key, caller in list(self._callers.items()):
            link = caller.connection.link
            if isinstance(link.credentials, CallerTokens) and link.credentials.user == user:
                self.retire(key)
                anew = self._begun(key, replace(link, credentials=link.credentials.anew()), caller.whose)
                anew.used_at = caller.used_at

    def close_unused(self, since: float) -> None:
        """Close the connections that no request has used since then, a time of the event loop."""
        for key, caller in list(self._callers.items()):
            if caller.used_at <= since and not caller.watching and not caller.connection._at_work():
                self.retire(key)

    async def _tire(self) -> None:
        while True:
            await anyio.sleep(_LOOK)
            self.close_unused(anyio.current_time() - IDLE)

    def _changed(self, key: str, connection: UpstreamConnection) -> None:
        if connection.tools.known:
            self._lists_of_callers.take(key, connection.tools.snapshot)
        self._state.changed()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own all connections until cancelled; see `UpstreamConnection.run`."""
        around = copy_context()
        try:
            async with anyio.create_task_group() as group:
                self.start = partial(around.run, group.start_soon)
                group.start_soon(self._tire)
                try:
                    await super().run(task_status=task_status)
                finally:
                    self.start = None
                    group.cancel_scope.cancel()
        except BaseExceptionGroup as fault:
            raise sole(fault) from None

    async def end(self, drain: float) -> None:
        """End all connections; see `UpstreamConnection.end`."""
        async with anyio.create_task_group() as group:
            for caller in self._callers.values():
                group.start_soon(caller.connection.end, drain)
        await super().end(drain)

    @property
    def snapshot(self) -> CatalogSnapshot:
        """The tools of all callers; where two are listed the same tool otherwise, what is common to both."""
        offered = () if self._logins is None else (self._logins.offer,)
        return self._lists_of_callers.joint(self.tools.snapshot, *offered)

    @property
    def status(self) -> SourceStatus:
        """How the mount itself is doing; once callers have used it, it is ready for others of them."""
        own = super().status
        if own.state in ("ready", "closed") or not (self._callers or self._lists_of_callers):
            return own
        return replace(own, state="ready", reason=f"ready for callers; without a caller: {own.reason}")

    @property
    def keep_key(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Nothing is kept for the next run: a list is that of one caller."""
        return None

    def kept(self) -> KeptCatalog | None:
        return None

    def list_hint(self) -> CacheHint | None:
        """Each list is one caller's, and may be another one at the next request."""
        return STRICTEST

    def settle(self, **settings: Unpack[ChangedSettings]) -> None:
        """See `UpstreamConnection.settle`; it applies to all connections, and to later ones."""
        settings["starts"] = DEFAULT
        settled = self._settled = partial(UpstreamConnection.settle, **settings)
        settled(self)
        for caller in self._callers.values():
            settled(caller.connection)
            if self.start is not None:
                self.start(caller.connection.tools.judged_anew)

    def unknown_to(self, context: ToolContext) -> bool:
        """Whether it has still to be found out what the server lists to a caller."""
        try:
            connection = self.of(context)
        except ToolsetError:
            return False
        waits = not connection.tools.known and connection._state.now in ("closed", "starting")
        return waits or UpstreamConnection.unknown_to(connection, context)

    async def known_to(self, context: ToolContext, within: float | None = None) -> None:
        """Wait, for a little while at most, until that is known."""
        patience = client_lists.PATIENCE if within is None else within
        await UpstreamConnection.known_to(await self.arrived(context, patience), context)

    def hidden_from(self, context: ToolContext) -> frozenset[str]:
        return frozenset(self.snapshot.tools.keys() - self.seen(context).keys())

    def seen(self, context: ToolContext) -> Mapping[str, ListedTool]:
        """The tools that a caller is listed, or was listed last."""
        try:
            connection = self.of(context)
        # The reason is told to calls.
        except ToolsetError:
            return {}
        tools = connection.tools.snapshot.tools
        if not tools and connection is not self:
            tools = self._lists_of_callers.last(self._reach.key(context)).tools
        if self._logins is not None and needs_login(connection):
            return {**tools, **self._logins.offer.tools}
        hidden = UpstreamConnection.hidden_from(connection, context)
        return {name: tool for name, tool in tools.items() if name not in hidden} if hidden else tools

    def personal(self, definition: ToolDefinition) -> Personal:
        """What a tool of the shared list is to single callers."""

        def own(context: ToolContext) -> ToolDefinition | None:
            found = self.seen(context).get(definition.name)
            return None if found is None else found.definition

        return Personal(definition, own, partial(self._covers, definition))

    def _covers(self, definition: ToolDefinition, context: ToolContext) -> bool:
        """Whether a shared definition is for a caller: it is the caller's own, or made of that and others."""
        own = self.seen(context).get(definition.name)
        if own is None or own.definition.digest == definition.digest:
            return own is not None
        # A definition that this caller's own is not part of yet has what is another caller's.
        return self.snapshot.tools[definition.name].definition is definition

    def gate(self, definition: ToolDefinition) -> Gate:
        """See `admit`."""
        return partial(self.admit, definition)

    def admit(self, definition: ToolDefinition, call: ToolCall, context: ToolContext) -> None:
        """The gate of a tool: it does not exist for callers to whom the server does not list it.

        Raises:
            UnknownToolError: it is not listed to this caller.
            CallError: the server cannot be reached for this caller.
            StoreMiss: the caller has to be listed the tools first.
        """
        connection = self.of(context)
        if not connection.tools.known and connection._state.now in ("closed", "starting"):
            raise StoreMiss(partial(self.known_to, context, self.timeout))
        # A login may be over before its call is repeated.
        is_login = connection is not self and self._calls.is_login(definition)
        if not is_login and not self._covers(definition, context):
            raise UnknownToolError(call.name)

    async def call(self, definition: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolResult:
        """Send one call over the connection of its caller; see `CallerCalls.call`."""
        return await self._calls.call(definition, call, context)
