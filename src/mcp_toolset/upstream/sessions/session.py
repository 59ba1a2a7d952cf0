"""`UpstreamSession`: one connection to an upstream, from the handshake to its end, and the calls in it."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any, Final

import anyio

from mcp_toolset.calls.pipeline.observers import CURRENT
from mcp_toolset.concurrency.cancel_reason import given_up
from mcp_toolset.concurrency.deadlines import WorkingTime
from mcp_toolset.concurrency.task_set import TaskSet
from mcp_toolset.config import Era, ProtocolRule
from mcp_toolset.context.client import ServedClient
from mcp_toolset.context.spans import note_sent
from mcp_toolset.errors import (
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol.dispatch import NOT_AWAITED, CallOptions, Dispatcher, Started
from mcp_toolset.protocol.errors import (
    ENDED,
    LOST,
    UNREACHED,
    lost_by,
    says_broke_off,
    says_ended,
    told_briefly,
)
from mcp_toolset.protocol.json_rpc import (
    INTERNAL_ERROR,
    URL_ELICITATION_REQUIRED,
    MCPError,
    RequestTimedOut,
)
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.transports.stderr import StderrTail
from mcp_toolset.upstream.known_server import ServerInfo
from mcp_toolset.upstream.secrets import LEFT_OUT
from mcp_toolset.upstream.sessions.call_in_flight import CallInFlight
from mcp_toolset.upstream.sessions.client_questions import Notified, Questions, ServerMessages
from mcp_toolset.upstream.sessions.handshake import negotiate
from mcp_toolset.upstream.sessions.health import Health
from mcp_toolset.upstream.sessions.in_flight import CallsInFlight
from mcp_toolset.upstream.sessions.question_shapes import missing_extensions
from mcp_toolset.upstream.sessions.request_stamp import LogThreshold, RequestStamp
from mcp_toolset.upstream.target import Link

_NOTHING: Final[Mapping[str, Any]] = {}
_TIMED_BY_DISPATCHER: Final = nullcontext()

_log = logging.getLogger("mcp_toolset.upstream")


class UpstreamSession:
    """One session: what it declared, the revision it speaks, and the calls in flight in it.

    Attributes:
        link: How the upstream is reached.
        declares: The requests to a client that it said would be answered (legacy).
        calls: The calls in flight.
        questions: The way of what the upstream asks in them.
        dispatcher: What sends; `None` before it is open, and once it is given up.
        closed: Set when its connection has ended.
        protocol_version: The revision that was settled.
        modern: Whether that is 2026-07-28 or later.
        server: What the upstream says that it is.
        capabilities: What the upstream declares, in wire form; `None` before it is known.
        instructions: What the upstream tells models.
        awake: Opens it again for a request, if it only rests.
        health: Whether the upstream still answers in it.
    """

    def __init__(
        self,
        link: Link,
        *,
        declares: Mapping[str, Any] = _NOTHING,
        client: ServedClient | None = None,
        forwards_credentials: bool = False,
        shows: Mapping[str, Any] = _NOTHING,
    ) -> None:
        """Describe a session.

        Args:
            link: How the upstream is reached.
            declares: What can be asked of those whom it is for.
            client: The one client that it is for, if it is for one alone.
            forwards_credentials: Whether callers' own credentials are sent on.
            shows: What is declared besides, for the sake of what is listed; no client is asked for it.
        """
        self._stamp = RequestStamp(link, shows=shows, forwards_credentials=forwards_credentials)
        self._shows = shows
        self.link = link
        self.declares = declares
        self.calls = CallsInFlight()
        if client is not None:
            self.calls.outside.client_is(client)
        self.questions = Questions(link, self.calls, declares, client, link.stand_in)
        self.dispatcher: Dispatcher | None = None
        self.closed = anyio.Event()
        self.protocol_version: str | None = None
        self.modern = False
        self.server: ServerInfo | None = None
        self.capabilities: Mapping[str, Any] | None = None
        self.instructions = ""
        self.awake: Callable[[], Awaitable[None]] | None = None
        self.on_lost: Callable[[], None] = _nothing
        self.on_broken_off: Callable[[], None] = _nothing
        self.health = Health(self._check, lambda: self.is_read)
        self._messages = ServerMessages(link, self.calls, self.questions, self.health)
        self._threshold = LogThreshold()
        self._keeps_time = False

    @asynccontextmanager
    async def connected(self, stderr: StderrTail, notified: Notified) -> AsyncGenerator[Dispatcher]:
        """The connection, whose messages are taken; nothing is said on it yet."""
        async with self.link.open(stderr) as dispatcher:
            # Notifications are handed over in callbacks of the loop, where a task group can start nothing.
            sending = TaskSet(self._not_sent)
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
        """Take what the server sends until its connection ends."""
        closed = self.closed = anyio.Event()
        messages = self._messages
        messages.notified = notified
        of_a_call = None if self.link.facts.in_process else messages.take_of_call
        try:
            await dispatcher.run(messages.answer, messages.take, of_a_call, task_status=task_status)
        finally:
            closed.set()

    def _not_sent(self) -> None:
        _log.error("forwarding notifications to clients has stopped")

    async def begin(self, dispatcher: Dispatcher, era: str | None, protocol: ProtocolRule = "auto") -> Era:
        """Settle the revision; returns the era, to be remembered."""
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
        call: CallInFlight,
        method: str,
        params: dict[str, Any],
        *,
        seconds: float,
        slots: anyio.Semaphore,
        tool: ToolDefinition | None = None,
    ) -> dict[str, Any]:
        """Send one request of a client, once; progress and questions go back to the client.

        Args:
            call: The call, counted among `calls` already.
            method: The method of the request.
            params: Its parameters.
            seconds: How long the upstream may work on it; the client's own time does not count.
            slots: How many requests of clients the upstream is given at once.
            tool: The tool that is called, for the headers that its schema asks for.
        """
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
            return answer
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
        """Send a request of the bridge itself."""
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
        """Ask for something that every server answers at once.

        Raises:
            UpstreamUnavailableError: the session was lost.
            UpstreamProtocolError: the upstream answered with an error, which is an answer.
        """
        await self.request(
            "server/discover" if self.modern else "ping", {}, opts={"cancel_on_abandon": False}
        )

    @property
    def is_read(self) -> bool:
        """Whether messages are read at the moment; not while a client has no room for an answer."""
        return not getattr(self.dispatcher, "paced", False)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification, if it is open."""
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
