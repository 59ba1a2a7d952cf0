"""`SseClient`: the client's side of HTTP+SSE (2024-11-05): one stream for answers, a POST for each request.

The first event names the address for posts. An answer comes on the stream, whichever post it answers; a post
that fails on its way is one request that fails.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

import anyio

from mcp_toolset.errors import LoginRequiredError, UpstreamError, UpstreamUnavailableError
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.protocol.json_rpc import CLOSED, CONNECTION_CLOSED, FAILED_ON_ITS_WAY, MCPError
from mcp_toolset.security.egress import Refusal
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.allowance import FloodError
from mcp_toolset.transports.carrier import (
    EVENTS,
    Carrier,
    Credentials,
    Reply,
    drain,
    is_stream,
    redirect_of,
    release,
    shown,
)
from mcp_toolset.transports.client_dispatcher import ClientDispatcher, Flight
from mcp_toolset.transports.event_stream import Event, EventParser, EventTooLongError
from mcp_toolset.transports.line_dispatcher import MAX_MESSAGE
from mcp_toolset.transports.pacing import BIG
from mcp_toolset.transports.requests import calling

if TYPE_CHECKING:
    import httpx2

ACKNOWLEDGED: Final = 1.0
"""Seconds in which a post must be acknowledged once its answer has come; then it is given up."""

_STREAMED: Final = {"accept": EVENTS, "cache-control": "no-store"}
_POSTED: Final = {"content-type": "application/json"}
_log = logging.getLogger("mcp_toolset.upstream")


@asynccontextmanager
async def sse_client(
    name: str,
    url: str,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None = None,
    credentials: Credentials | None = None,
    refusal: Refusal | None = None,
) -> AsyncGenerator[SseClient]:
    carrier = Carrier(url, headers, auth, credentials, refusal)
    try:
        reply = await carrier.send("GET", _STREAMED)
        try:
            yield await SseClient(name, url, carrier, reply).opened()
        finally:
            await release(reply)
    finally:
        with anyio.CancelScope(shield=True):
            await carrier.aclose()


class SseClient(ClientDispatcher):
    """The dispatcher of one connection over HTTP+SSE."""

    def __init__(self, name: str, url: str, carrier: Carrier, reply: Reply) -> None:
        super().__init__(carrier)
        self._name = name
        self._url = url
        self._reply = reply
        self._stream = self._events(reply, EventParser(MAX_MESSAGE))
        self._address = ""

    async def opened(self) -> SseClient:
        reply = self._reply
        if not 200 <= reply.status < 300 or not is_stream(reply):
            target = redirect_of(reply, self._url)
            where = f", redirected to {in_log(shown(target))}, which was not followed" if target else ""
            raise UpstreamUnavailableError(
                self._name, f"it sent no stream of events, but HTTP {reply.status}{where}"
            )
        try:
            async for event in self._stream:
                if event.name == b"endpoint":
                    self._address = self._within_origin(event.data.decode("utf-8", "replace"))
                    return self
        except (EventTooLongError, FloodError) as broken:
            raise UpstreamUnavailableError(self._name, f"its stream cannot be read: {broken}") from None
        raise UpstreamUnavailableError(self._name, "its stream ended before it named an address for messages")

    def _within_origin(self, endpoint: str) -> str:
        address = urljoin(self._url, endpoint)
        here, there = urlsplit(self._url), urlsplit(address)
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            raise UpstreamUnavailableError(
                self._name, f"its address for messages has another origin: {in_log(shown(address))}"
            )
        return address

    def _begin_reading(self) -> None:
        self._start(self._read)

    async def _read(self) -> None:
        fault: Exception | None = None
        try:
            async for event in self._stream:
                await self._heard(event)
        except FloodError as broken:
            fault = UpstreamUnavailableError(self._name, str(broken))
        except self._carrier.faults as broken:
            _log.debug("%s: the stream of events broke off: %s", self._name, broken)
        except EventTooLongError as broken:
            fault = UpstreamUnavailableError(self._name, f"its stream cannot be read: {broken}")
        finally:
            self.end_by(fault)

    async def _heard(self, event: Event) -> None:
        answer = self._answer_in(event)
        if answer is not None:
            await self._answered(answer, len(event.data))

    async def _answered(self, answer: dict[str, Any], size: int) -> None:
        """Hand an answer over, and read no further until its client has room for more."""
        flight = self.flight_of(answer)
        if flight is None:
            return
        caller = flight.caller
        flight.settle(answer)
        if caller is not None and (size >= BIG or not caller.pipes.has_room):
            self.paced = True
            try:
                await caller.ready()
            finally:
                self.paced = False

    async def _exchange(self, flight: Flight, method: str, body: bytes, opts: CallOptions) -> dict[str, Any]:
        flight.caller = calling.get()
        headers = opts.get("headers") or {}

        async def post() -> None:
            try:
                await self._posted(body, headers)
            except (MCPError, UpstreamError) as fault:
                flight.fail(fault)

        posting = self._start(post)
        try:
            answer = await flight.answer
        finally:
            # Ends a post to which the server never says that it has it.
            self._loop.call_later(ACKNOWLEDGED, posting.cancel)
        if answer is None:
            raise MCPError.from_error_data(CLOSED) from self._fault
        return answer

    async def _posted(self, body: bytes, headers: Mapping[str, str]) -> None:
        carrier = self._carrier
        try:
            reply = await carrier.send("POST", {**_POSTED, **headers}, body, url=self._address)
            with suppress(*carrier.faults):
                await drain(reply)
        except LoginRequiredError as fault:
            if not fault.for_more:
                self.end_by(fault)
            raise
        except UpstreamError:
            raise
        except carrier.faults as fault:
            raise MCPError(CONNECTION_CLOSED, carrier.why(fault)) from None
        # A login flow raises what it likes. Without credentials no other request gets through either.
        except Exception as fault:
            self.end_by(fault)
            raise MCPError.from_error_data(CLOSED) from fault
        if not 200 <= reply.status < 300:
            raise MCPError(CONNECTION_CLOSED, f"{FAILED_ON_ITS_WAY}: HTTP {reply.status}")

    async def _tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a notification or an answer; if that fails, once more, as the server takes both twice."""
        try:
            await self._posted(body, headers)
        except (MCPError, UpstreamError):
            if self._closed:
                return
            try:
                await self._posted(body, headers)
            except (MCPError, UpstreamError) as fault:
                _log.warning("a message to %s was lost: %s", self._carrier.host, in_log(fault))
