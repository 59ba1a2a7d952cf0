"""`UpstreamSession`: one connection to an upstream, from the handshake to its end, and the calls in it."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any, Final

import anyio

from mcp_toolset.calls.observers import CURRENT
from mcp_toolset.concurrency.tasks import TaskSet, WorkingTime, given_up
from mcp_toolset.config.tables import Era, ProtocolRule
from mcp_toolset.context.connection import ServedClient, with_extensions
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.spans import note_sent
from mcp_toolset.errors import (
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol.dispatch import NOT_AWAITED, CallOptions, Dispatcher, Started
from mcp_toolset.protocol.eras import final_result, forwarded_meta, modern_envelope
from mcp_toolset.protocol.http_headers import header_map, routing_headers
from mcp_toolset.protocol.json_rpc import (
    ENDED,
    INTERNAL_ERROR,
    LOST,
    UNREACHED,
    URL_ELICITATION_REQUIRED,
    MCPError,
    RequestTimedOut,
    lost_by,
    says_broke_off,
    says_ended,
    told_briefly,
)
from mcp_toolset.protocol.methods import (
    CLIENT_CAPABILITIES_META_KEY,
    LOG_LEVEL_META_KEY,
    LOG_LEVELS,
    is_modern,
)
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.transports.stdio_client import StderrTail
from mcp_toolset.upstream.in_flight import CallInFlight, CallsInFlight, SessionHealth, StandIn, carried_to
from mcp_toolset.upstream.known_server import ServerInfo
from mcp_toolset.upstream.questions import ClientQuestions, Notified, ServerMessages, missing_extensions
from mcp_toolset.upstream.routing import CLIENT_INFO, negotiate
from mcp_toolset.upstream.secrets import LEFT_OUT
from mcp_toolset.upstream.target import Link

_NO_HEADERS: Final[Mapping[tuple[str, ...], str]] = {}

OWN_EXTENSIONS: Final = "mcp-toolset/extensions"
"""In the `_meta` of a request before it is sent: `OwnExtensions`. A value of a client's is left out."""


class OwnExtensions(dict[str, Any]):
    """The extensions that the bridge itself takes, by name, whether the caller has declared them or not."""


HEARD_BY_DEFAULT: Final = "info"
"""What a modern upstream sends to a legacy client that has set no level: there the server decides."""


def _asked(context: ToolContext, stand_in: StandIn | None) -> Mapping[str, Any]:
    """The keys of a modern envelope that are the caller's own: what it answers, what it wants to hear."""
    if not isinstance(context, WireContext):
        if stand_in is None:
            return context.meta
        return {**context.meta, CLIENT_CAPABILITIES_META_KEY: {stand_in.capability: {}}}
    declared = carried_to(stand_in, context.carried)
    if context.modern:
        return {**context.meta, CLIENT_CAPABILITIES_META_KEY: declared}
    return {CLIENT_CAPABILITIES_META_KEY: declared, LOG_LEVEL_META_KEY: context.log_level or HEARD_BY_DEFAULT}


class RequestStamp:
    """Puts `_meta` and headers on the requests of one session."""

    def __init__(self, link: Link, *, shows: Mapping[str, Any], forwards_credentials: bool) -> None:
        self._link = link
        self._stand_in: StandIn | None = link.stand_in
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
        meta = forwarded_meta(context.meta) if context is not None else {}
        if "_meta" in params:
            meta |= params["_meta"]
        if self._modern:
            asked = self._shown if context is None else _asked(context, self._stand_in)
            meta.update(modern_envelope(self._version, CLIENT_INFO, asked))
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
        except UpstreamProtocolError:
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
            raise UpstreamUnavailableError(
                self.link.name, f"{self.health.fault}; the call did not run", sent=False
            )
        dispatcher, closed = self.dispatcher, self.closed
        opts, token = self._options(call)
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
            return answer if self.modern or "resultType" not in answer else final_result(answer)
        except (TimeoutError, RequestTimedOut):
            self.health.missed(seconds)
            raise UpstreamTimeoutError(
                self.link.name, f"no answer within {seconds:g} s; it was told to cancel", sent=sent
            ) from None
        except MCPError as fault:
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
        """How the progress of a call is reported, and its token on a wire."""
        if not call.context.wants_progress:
            return {}, None
        if self.link.facts.in_process:
            return {"on_progress": call.context.progress}, None
        # As in most clients the id of a request with progress is its token: some servers take one
        # for the other.
        token = self.calls.token(call)
        return {"request_id": token}, token

    async def _prepared(self, level: str | None) -> Dispatcher:
        """What sends, once the session is open, and the server logs from a level on."""
        dispatcher = await self._woken()
        if level is not None:
            await self._threshold.lower(level, self.request)
        return dispatcher

    async def _woken(self) -> Dispatcher:
        """What sends, once a session that rests is open again."""
        if self.dispatcher is None and self.awake is not None:
            await self.awake()
        if self.dispatcher is None:
            raise UpstreamUnavailableError(self.link.name, ENDED, sent=False)
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
        except RequestTimedOut:
            raise TimeoutError from None
        except MCPError as fault:
            # Pages are for calls, whose clients get them checked.
            is_page = fault.code == URL_ELICITATION_REQUIRED
            told = MCPError(INTERNAL_ERROR, fault.message) if is_page else fault
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
        self, fault: MCPError, dispatcher: Dispatcher | None, closed: anyio.Event
    ) -> UpstreamError:
        """The error of an answer as ours; what the transport made up is not told as the upstream's."""
        if says_ended(fault) or closed.is_set():
            if dispatcher is self.dispatcher:
                self.on_lost()
            silent = self.health.fault
            reason = f"{silent}; the call may have run and was not repeated" if silent else LOST
            return UpstreamUnavailableError(self.link.name, reason)
        if self.link.facts.breaks_requests and says_broke_off(fault):
            self.on_broken_off()
            told = lost_by(fault)
            return UpstreamUnavailableError(
                self.link.name, f"{told} ({self.link.scrubbed(fault.message)})", sent=told != UNREACHED
            )
        self.health.heard()
        message = self.link.scrubbed(told_briefly(fault.message))
        if missing := missing_extensions(fault.code, fault.data):
            message += f"; it runs only with {missing}, which was not declared to it"
        data = self.link.cleaned(fault.data) if self.link.secrets.takes(fault.data) else LEFT_OUT
        return UpstreamProtocolError(self.link.name, fault.code, message, data, plain=self.link.plain)


@contextmanager
def _within(seconds: float, call: CallInFlight) -> Generator[None]:
    """Time a call here, because its time may stand still: `TimeoutError` when it is over."""
    with anyio.fail_after(None) as scope:
        call.time = WorkingTime(scope)
        call.time.give(seconds)
        yield


def _nothing() -> None:
    return None
