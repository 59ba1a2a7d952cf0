"""`UpstreamSession`: one connection to an upstream, from the handshake to its end, and the calls in it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import Context, copy_context
from dataclasses import field
from itertools import count
from typing import Any, Final, cast

import anyio
import anyio.abc

from mcp_toolset import errors
from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.observers import CURRENT
from mcp_toolset.catalog.snapshot import CatalogSnapshot
from mcp_toolset.concurrency.tasks import TaskSet, WorkingTime, given_up
from mcp_toolset.config.tables import Asked, Era, ProtocolRule
from mcp_toolset.context.connection import ServedClient, with_extensions
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.spans import note_sent
from mcp_toolset.protocol import eras, json_rpc
from mcp_toolset.protocol.dispatch import NOT_AWAITED, CallOptions, Dispatcher, Started
from mcp_toolset.protocol.methods import (
    CLIENT_CAPABILITIES_META_KEY,
    LOG_LEVEL_META_KEY,
    LOG_LEVELS,
    is_modern,
)
from mcp_toolset.protocol.server_machine import header_fault, header_map, routing_headers
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.stdio_client import StderrTail
from mcp_toolset.upstream import routing
from mcp_toolset.upstream.in_flight import CallInFlight, CallsInFlight, SessionHealth, StandIn, carried_to
from mcp_toolset.upstream.mount_state import ServerInfo
from mcp_toolset.upstream.negotiation import CLIENT_INFO, negotiate
from mcp_toolset.upstream.questions import ClientQuestions, Notified, ServerMessages, missing_extensions
from mcp_toolset.upstream.secrets import LEFT_OUT
from mcp_toolset.upstream.target import Link

_NO_HEADERS: Final[Mapping[tuple[str, ...], str]] = {}

OWN_EXTENSIONS: Final = "mcp-toolset/extensions"
"""In the `_meta` of a request before it is sent: `OwnExtensions`. A value of a client's is left out."""


class OwnExtensions(dict[str, Any]):
    """The extensions that the bridge itself takes, by name, whether the caller has declared them or not."""


HEARD_BY_DEFAULT: Final = "info"
"""The level of a modern upstream for a legacy client that has set none: there the server decides."""


def _asked(context: ToolContext, link: Link) -> Mapping[str, Any]:
    """The keys of a modern envelope that are the caller's own: what it answers, what it wants to hear."""
    if not isinstance(context, WireContext):
        stand_in: StandIn | None = link.stand_in
        if stand_in is None:
            return context.meta
        return {**context.meta, CLIENT_CAPABILITIES_META_KEY: {stand_in.capability: {}}}
    declared = carried_to(link, context)
    if context.modern:
        return {**context.meta, CLIENT_CAPABILITIES_META_KEY: declared}
    return {CLIENT_CAPABILITIES_META_KEY: declared, LOG_LEVEL_META_KEY: context.log_level or HEARD_BY_DEFAULT}


class RequestStamp:
    """Puts `_meta` and headers on the requests of one session."""

    def __init__(self, link: Link, *, shows: Mapping[str, Any], forwards_credentials: bool) -> None:
        self._link = link
        self._shown: Mapping[str, Any] = {CLIENT_CAPABILITIES_META_KEY: shows}
        self._forwards_credentials = forwards_credentials
        self._version = ""
        self._modern = False
        self._annotated: dict[str, tuple[ToolDefinition, Mapping[tuple[str, ...], str]]] = {}

    def begin(self, version: str) -> None:
        self._version, self._modern = version, is_modern(version)

    def put(
        self,
        method: str,  # the method of the request
        params: dict[str, Any],  # its parameters, which gain `_meta`
        context: ToolContext | None,  # whose request it is; `None` for one of the bridge itself
        opts: CallOptions,  # what is said with it, which gains headers
        tool: ToolDefinition | None = None,  # the tool that is called
        token: str | None = None,  # what its progress comes with
    ) -> None:
        """Put into the parameters and headers of a request what the revision wants to see in it."""
        meta = eras.forwarded_meta(context.meta) if context is not None else {}
        if "_meta" in params:
            meta |= params["_meta"]
        if self._modern:
            asked = self._shown if context is None else _asked(context, self._link)
            meta.update(eras.modern_envelope(self._version, CLIENT_INFO, asked))
            if OWN_EXTENSIONS in meta:
                _declare(meta, meta.pop(OWN_EXTENSIONS))
            if self._link.declared:
                declared = self._link.declares(meta[CLIENT_CAPABILITIES_META_KEY])
                meta[CLIENT_CAPABILITIES_META_KEY] = declared
        if token is not None:
            meta["progressToken"] = token
        if meta:
            params["_meta"] = meta
        if self._link.facts.carries_headers:
            opts["headers"] = self._headers(method, params, context, tool)
        if tool is not None:
            opts["tool"] = tool

    def of_notification(self, method: str) -> CallOptions:
        if not self._link.facts.carries_headers:
            return {}
        return {"headers": routing_headers(self._version, method, {}, _NO_HEADERS)}

    def _headers(
        self, method: str, params: Mapping[str, Any], context: ToolContext | None, tool: ToolDefinition | None
    ) -> dict[str, str]:
        annotated = _NO_HEADERS if tool is None or not self._modern else self._annotations(tool)
        headers = routing_headers(self._version, method, params, annotated)
        if self._forwards_credentials and isinstance(context, WireContext) and context.authorization:
            headers["authorization"] = context.authorization
        return headers

    def _annotations(self, tool: ToolDefinition) -> Mapping[tuple[str, ...], str]:
        """The arguments of a tool that travel in headers too, looked for once for each definition."""
        known = self._annotated.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._annotated[tool.name] = (tool, header_map(tool.input_schema))
        return known[1]


Request = Callable[[str, dict[str, Any]], Awaitable[object]]


class LogThreshold:
    """The least severe log message that a legacy session sends (`logging/setLevel`), lowered for callers."""

    __slots__ = ("_level", "applies")

    def __init__(self) -> None:
        self.applies = False  # a legacy server that declares logging
        self._level: str | None = None

    def begin(self, capabilities: Mapping[str, Any], *, modern: bool) -> None:
        self.applies = not modern and "logging" in capabilities
        self._level = None

    def wanted_by(self, context: ToolContext) -> str | None:
        if not self.applies or not isinstance(context, WireContext):
            return None
        wanted, level = context.log_level, self._level
        if wanted not in LOG_LEVELS or (level and LOG_LEVELS.index(level) <= LOG_LEVELS.index(wanted)):
            return None
        return wanted

    async def lower(self, level: str, request: Request) -> None:
        self._level = level
        try:
            await request("logging/setLevel", {"level": level})
        except errors.UpstreamProtocolError:
            return


def _declare(meta: dict[str, Any], own: object) -> None:
    if isinstance(own, OwnExtensions):
        meta[CLIENT_CAPABILITIES_META_KEY] = with_extensions(meta[CLIENT_CAPABILITIES_META_KEY], own)


_NOTHING: Final[Mapping[str, Any]] = {}
_TIMED_BY_DISPATCHER: Final = nullcontext()

_log = logging.getLogger("mcp_toolset.upstream")


class UpstreamSession:
    """One session: what it declared, the revision it speaks, and the calls in flight in it."""

    def __init__(
        self,
        link: Link,
        *,
        declares: Mapping[str, Any] = _NOTHING,
        client: ServedClient | None = None,
        forwards_credentials: bool = False,
        shows: Mapping[str, Any] = _NOTHING,
    ) -> None:
        self._stamp = RequestStamp(link, shows=shows, forwards_credentials=forwards_credentials)
        self._shows = shows
        self.link = link  # how the upstream is reached
        self.declares = declares  # the requests to a client that it said would be answered (legacy)
        self.calls = CallsInFlight()  # the calls in flight
        if client is not None:
            self.calls.outside.client_is(client)
        self.questions = ClientQuestions(link, self.calls, declares, client, link.stand_in)
        self.dispatcher: Dispatcher | None = None  # `None` while it is not open
        self.closed = anyio.Event()  # set when its connection has ended
        self.protocol_version: str | None = None  # the revision that was settled
        self.modern = False  # whether that is 2026-07-28 or later
        self.server: ServerInfo | None = None  # what the upstream says that it is
        self.capabilities: Mapping[str, Any] | None = None  # as declared; `None` before
        self.instructions = ""  # what the upstream tells models
        self.awake: Callable[[], Awaitable[None]] | None = None  # opens it again, if it rests
        self.on_lost: Callable[[], None] = _nothing
        self.on_broken_off: Callable[[], None] = _nothing
        self.health = SessionHealth(
            self._check, lambda: self.is_read
        )  # whether the upstream still answers in it
        self._messages = ServerMessages(link, self.calls, self.questions, self.health)
        self._threshold = LogThreshold()
        self._keeps_time = False

    @asynccontextmanager
    async def connected(self, stderr: StderrTail, notified: Notified) -> AsyncGenerator[Dispatcher]:
        async with self.link.open(stderr) as dispatcher:
            # Notifications are handed over in callbacks of the loop, where a task group can start nothing.
            sending = TaskSet(lambda: _log.error("forwarding notifications to clients has stopped"))
            try:
                with self.calls.told_by(sending.begin):
                    async with anyio.create_task_group() as group:
                        await group.start(self._run, dispatcher, notified)
                        try:
                            yield dispatcher
                        finally:
                            group.cancel_scope.cancel()
            finally:
                await sending.end()

    async def _run(
        self, dispatcher: Dispatcher, notified: Notified, *, task_status: Started = NOT_AWAITED
    ) -> None:
        closed = self.closed = anyio.Event()
        messages = self._messages
        messages.notified = notified
        of_a_call = None if self.link.facts.in_process else messages.take_of_call
        try:
            await dispatcher.run(messages.answer, messages.take, of_a_call, task_status=task_status)
        finally:
            closed.set()

    async def begin(self, dispatcher: Dispatcher, era: str | None, protocol: ProtocolRule = "auto") -> Era:
        said = await negotiate(
            dispatcher,
            self.closed,
            self.link.declares({**self._shows, **self.declares}),
            protocol=protocol,
            known_legacy=era == "legacy",
            # An answer to a POST is owed by HTTP itself.
            answers_all=self.link.facts.binds_messages,
        )
        self.protocol_version, self.modern = said.protocol_version, said.is_modern
        self.capabilities = {key: value for key, value in said.capabilities.items() if value is not None}
        self.server, self.instructions = ServerInfo.of(said.server_info), said.instructions or ""
        self._messages.answers_pings = not said.is_modern
        self._stamp.begin(said.protocol_version)
        self._threshold.begin(self.capabilities, modern=said.is_modern)
        self._keeps_time = not self.declares and getattr(dispatcher, "keeps_time", False)
        self.dispatcher = dispatcher
        return "modern" if said.is_modern else "legacy"

    async def perform(
        self,
        call: CallInFlight,  # the call, counted among `calls` already
        method: str,  # the method of the request
        params: dict[str, Any],  # its parameters
        *,
        seconds: float,  # how long the upstream may work on it; the client's own time does not count
        slots: anyio.Semaphore,  # how many requests of clients the upstream is given at once
        tool: ToolDefinition | None = None,  # for the headers of its schema
    ) -> dict[str, Any]:
        """Send one request of a client, once; progress and questions go back to the client."""
        if self.health.fault:
            raise errors.UpstreamUnavailableError(
                self.link.name, f"{self.health.fault}; the call did not run", sent=False
            )
        dispatcher, closed = self.dispatcher, self.closed
        opts, token = self._options(call) if call.context.wants_progress else (CallOptions(), None)
        level = self._threshold.wanted_by(call.context) if self._threshold.applies else None
        # A request that asks no client is timed where it is sent; the time of others may stand still.
        is_plain = self._keeps_time and dispatcher is not None and level is None and slots.value > 0
        call.answered = sent = False
        answer: dict[str, Any] | None = None
        began = time.monotonic()
        why = given_up.set(call.reason)
        try:
            with _TIMED_BY_DISPATCHER if is_plain else _within(seconds, call):
                if is_plain:
                    opts["timeout"] = seconds
                    slots.acquire_nowait()
                else:
                    await slots.acquire()
                try:
                    if dispatcher is None or level is not None:
                        dispatcher, closed = await self._prepared(level), self.closed
                    self._stamp.put(method, params, call.context, opts, tool, token)
                    sent = True
                    answer = await dispatcher.send_raw_request(method, params, opts)
                finally:
                    slots.release()
            self.health.heard()
            return answer if self.modern or "resultType" not in answer else eras.final_result(answer)
        except (TimeoutError, json_rpc.RequestTimedOut):
            self.health.missed(seconds)
            raise errors.UpstreamTimeoutError(
                self.link.name, f"no answer within {seconds:g} s; it was told to cancel", sent=sent
            ) from None
        except json_rpc.MCPError as fault:
            told = self._translated(fault, dispatcher, closed)
            self.questions.note_refusal(told, call.context)
            raise told from None
        except anyio.get_cancelled_exc_class():
            self.health.given_up(time.monotonic() - began)
            raise
        finally:
            given_up.reset(why)
            if (seen := CURRENT.get()) is not None and seen.times:
                note_sent(seen, self.link.name, method, params, answer, time.monotonic() - began)
            if token is not None:
                self.calls.give_back(token)
            call.answered = True
            if call.has_notifications:
                await call.told()

    def _options(self, call: CallInFlight) -> tuple[CallOptions, str | None]:
        """The progress reports of a call, and its token on the wire."""
        if self.link.facts.in_process:
            return {"on_progress": call.context.progress}, None
        # As in most clients the id of a request with progress is its token: some servers take one
        # for the other.
        token = self.calls.token(call)
        return {"request_id": token}, token

    async def _prepared(self, level: str | None) -> Dispatcher:
        """The dispatcher, once the session is open, and the server logs from a level on."""
        dispatcher = await self._woken()
        if level is not None:
            await self._threshold.lower(level, self.request)
        return dispatcher

    async def _woken(self) -> Dispatcher:
        """The dispatcher, once a session that rests is open again."""
        if self.dispatcher is None and self.awake is not None:
            await self.awake()
        if self.dispatcher is None:
            raise errors.UpstreamUnavailableError(self.link.name, json_rpc.ENDED, sent=False)
        return self.dispatcher

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        context: ToolContext | None = None,
        opts: CallOptions | None = None,
    ) -> dict[str, Any]:
        dispatcher, closed = self.dispatcher or await self._woken(), self.closed
        opts = opts or {}
        self._stamp.put(method, params, context, opts)
        try:
            answer = await dispatcher.send_raw_request(method, params, opts)
        except json_rpc.RequestTimedOut:
            raise TimeoutError from None
        except json_rpc.MCPError as fault:
            # Pages are for calls, whose clients get them checked.
            is_page = fault.code == json_rpc.URL_ELICITATION_REQUIRED
            told = json_rpc.MCPError(json_rpc.INTERNAL_ERROR, fault.message) if is_page else fault
            raise self._translated(told, dispatcher, closed) from None
        self.health.heard()
        return answer

    async def _check(self) -> None:
        await self.request(
            "server/discover" if self.modern else "ping", {}, opts={"cancel_on_abandon": False}
        )

    @property
    def is_read(self) -> bool:
        """True if messages are read at the moment; not while a client has no room for an answer."""
        return not getattr(self.dispatcher, "paced", False)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        if self.dispatcher is not None:
            await self.dispatcher.notify(method, params, self._stamp.of_notification(method))

    def _translated(
        self, fault: json_rpc.MCPError, dispatcher: Dispatcher | None, closed: anyio.Event
    ) -> errors.UpstreamError:
        """The error of an answer as ours; what the transport made up is not told as the upstream's."""
        if json_rpc.says_ended(fault) or closed.is_set():
            if dispatcher is self.dispatcher:
                self.on_lost()
            silent = self.health.fault
            reason = f"{silent}; the call may have run and was not repeated" if silent else json_rpc.LOST
            return errors.UpstreamUnavailableError(self.link.name, reason)
        if self.link.facts.breaks_requests and json_rpc.says_broke_off(fault):
            self.on_broken_off()
            told = json_rpc.lost_by(fault)
            return errors.UpstreamUnavailableError(
                self.link.name,
                f"{told} ({self.link.secrets.scrubbed(fault.message)})",
                sent=told != json_rpc.UNREACHED,
            )
        self.health.heard()
        message = self.link.secrets.scrubbed(json_rpc.told_briefly(fault.message))
        if missing := missing_extensions(fault.code, fault.data):
            message += f"; it runs only with {missing}, which was not declared to it"
        data = self.link.secrets.cleaned(fault.data) if self.link.secrets.takes(fault.data) else LEFT_OUT
        return errors.UpstreamProtocolError(self.link.name, fault.code, message, data, plain=self.link.plain)


@contextmanager
def _within(seconds: float, call: CallInFlight) -> Generator[None]:
    """Time a call here, because its time may stand still: `TimeoutError` when it is over."""
    with anyio.fail_after(None) as scope:
        call.time = WorkingTime(scope)
        call.time.give(seconds)
        yield


def _nothing() -> None:
    return None


MAX_PAGES: Final = 200
MAX_TOOLS: Final = 20_000  # where a listing that never ends is cut
MARGIN: Final = 0.25  # part of the time of a listing that is kept for judging what was cut

Fetch = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(slots=True)
class PagedList:
    """A list that is read page by page."""

    method: str = "tools/list"  # the method that lists, and `key` the key of the list in its answers
    key: str = "tools"
    tools: list[Any] = field(default_factory=list[Any])  # the entries in wire form, as untrusted as they come
    complete: bool = False  # `False` when a cap on pages, tools or time ended the walk
    hint: eras.CacheHint = eras.STRICTEST  # how long the whole may be kept: the strictest of its pages
    began: float = float("-inf")  # the time of the event loop from which the hint counts
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    async def walk(self, server: str, request: Fetch, limit: float) -> None:
        """Ask a server for page after page, for `limit` seconds at most.

        Raises `UpstreamProtocolError` for an answer without a list.
        """
        self.began = anyio.current_time()
        until = min(anyio.current_effective_deadline(), anyio.current_time() + limit)
        with anyio.CancelScope(deadline=until - MARGIN * limit) as waiting:
            await self._pages(server, request)
        if waiting.cancelled_caught and not self.tools:
            raise TimeoutError

    def names(self) -> list[str]:
        entries = (cast("dict[str, Any]", entry) for entry in self.tools if isinstance(entry, dict))
        return [name for entry in entries if isinstance(name := entry.get("name"), str)]

    async def _pages(self, server: str, request: Fetch) -> None:
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            page = await request(self.method, {"cursor": cursor} if cursor else {})
            hint = eras.CacheHint.of(page)
            self.hint = eras.strictest([self.hint, hint]) if seen else hint
            entries: Any = page.get(self.key)
            if not isinstance(entries, list):
                told = f"its answer to {self.method} has no list of {self.key}"
                raise errors.UpstreamProtocolError(server, json_rpc.INVALID_REQUEST, told)
            eras.drop_own(page)
            self.meta = {**eras.own_meta(page.get("_meta")), **self.meta}
            self.tools.extend(cast("list[Any]", entries)[: MAX_TOOLS - len(self.tools)])
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                self.complete = True
                return
            if cursor in seen or len(self.tools) >= MAX_TOOLS:
                return
            seen.add(cursor)


def usable_over_http(snapshot: CatalogSnapshot) -> CatalogSnapshot:
    """A snapshot without the tools whose `x-mcp-header` annotations name no header (basic/transports)."""
    faults = {name: header_fault(tool.definition.input_schema) for name, tool in snapshot.tools.items()}
    refused = tuple((name, f"tool {name!r}: {fault}") for name, fault in faults.items() if fault)
    if not refused:
        return snapshot
    tools = {name: tool for name, tool in snapshot.tools.items() if not faults[name]}
    return replace(snapshot, tools=tools, set_aside=(*snapshot.set_aside, *refused))


IDLE: Final = 300.0  # seconds without a call after which a session is closed


class OtherEraError(Exception):
    """The server does not speak the era of this session; nothing of the call was sent."""


@dataclass(eq=False, slots=True)
class PooledSession:
    """A session of the pool, and who uses it."""

    key: routing.SessionKey  # whom it is for and what it declares
    serial: int  # its number, in the order in which sessions were opened
    session: UpstreamSession  # the session itself
    used_at: float  # when its last call ended, a time of the event loop
    unsaid: tuple[str, ...] = ()  # what the session that lists declares and this one does not
    idle: float | None = None  # seconds without a call after which it is closed; `None` for `IDLE`
    users: int = 0  # how many calls are in flight in it
    owner: str | None = None  # the client whose calls they are, where clients take turns
    called: bool = False  # whether a client has called anything in it, so that its lists may be its own
    holds: int = 0  # the subscriptions that keep it open
    stays: bool = False  # whether it is kept without calls, because it lists what no other session lists
    retired: bool = False  # whether it takes no more calls
    fault: str = ""  # why it could not be opened, or has ended
    refused: bool = False  # whether the server refused its era
    listed: frozenset[str] = frozenset()  # the tools that it listed when it was last asked for them
    open: anyio.Event = field(default_factory=anyio.Event)  # set once calls go through it, or never will
    ended: anyio.Event = field(default_factory=anyio.Event)  # set once it is closed
    wake: anyio.Event = field(default_factory=anyio.Event)

    def takes(self, owner: str | None) -> bool:
        if self.retired:
            return False
        return not self.key.turns or not self.users or (owner is not None and owner == self.owner)

    def retire(self) -> None:
        self.retired = True
        self.wake.set()

    async def opened(self) -> UpstreamSession:
        # To wait for what is there takes a turn of the event loop.
        if not self.open.is_set():
            await self.open.wait()
        if self.refused:
            raise OtherEraError(self.fault)
        if self.fault:
            raise errors.UpstreamUnavailableError(
                self.session.link.name,
                f"no session for this client could be opened: {self.fault}",
                sent=False,
            )
        return self.session

    async def check_offered(self, tool: str, within: float) -> None:
        """Refuse a tool that was listed because more was declared than this session's callers can do."""
        # What the session once listed is taken to be there; what it did not is asked for again.
        if not self.unsaid or tool in self.listed:
            return
        name, listing = self.session.link.name, PagedList()
        try:
            await listing.walk(name, self.session.request, within)
        except TimeoutError:
            raise errors.UpstreamTimeoutError(name, "it listed no tools in time", sent=False) from None
        self.listed = frozenset(listing.names())
        if listing.complete and tool not in self.listed:
            raise errors.CallError(
                f"{name}: {tool} is not offered to clients like this one, which has not declared "
                f"{' or '.join(self.unsaid)}; nothing was sent"
            )

    async def until_unused(self, closed: anyio.Event) -> None:
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await closed.wait()
                group.cancel_scope.cancel()

            async def watch_health() -> None:
                self.fault = await self.session.health.lost()
                self.retire()
                group.cancel_scope.cancel()

            group.start_soon(watch)
            group.start_soon(watch_health)
            while not (self.retired and not self.users):
                self.wake = anyio.Event()
                with anyio.move_on_after(self._rest()):
                    await self.wake.wait()
                if not self.is_kept and anyio.current_time() - self.used_at >= self._until_idle:
                    break
            self.retired = True
            group.cancel_scope.cancel()

    @property
    def is_kept(self) -> bool:
        return bool(self.users or self.holds or self.stays)

    def _rest(self) -> float:
        after = self._until_idle
        return after if self.is_kept else max(0.0, self.used_at + after - anyio.current_time())

    @property
    def _until_idle(self) -> float:
        return IDLE if self.idle is None else self.idle


MAX_SESSIONS: Final = 32  # with one upstream, beside the one that lists; further callers wait
OWN_SESSIONS: Final = 8  # sessions that calls and subscriptions of one caller may hold at once

MAX_ALIKE: Final = 4
"""Sessions whose callers take turns and are alike; a further one is opened for who has waited `TURN`."""

TURN: Final = 1.0  # seconds that a call waits for its turn before it is given a session of its own
Ended = Callable[[PooledSession], None]  # is told that a session has ended

Heard = Callable[[PooledSession, str, Mapping[str, Any] | None], bool]
"""Takes in a notification of a session; `True` says that it is dealt with."""


class SessionPool:
    """The sessions with one upstream that are for some of its callers."""

    def __init__(
        self,
        link: Link,
        *,
        options: routing.SessionOptions,
        start_timeout: float,
        forwards: bool,
        shows: Sequence[Asked] = (),
    ) -> None:
        self._shows = shows
        self._link = link
        self.start_timeout = start_timeout  # seconds that opening one may take
        self.routing = routing.Routing(link, options, forwards=forwards)  # which session each request takes
        self.routing.start = self.start
        self._sessions: dict[int, PooledSession] = {}
        self._ready: dict[routing.SessionKey, PooledSession] = {}
        self._serials = count(1)
        self._freed: anyio.Event | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._context: Context = copy_context()
        self.on_broken_off: Callable[[], None] = lambda: None
        self.on_silence: Callable[[float], None] = lambda waited: None
        self.on_heard: Heard = _nobody
        self.on_stir: Callable[[], None] = lambda: None
        self.idle: float | None = None
        self.is_asleep: Callable[[], bool] = lambda: False  # the server is stopped until a call
        self.uses_listing = False  # whether the session that lists was used
        self.on_ended: Ended = lambda pooled: None
        self._log = logging.getLogger(f"mcp_toolset.upstream.{link.name}")
        self.routing.on_clients = lambda: self.on_stir()

    def __len__(self) -> int:
        return len(self._sessions)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[anyio.abc.TaskGroup]:
        # An owner must not inherit the call that it was started by, or all it hears would be that call's.
        self._context = copy_context()
        # An earlier opening may have waited on another event loop.
        self._freed = None
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield group
            finally:
                self._group = None
                self.routing.forget_clients()
                group.cancel_scope.cancel()

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        if self._group is None:
            raise errors.UpstreamUnavailableError(self._link.name, "the server is closed", sent=False)
        self._context.run(self._group.start_soon, function, *arguments)

    @property
    def listens(self) -> bool:
        return self._group is not None and self.routing.settled and not self.is_asleep()

    @property
    def stands_in(self) -> bool:
        """True if sessions of clients tell every client that has listed what the listing one would."""
        # What is listed to clients that can be asked nothing is told by the one that lists alone.
        if self.routing.options.shows:
            return False
        there = {
            each.key.shelf
            for each in self._sessions.values()
            if each.open.is_set()
            and not (each.retired or each.key.single)
            and each.key.declares != routing.NOTHING_DECLARED
        }
        return bool(there) and self.routing.all_in(there)

    @property
    def is_kept(self) -> bool:
        return any(each.is_kept for each in self._sessions.values())

    @property
    def silence(self) -> str:
        """Why the calls of some clients fail at once; empty while all sessions answer."""
        faults = (each.session.health.fault for each in self._sessions.values() if not each.retired)
        return next((f"a session of some clients fails: {fault}" for fault in faults if fault), "")

    def retire(self) -> None:
        """Begin anew, because the upstream has: no call is cut off, and none is added to an old session."""
        for pooled in self._sessions.values():
            pooled.retire()

    async def lease(
        self, key: routing.SessionKey, caller: WireContext | None, *, within: float
    ) -> PooledSession:
        owner = None if caller is None else caller.client_key
        pooled = self._ready.get(key)
        if pooled is not None and pooled.takes(owner):
            pooled.users += 1
            pooled.owner = owner
        else:
            pooled = await self.take(key, caller, within=within)
        pooled.called = True
        return pooled

    def standing(self, key: routing.SessionKey) -> PooledSession | None:
        pooled = self._ready.get(key)
        return None if pooled is None or pooled.retired else pooled

    async def take(
        self, key: routing.SessionKey, caller: WireContext | None, *, within: float
    ) -> PooledSession:
        try:
            with anyio.fail_after(within):
                return await self._taken(key, caller)
        except TimeoutError:
            own = self._is_share_taken(key)
            which = f"the {OWN_SESSIONS} sessions that one caller may have" if own else "all its sessions"
            told = f"{which} stayed in use for {within:g} s; nothing was sent"
            raise errors.UpstreamTimeoutError(self._link.name, told, sent=False) from None

    def give_back(self, pooled: PooledSession) -> None:
        pooled.users -= 1
        pooled.used_at = asyncio.get_running_loop().time()
        if pooled.key.single:
            pooled.retired = True
        if pooled.retired:
            pooled.wake.set()
        if self._freed is not None:
            self._tell_waiting()

    async def _taken(self, key: routing.SessionKey, caller: WireContext | None) -> PooledSession:
        owner = None if caller is None else caller.client_key
        until = anyio.current_time() + TURN
        while True:
            found = None if key.single else self._free(key, owner)
            left = until - anyio.current_time() if key.turns and self._alike(key) else 0.0
            if found is None and left <= 0 and self._has_room(key):
                found = self._begun(key, caller)
            if found is not None:
                found.users += 1
                found.owner = owner
                return found
            if self._freed is None:
                self._freed = anyio.Event()
            with anyio.move_on_after(left if left > 0 else None):
                await self._freed.wait()

    def _alike(self, key: routing.SessionKey) -> list[PooledSession]:
        return [each for each in self._sessions.values() if each.key == key and not each.retired]

    def _free(self, key: routing.SessionKey, owner: str | None) -> PooledSession | None:
        """The oldest that fits: calls one after another find the same server process."""
        return next((each for each in self._alike(key) if each.takes(owner)), None)

    def _has_room(self, key: routing.SessionKey) -> bool:
        most = 1 if self.routing.options.sessions == "capabilities" else MAX_ALIKE
        if key.turns and len(self._alike(key)) >= most:
            return False
        if self._is_share_taken(key):
            return False
        if len(self._sessions) < MAX_SESSIONS:
            return True
        idle = [each for each in self._sessions.values() if not (each.users or each.holds or each.retired)]
        if idle:
            min(idle, key=lambda each: (each.stays, each.used_at)).retire()
        return False

    def _is_share_taken(self, key: routing.SessionKey) -> bool:
        own = (each for each in self._sessions.values() if key.share and each.key.share == key.share)
        return sum(bool(each.users or each.holds) for each in own) >= OWN_SESSIONS

    def _begun(self, key: routing.SessionKey, caller: WireContext | None) -> PooledSession:
        client = caller.client if key.client and caller is not None else None
        link = self._link
        if key.credentials and caller is not None:
            link = replace(link, headers=_with_credentials(link.headers, caller.authorization or ""))
        session = UpstreamSession(link, declares=json.loads(key.declares), client=client)
        unsaid = tuple(name for name in self._shows if name not in session.declares)
        pooled = PooledSession(key, next(self._serials), session, anyio.current_time(), unsaid, self.idle)
        session.on_lost = pooled.retire
        session.on_broken_off = self.on_broken_off
        session.health.on_change = lambda: self.on_silence(session.health.waited)
        self.start(self._own, pooled, client)
        self._sessions[pooled.serial] = pooled
        return pooled

    async def _own(self, pooled: PooledSession, client: ServedClient | None) -> None:
        endings = (
            [client.gone.add(pooled.retire), client.roots_changed.add(self._roots_of(pooled))]
            if client
            else []
        )
        stderr = StderrTail(self._link.name, self._link.secrets.scrubbed)
        timeout = self.start_timeout

        async def heard(method: str, params: Mapping[str, Any] | None) -> bool:
            return self.on_heard(pooled, method, params)

        try:
            with anyio.fail_after(timeout) as starting:
                async with pooled.session.connected(stderr, heard) as dispatcher:
                    await pooled.session.begin(dispatcher, "legacy")
                    starting.deadline = float("inf")
                    self.routing.learn({"legacy": True})
                    if not pooled.key.single:
                        self._ready.setdefault(pooled.key, pooled)
                    pooled.open.set()
                    self.on_stir()
                    await pooled.until_unused(pooled.session.closed)
        except TimeoutError:
            self._failed(pooled, stderr.explained(f"no answer within {timeout:g} s"))
        # As many kinds of failure as there are transports and servers; all mean that it has ended.
        except Exception as fault:
            self._failed(pooled, stderr.explained(json_rpc.reason_of(fault)), fault)
        finally:
            for end in endings:
                end()
            self._forget(pooled)

    def _failed(self, pooled: PooledSession, reason: str, fault: Exception | None = None) -> None:
        pooled.fault = reason
        self._log.info("a session has ended: %s", in_log(reason))
        if pooled.open.is_set() or not self.routing.is_modern:
            return
        # The server works in the other era, so the call goes there.
        pooled.refused = self.routing.legacy_failed(None if fault is None else errors.innermost(fault))

    def _forget(self, pooled: PooledSession) -> None:
        pooled.retired = True
        pooled.fault = pooled.fault or "it has ended"
        pooled.open.set()
        pooled.ended.set()
        del self._sessions[pooled.serial]
        if self._ready.get(pooled.key) is pooled:
            del self._ready[pooled.key]
            for other in self._alike(pooled.key):
                if other.open.is_set():
                    self._ready[pooled.key] = other
                    break
        self.on_ended(pooled)
        self.on_stir()
        self._tell_waiting()

    def _roots_of(self, pooled: PooledSession) -> Callable[[], None]:
        def changed() -> None:
            if "roots" in pooled.session.declares:
                self.start(pooled.session.notify, "notifications/roots/list_changed")

        return changed

    def _tell_waiting(self) -> None:
        if self._freed is not None:
            self._freed.set()
            self._freed = None


def _with_credentials(headers: Mapping[str, str], authorization: str) -> dict[str, str]:
    kept = {name: value for name, value in headers.items() if name.lower() != "authorization"}
    return {**kept, "Authorization": authorization}


def _nobody(pooled: PooledSession, method: str, params: Mapping[str, Any] | None) -> bool:
    """Changes are taken in from the session that lists."""
    return method.endswith("list_changed")
