"""`CallerConnections`: a mounted server to which each caller has a connection of its own.

Sessions, lists, pins, tokens and watched resources of a caller are in that caller's `UpstreamConnection` and
in no other. The tools of all callers are in one snapshot, for names and rules; a caller is listed, and can
call, those that the server lists to that caller. Requests without a caller have the mount's own connection.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

import anyio
import anyio.abc

from mcp_toolset import errors
from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.pins.lockfile import LockEntry
from mcp_toolset.catalog.pins.policy import PinPolicy, Pins
from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
from mcp_toolset.catalog.snapshot import EMPTY_SNAPSHOT, CatalogSnapshot, ListedTool
from mcp_toolset.context.offer_kinds import KINDS, Ending, Kind, ListChange, Offers, Wire
from mcp_toolset.context.request import WireContext
from mcp_toolset.extensions.upstream_access.reach import LOG_IN, CallerLogins, CallerTokens, Reach
from mcp_toolset.protocol.eras import STRICTEST, CacheHint
from mcp_toolset.tools.argument_repair import repaired
from mcp_toolset.tools.binding import Gate, Personal, StoreMiss
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import SourceStatus
from mcp_toolset.tools.validation import checks_of
from mcp_toolset.upstream import client_lists
from mcp_toolset.upstream.client_lists import ClientOffers
from mcp_toolset.upstream.connection import ConnectionOptions, UpstreamConnection
from mcp_toolset.upstream.resting import DEFAULT, StartOptions
from mcp_toolset.upstream.target import Link

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import ServerSettings
    from mcp_toolset.context.connection import PendingLogin


_T = TypeVar("_T")


def needs_login(connection: UpstreamConnection) -> bool:
    """True if the caller whose connection this is has to log in before it can be used."""
    tokens = connection.link.credentials
    if not isinstance(tokens, CallerTokens) or connection.status.state == "ready":
        return False
    asked = tokens.refused is not None and connection.status.reason.startswith(errors.NEEDS_LOGIN)
    return tokens.needed or asked


class CallerOffers(Offers):
    """Offers by caller; those of the mount itself go only to requests without a caller."""

    def __init__(self, connections: CallerConnections) -> None:
        self._connections = connections
        self._was_open = False
        self._extensions: Mapping[str, Any] = {}

    @property
    def _own(self) -> ClientOffers:
        return self._connections.offers

    @property
    def known(self) -> bool:
        """True if it is known what the mount itself is offered."""
        return self._own.known

    def declares(self, capability: str, feature: str = "") -> bool:
        every = (self._own, *(one.offers for one in self._connections.every()))
        return any(offers.declares(capability, feature) for offers in every)

    def extensions(self) -> Mapping[str, Any]:
        """Those that the server declares to the first connection that knows of some; kept when it closes."""
        every = (self._own, *(one.offers for one in self._connections.every()))
        self._extensions = next((found for one in every if (found := one.extensions())), self._extensions)
        return self._extensions

    def may_declare(self) -> bool:
        """True if callers are to be told that it may have resources and prompts: none has reached it so far.

        What a client has been told once stays so.
        """
        every = (self._own, *(one.offers for one in self._connections.every()))
        self._was_open = self._was_open or not any(offers.known for offers in every)
        return self._was_open

    async def learned(self, context: ToolContext, *, log_in: bool) -> bool:
        """Learn the lists of a caller, who is asked to log in if `log_in` is true.

        See `CallerLogins.log_in` for what it raises.
        """
        if log_in and not await self._connections.log_in(context):
            return False
        for kind in KINDS:
            await self.look(kind, context)
        return True

    async def listed(self, kind: Kind) -> Sequence[Wire]:
        """The entries that requests without a caller see."""
        return await self._own.listed(kind) if self._own.declares(kind.capability) else ()

    async def look(self, kind: Kind, context: ToolContext) -> None:
        """Refresh a caller's list."""
        try:
            connection = await self._connections.arrived(context, client_lists.TIMEOUT)
            await _offered(connection)
            if connection.offers.declares(kind.capability):
                await connection.offers.listed(kind)
            await connection.offers.look(kind, context)
        # The list of this caller stays as it was; the lists of other servers are not to fail with it.
        except errors.ToolsetError:
            return

    def listed_to(self, kind: Kind, context: ToolContext) -> Sequence[Wire] | None:
        """The entries that a caller sees; none while its connection has listed nothing."""
        try:
            connection = self._connections.of(context)
        # The reason is told to calls.
        except errors.ToolsetError:
            return ()
        entries = connection.offers.listed_to(kind, context)
        if entries is not None or connection.offers is self._own:
            return entries
        return connection.offers.common(kind.method) if connection.offers.declares(kind.capability) else ()

    def listed_to_some(self, kind: Kind) -> Sequence[Wire]:
        """The entries that any caller sees."""
        found = list(self._own.listed_to_some(kind))
        for one in self._connections.every():
            if one.offers.declares(kind.capability):
                found += one.offers.common(kind.method) or ()
            found += one.offers.listed_to_some(kind)
        return found

    def hint(self, kind: Kind) -> CacheHint:
        return STRICTEST

    def meta(self, kind: Kind) -> Wire:
        """Nothing: the `_meta` of one caller's list is not for others."""
        return {}

    async def read(self, uri: str, context: ToolContext) -> Wire:
        return await self._connections.sent(context, lambda one: one.offers.read(uri, context))

    async def prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> Wire:
        return await self._connections.sent(context, lambda one: one.offers.prompt(name, arguments, context))

    async def complete(self, params: Mapping[str, Any], context: ToolContext) -> Wire:
        return await self._connections.sent(context, lambda one: one.offers.complete(params, context))

    async def ask(self, method: str, params: Mapping[str, Any], context: ToolContext) -> Wire:
        """The answer to a request of an extension; the caller is not asked to log in for it."""
        connection = await self._connections.arrived(context, self._connections.timeout)
        return await connection.offers.ask(method, params, context)

    async def watch(self, uri: str, updated: Callable[[], None], context: ToolContext) -> Ending:
        """Call `updated` when a resource has changed for a caller; its connection stays open meanwhile."""
        if isinstance(context, WireContext) and context.modern:
            # A stream of changes begins at once: it waits for no login.
            connection = await self._connections.arrived(context, self._connections.timeout)
            end = await connection.offers.watch(uri, updated, context)
        else:
            end = await self._connections.sent(context, lambda one: one.offers.watch(uri, updated, context))
        release = self._connections.held(context)

        async def ended() -> None:
            release()
            await end()

        return ended

    def said(self) -> frozenset[str]:
        """The lists that have changed, of any caller; who listens is told to list again, not what."""
        said = self._own.said() | self._connections.said_by_callers()
        return said.union(*(one.offers.said() for one in self._connections.every()))

    def list_news(self) -> Sequence[ListChange]:
        """The lists of single clients that have changed since this was asked last."""
        every = (self._own, *(one.offers for one in self._connections.every()))
        return [news for offers in every for news in offers.list_news()]


async def _offered(connection: UpstreamConnection) -> None:
    """Wait, for a little while at most, until it is known what a server offers that has just been reached."""
    known = anyio.Event()

    def look() -> None:
        if connection.offers.known or connection.status.state != "ready":
            known.set()

    stop = connection.changed.add(look)
    look()
    try:
        with anyio.move_on_after(client_lists.TIMEOUT):
            await known.wait()
    finally:
        stop()


Merged = Mapping[tuple[str, ...], ListedTool]
"""Shared definitions, by the digests of those that they are of."""

_ANYTHING: Final[Mapping[str, Any]] = {"type": "object"}
_NOTHING: Final[Mapping[str, Any]] = {}


def shared(
    lists: Sequence[Mapping[str, ListedTool]], known: Merged
) -> tuple[dict[str, ListedTool], dict[tuple[str, ...], ListedTool]]:
    """The tools of several lists, by name, and the definitions made for that; `known` are reused."""
    found: dict[str, dict[str, ListedTool]] = {}
    for tools in lists:
        for name, tool in tools.items():
            found.setdefault(name, {}).setdefault(tool.definition.digest, tool)
    made: dict[tuple[str, ...], ListedTool] = {}
    whole: dict[str, ListedTool] = {}
    for name, several in found.items():
        if len(several) == 1:
            whole[name] = next(iter(several.values()))
            continue
        digests = tuple(sorted(several))
        made[digests] = whole[name] = known.get(digests) or _merged([several[one] for one in digests])
    return whole, made


def _merged(tools: Sequence[ListedTool]) -> ListedTool:
    all_of = [tool.definition for tool in tools]
    definition = ToolDefinition(
        all_of[0].name,
        _common(one.description for one in all_of),
        _common(one.input_schema for one in all_of) or _ANYTHING,
        _common(one.output_schema for one in all_of),
        title=_common(one.title for one in all_of),
        annotations=_careful([one.annotations or _NOTHING for one in all_of]),
    )
    return ListedTool(definition, *checks_of(definition))


def _common(values: Iterable[_T | None]) -> _T | None:
    several = list(values)
    return several[0] if all(one == several[0] for one in several) else None


def _careful(hints: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The hints of a tool that may be each of several: it is as dangerous as any of them."""

    def said(key: str, default: bool) -> list[bool]:
        return [one.get(key, default) is True for one in hints]

    reads = all(said("readOnlyHint", False))
    return {
        "readOnlyHint": reads,
        "destructiveHint": any(
            one.get("destructiveHint", not one.get("readOnlyHint", False)) is not False for one in hints
        ),
        "idempotentHint": all(said("idempotentHint", False)),
        "openWorldHint": any(one.get("openWorldHint", True) is not False for one in hints),
    }


class CallerLists:
    """The last snapshot of each caller, also of those whose connection is closed."""

    def __init__(self, limit: int) -> None:
        """Begin with none; beyond `limit` callers, the list that is the oldest is forgotten."""
        self._limit = limit
        self._last: OrderedDict[str, CatalogSnapshot] = OrderedDict()
        self._changed = False
        # Snapshots, their tools as one snapshot, and what was merged for it.
        self._joint: tuple[tuple[CatalogSnapshot, ...], CatalogSnapshot, Merged] = (), EMPTY_SNAPSHOT, {}

    def __len__(self) -> int:
        """The number of callers that have been listed tools."""
        return len(self._last)

    def take(self, key: str, snapshot: CatalogSnapshot) -> None:
        """Remember the tools that a caller was listed just now."""
        if self._last.get(key) is snapshot:
            return
        self._changed = True
        self._last[key] = snapshot
        self._last.move_to_end(key)
        if len(self._last) > self._limit:
            self._last.popitem(last=False)

    def last(self, key: str) -> CatalogSnapshot:
        return self._last.get(key, EMPTY_SNAPSHOT)

    def told_changed(self) -> bool:
        """True if a caller was listed other tools since this was asked last."""
        changed, self._changed = self._changed, False
        return changed

    def joint(self, own: CatalogSnapshot, *offered: CatalogSnapshot) -> CatalogSnapshot:
        """The tools of all callers and of these snapshots; made anew only if one of them is another one."""
        known, whole, merged = self._joint
        parts = own, *self._last.values(), *offered
        if len(parts) != len(known) or any(a is not b for a, b in zip(parts, known, strict=True)):
            tools, merged = shared([part.tools for part in parts], merged)
            whole = whole if tools == whole.tools else replace(own, tools=tools)
            # Replaced as one: a worker thread may read it.
            self._joint = parts, whole, merged
        return whole


MAX_CALLERS: Final = 256
"""Connections to one server for callers; one more takes the place of one of whoever has the most."""

STARTING: Final = 8
"""Connections for callers that are opened at once, so that others have their turns however many come."""

_START: Final = 1.0  # seconds for which one of them is counted: a slow server holds up no more than this

IDLE: Final = 300.0
"""Seconds without a request after which the connection of a caller is closed."""
_LOOK: Final = 60.0


class ChangedSettings(TypedDict):
    """Arguments of `UpstreamConnection.settle`."""

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
        """Describe the upstream; nothing is opened before `run`."""
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
        self._lenient = lenient
        self._starts = anyio.Semaphore(STARTING)
        self._offers_of_callers = CallerOffers(self)

    @property
    def is_personal(self) -> bool:
        """Always true."""
        return True

    @property
    def offered(self) -> Offers:
        return self._offers_of_callers

    def login_of(self, ticket: str) -> PendingLogin | None:
        return None if self._logins is None else self._logins.find(ticket)

    def watch_logins(self, callback: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Call `callback` with the facts of each login of a caller that ends; return what stops this."""
        return (lambda: None) if self._logins is None else self._logins.login_ended.add(callback)

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
            raise errors.UpstreamUnavailableError(self.link.name, "the server is closed", sent=False)
        connection = UpstreamConnection(link, pins=self._fresh_pins(), **self._given)
        connection.tools.similar = self.snapshot
        self._settled(connection)
        forget = connection.changed.add(partial(self._changed, key, connection))
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
            async with anyio.create_task_group() as group:
                await self._starts.acquire()
                group.start_soon(self._started, caller.connection)
                await caller.connection.run()
                group.cancel_scope.cancel()
        finally:
            caller.forget()
            if self._callers.get(key) is caller:
                del self._callers[key]

    async def _started(self, connection: UpstreamConnection) -> None:
        try:
            await connection._state.arrived(_START)
        finally:
            self._starts.release()

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
        self._state.changed.tell()

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
            raise errors.sole(fault) from None

    async def end(self, drain: float) -> None:
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
        """The status of the mount itself; once callers have used it, it is ready for others of them."""
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
        settings["starts"] = DEFAULT
        settled = self._settled = partial(UpstreamConnection.settle, **settings)
        settled(self)
        for caller in self._callers.values():
            settled(caller.connection)
            if self.start is not None:
                self.start(caller.connection.tools.judged_anew)

    def unknown_to(self, context: ToolContext) -> bool:
        """True if it has still to be found out what the server lists to a caller."""
        try:
            connection = self.of(context)
        except errors.ToolsetError:
            return False
        waits = not connection.tools.known and connection._state.now in ("closed", "starting")
        return waits or UpstreamConnection.unknown_to(connection, context)

    async def known_to(self, context: ToolContext, within: float | None = None) -> None:
        """Wait, for a little while at most, until that is known."""
        timeout = client_lists.TIMEOUT if within is None else within
        await UpstreamConnection.known_to(await self.arrived(context, timeout), context)

    def hidden_from(self, context: ToolContext) -> frozenset[str]:
        return frozenset(self.snapshot.tools.keys() - self.seen(context).keys())

    def seen(self, context: ToolContext) -> Mapping[str, ListedTool]:
        try:
            connection = self.of(context)
        # The reason is told to calls.
        except errors.ToolsetError:
            return {}
        tools = connection.tools.snapshot.tools
        if not tools and connection is not self:
            tools = self._lists_of_callers.last(self._reach.key(context)).tools
        if self._logins is not None and needs_login(connection):
            return {**tools, **self._logins.offer.tools}
        hidden = UpstreamConnection.hidden_from(connection, context)
        return {name: tool for name, tool in tools.items() if name not in hidden} if hidden else tools

    def personal(self, definition: ToolDefinition) -> Personal:
        def own(context: ToolContext) -> ToolDefinition | None:
            found = self.seen(context).get(definition.name)
            return None if found is None else found.definition

        return Personal(definition, own, partial(self._covers, definition))

    def _covers(self, definition: ToolDefinition, context: ToolContext) -> bool:
        """True if a shared definition is for a caller: it is the caller's own, or made of that and others."""
        own = self.seen(context).get(definition.name)
        if own is None or own.definition.digest == definition.digest:
            return own is not None
        # A definition that this caller's own is not part of yet has what is another caller's.
        return self.snapshot.tools[definition.name].definition is definition

    def gate(self, definition: ToolDefinition) -> Gate:
        return partial(self.admit, definition)

    def admit(self, definition: ToolDefinition, call: ToolCall, context: ToolContext) -> None:
        """The gate of a tool: it does not exist for callers to whom the server does not list it."""
        connection = self.of(context)
        if not connection.tools.known and connection._state.now in ("closed", "starting"):
            raise StoreMiss(partial(self.known_to, context, self.timeout))
        # A login may be over before its call is repeated.
        is_login = connection is not self and self.is_login(definition)
        if not is_login and not self._covers(definition, context):
            raise errors.UnknownToolError(call.name)

    async def call(self, definition: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolResult:
        """Send one call over the connection of its caller, who logs in first if need be.

        See `UpstreamConnection.call` and `CallerLogins.log_in` for what it raises.
        """
        if self.is_login(definition):
            await self._ready(context)
            return ToolResult.of_text(f"You are logged in to {self._plain.name}. List its tools again.")

        async def send(connection: UpstreamConnection) -> ToolResult:
            return await self._called(connection, definition, call, context)

        return await self.sent(context, send)

    async def sent(self, context: ToolContext, send: Callable[[UpstreamConnection], Awaitable[_T]]) -> _T:
        """Send a request as its caller, who logs in first if need be, or again for more scopes.

        See `CallerLogins.log_in` for what it raises besides.
        """
        connection = await self._ready(context)
        try:
            return await send(connection)
        except errors.UpstreamUnavailableError as fault:
            tokens = connection.link.credentials
            # The server has refused this request, so it did not run; of others it is not known.
            refused = isinstance(fault, errors.LoginRequiredError)
            more = refused and fault.for_more
            if not isinstance(tokens, CallerTokens) or not (tokens.needed or more):
                raise
            if more:
                await self._log_in(context, tokens, more=True)
            elif self.of(context) is connection:
                self.retire(self._reach.key(context))
            again = await self._ready(context)
            if not refused:
                raise
        return await send(again)

    async def log_in(self, context: ToolContext) -> bool:
        if self._logins is None:
            return False
        connection = await self.arrived(context, self.timeout)
        if not needs_login(connection):
            return False
        await self._ready(context)
        return True

    async def _ready(self, context: ToolContext) -> UpstreamConnection:
        connection = await self.arrived(context, self.timeout)
        tokens = connection.link.credentials
        if not needs_login(connection) or not isinstance(tokens, CallerTokens):
            return connection
        await self._log_in(context, tokens, more=not tokens.needed)
        return await self.arrived(context, self.timeout)

    async def _log_in(self, context: ToolContext, tokens: CallerTokens, *, more: bool) -> None:
        start = self.start
        if self._logins is not None and start is not None:
            await self._logins.log_in(self._plain, context, start, tokens.refused, more=more)

    async def _called(
        self, connection: UpstreamConnection, definition: ToolDefinition, call: ToolCall, context: ToolContext
    ) -> ToolResult:
        own = self.seen(context).get(definition.name)
        if own is None:
            raise errors.UnknownToolError(call.name)
        if own.definition.digest != definition.digest:
            call = self._fitting(own, call)
        return await UpstreamConnection.call(connection, own.definition, call, context)

    def is_login(self, definition: ToolDefinition) -> bool:
        return self._logins is not None and definition is self._logins.offer.tools[LOG_IN].definition

    def _fitting(self, own: ListedTool, call: ToolCall) -> ToolCall:
        if self._lenient:
            call = repaired(own.definition.input_schema, own.arguments, call)
        if not own.arguments.is_valid(call.arguments):
            raise errors.InvalidArgumentsError(own.arguments.misfit(call.name, call.arguments))
        return call
