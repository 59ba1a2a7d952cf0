"""`UpstreamSession`: one connection to an upstream, from the handshake to its end, and the calls in it."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, cast

import anyio
import mcp_types as types

from mcp_toolset.concurrency.cancel_reason import given_up
from mcp_toolset.concurrency.deadlines import WorkingTime
from mcp_toolset.concurrency.task_set import Handling
from mcp_toolset.config import ProtocolRule
from mcp_toolset.context.client import ServedClient
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import (
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol.connection_faults import LOST, lost_by, says_broke_off, says_ended, told_briefly
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.protocol.eras import LOG_LEVELS, is_modern
from mcp_toolset.protocol.json_rpc import URL_ELICITATION_REQUIRED, MCPError, RequestTimedOut
from mcp_toolset.sdk.dispatch import ObservedDispatcher
from mcp_toolset.sdk.models import ClientSession
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.transports.stderr import StderrTail
from mcp_toolset.upstream.sessions.call_in_flight import CallInFlight
from mcp_toolset.upstream.sessions.client_questions import Questions
from mcp_toolset.upstream.sessions.handshake import negotiate
from mcp_toolset.upstream.sessions.health import Health
from mcp_toolset.upstream.sessions.in_flight import CallsInFlight
from mcp_toolset.upstream.sessions.request_stamp import CLIENT, RequestStamp
from mcp_toolset.upstream.sessions.unsupported import missing_extensions
from mcp_toolset.upstream.target import Link

_NOTHING: Final[Mapping[str, Any]] = {}

Notified = Callable[[str, Mapping[str, Any] | None], Awaitable[bool]]
_log = logging.getLogger("mcp_toolset.upstream")


class UpstreamSession:
    """One session: what it declared, the revision it speaks, and the calls under way in it.

    Attributes:
        link: How the upstream is reached.
        declares: The requests to a client that it said would be answered (legacy).
        calls: The calls under way.
        questions: The way of what the upstream asks in them.
        dispatcher: What sends; `None` before it is open.
        protocol_version: The revision that was settled.
        server: What the upstream says about itself.
        capabilities: What the upstream declares.
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
            shows: What is declared besides, for the sake of what is listed; nobody is asked for it.
        """
        self._stamp = RequestStamp(link, shows=shows, forwards_credentials=forwards_credentials)
        self._says = {**shows, **declares}
        self.link = link
        self.declares = declares
        self.calls = CallsInFlight()
        if client is not None:
            self.calls.outside.client_is(client)
        self.questions = Questions(link.name, self.calls, declares, client)
        self.dispatcher: ObservedDispatcher | None = None
        self.protocol_version: str | None = None
        self.server: types.Implementation | None = None
        self.capabilities: types.ServerCapabilities | None = None
        self.awake: Callable[[], Awaitable[None]] | None = None
        self.on_lost: Callable[[], None] = _nothing
        self.on_broken_off: Callable[[], None] = _nothing
        self.health = Health(self._check, self._reads)
        self._log_level: str | None = None

    @property
    def modern(self) -> bool:
        """Whether it speaks 2026-07-28 or later."""
        return is_modern(self.protocol_version)

    @asynccontextmanager
    async def connected(
        self, stderr: StderrTail, notified: Notified
    ) -> AsyncGenerator[tuple[ClientSession, ObservedDispatcher]]:
        """The transport and the SDK's session over it; nothing is said on it yet."""
        async with self.link.open(stderr) as inner:
            dispatcher = ObservedDispatcher(
                inner,
                None if self.link.facts.in_process else self._of_a_call,
                partial(self._notified, notified),
                self.questions.put,
                self._says,
            )
            # Notifications are handed over in callbacks of the loop, where a task group can start nothing.
            sending = Handling(self._not_sent)
            try:
                with self.calls.told_by(sending.begin):
                    async with ClientSession(dispatcher=dispatcher, client_info=CLIENT) as session:  # pyright: ignore[reportArgumentType]
                        yield session, dispatcher
            finally:
                await sending.end()

    def _not_sent(self) -> None:
        _log.error("notifications to clients are not sent on any more")

    async def begin(
        self,
        session: ClientSession,
        dispatcher: ObservedDispatcher,
        era: str | None,
        protocol: ProtocolRule = "auto",
    ) -> str:
        """Settle the revision; returns the era, to be remembered.

        Raises:
            MCPError: the server refused, or the connection broke.
        """
        era = await negotiate(session, dispatcher, era, protocol)
        self.protocol_version = session.protocol_version
        self.server = session.server_info
        self.capabilities = session.server_capabilities
        self._log_level = None
        self.dispatcher = dispatcher
        return era

    def _of_a_call(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Have a notification of a call sent on to its client; `False` if it is none."""
        self.health.heard()
        return self.calls.take(method, self.link.cleaned(params))

    async def _notified(self, notified: Notified, method: str, params: Mapping[str, Any] | None) -> bool:
        self.health.heard()
        if method == "notifications/elicitation/complete":
            await self.questions.page_done(params)
        elif not await notified(method, params):
            if method == "notifications/progress":
                return False
            await self.calls.notify(method, self.link.cleaned(params))
        return True

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

        Raises:
            UpstreamUnavailableError: the session was lost.
            UpstreamTimeoutError: no answer within the deadline; it was told to cancel.
            UpstreamProtocolError: it answered with a protocol error.
        """
        if self.health.fault:
            raise UpstreamUnavailableError(self.link.name, f"{self.health.fault}; the call did not run")
        opts: CallOptions = {}
        token = None
        began = time.monotonic()
        call.answered = False
        if call.context.wants_progress:
            if self.link.facts.in_process:
                opts["on_progress"] = call.context.progress
            else:
                # As in most clients the id of a request with progress is its token: some servers take one
                # for the other.
                token = opts["request_id"] = self.calls.token(call)
        why = given_up.set(call.reason)
        try:
            if slots.value and self._keeps_time_of(call):
                opts["timeout"] = seconds
                slots.acquire_nowait()
                try:
                    return await self.request(
                        method, params, context=call.context, opts=opts, tool=tool, token=token
                    )
                finally:
                    slots.release()
            return await self._in_time(call, method, params, opts, token, seconds, slots, tool)
        except TimeoutError:
            self.health.missed(seconds)
            raise UpstreamTimeoutError(
                self.link.name, f"no answer within {seconds:g} s; it was told to cancel"
            ) from None
        except anyio.get_cancelled_exc_class():
            self.health.given_up(time.monotonic() - began)
            raise
        except UpstreamProtocolError as fault:
            self._note_pages(fault, call)
            raise
        finally:
            given_up.reset(why)
            if token is not None:
                self.calls.give_back(token)
            call.answered = True
            if call.has_notifications:
                await call.told()

    async def _in_time(
        self,
        call: CallInFlight,
        method: str,
        params: dict[str, Any],
        opts: CallOptions,
        token: str | None,
        seconds: float,
        slots: anyio.Semaphore,
        tool: ToolDefinition | None,
    ) -> dict[str, Any]:
        """Send a request whose time is kept here, because it may stand still."""
        with anyio.fail_after(seconds) as scope:
            call.time = WorkingTime(scope)
            async with slots:
                await self._hear(call.context)
                return await self.request(
                    method, params, context=call.context, opts=opts, tool=tool, token=token
                )

    def _keeps_time_of(self, call: CallInFlight) -> bool:
        """Whether the dispatcher may keep the time of a call: it is one request, and asks nobody."""
        keeps = self.dispatcher is not None and self.dispatcher.keeps_time
        return keeps and not self.declares and self._unheard(call.context) is None

    def _unheard(self, context: ToolContext) -> str | None:
        """The log level that the upstream is to be told of, because it leaves out what this caller wants."""
        if self.modern or not isinstance(context, WireContext) or context.log_level is None:
            return None
        if self.capabilities is None or self.capabilities.logging is None:
            return None
        wanted, heard = context.log_level, self._log_level
        if wanted not in LOG_LEVELS or (heard and LOG_LEVELS.index(heard) <= LOG_LEVELS.index(wanted)):
            return None
        return wanted

    async def _hear(self, context: ToolContext) -> None:
        """Have a legacy upstream send what the most curious of its callers wants; others get their share."""
        wanted = self._unheard(context)
        if wanted is None:
            return
        self._log_level = wanted
        try:
            await self.request("logging/setLevel", {"level": wanted})
        except UpstreamProtocolError:
            return

    def _note_pages(self, fault: UpstreamProtocolError, call: CallInFlight) -> None:
        if fault.code == URL_ELICITATION_REQUIRED and isinstance(call.context, WireContext):
            data: Any = fault.data
            pages = data.get("elicitations") if isinstance(data, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            self.questions.note_pages(cast("object", pages), call.context.client)

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        context: ToolContext | None = None,
        opts: CallOptions | None = None,
        tool: ToolDefinition | None = None,
        token: str | None = None,
    ) -> dict[str, Any]:
        """Send a request as it is; its progress comes with `token`.

        Raises:
            UpstreamUnavailableError: the session is not open, or was lost.
            UpstreamProtocolError: the upstream answered with an error.
            TimeoutError: there was no answer within the time that `opts` gives.
        """
        if self.dispatcher is None and self.awake is not None:
            await self.awake()
        dispatcher, version = self.dispatcher, self.protocol_version
        if dispatcher is None or version is None:
            raise UpstreamUnavailableError(self.link.name, "the connection was lost")
        opts = opts or {}
        self._stamp.put(version, method, params, context, opts, tool, token)
        try:
            answer = await dispatcher.send_raw_request(method, params, opts)
        except RequestTimedOut:
            raise TimeoutError from None
        except MCPError as fault:
            raise self._translated(fault, dispatcher) from None
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

    def _reads(self) -> bool:
        return self.dispatcher is None or self.dispatcher.reads

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification, if it is open."""
        if self.dispatcher is not None:
            await self.dispatcher.notify(method, params)

    def _lost(self) -> str:
        """What becomes of a call when the session ends."""
        silent = self.health.fault
        return f"{silent}; the call may have run and was not repeated" if silent else LOST

    def _translated(self, fault: MCPError, dispatcher: ObservedDispatcher) -> UpstreamError:
        """The SDK's error as ours; what the transport made up is not passed on as the upstream's."""
        if says_ended(fault) or dispatcher.closed.is_set():
            if dispatcher is self.dispatcher:
                self.on_lost()
            return UpstreamUnavailableError(self.link.name, self._lost())
        if self.link.facts.breaks_requests and says_broke_off(fault):
            self.on_broken_off()
            return UpstreamUnavailableError(
                self.link.name, f"{lost_by(fault)} ({self.link.scrubbed(fault.message)})"
            )
        self.health.heard()
        message = self.link.scrubbed(told_briefly(fault.message))
        if missing := missing_extensions(fault.code, fault.data):
            message += f"; it runs only with {missing}, which this bridge does not carry"
        return UpstreamProtocolError(self.link.name, fault.code, message, self.link.cleaned(fault.data))


def _nothing() -> None:
    return None
