"""`HttpClient`: the client's side of streamable HTTP; a request that fails does not affect others.

Each request is a POST, whose reply is the answer or a stream of events that ends with the answer. A legacy
server may also have a session, and send messages on a stream that the client opens by GET.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from mcp_toolset.concurrency.backoff import Backoff
from mcp_toolset.errors import (
    REFUSES_CREDENTIALS,
    WANTS_CREDENTIALS,
    LoginRequiredError,
    UpstreamError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol import dispatch, json_rpc
from mcp_toolset.protocol.handshake import NoVerdictError
from mcp_toolset.protocol.methods import is_modern
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
from mcp_toolset.transports.client_dispatcher import ClientDispatcher, Flight, message_in
from mcp_toolset.transports.event_stream import EventParser, EventTooLongError
from mcp_toolset.transports.line_dispatcher import MAX_MESSAGE
from mcp_toolset.transports.pacing import Intake, Meter
from mcp_toolset.transports.requests import closing

if TYPE_CHECKING:
    import httpx2

_log = logging.getLogger("mcp_toolset.upstream")

_NO_VERDICTS: Final = frozenset((403, 407, 408, 425, 429))
"""Statuses, beside 401, that refuse a client or its rate, and say nothing about the request itself."""

_OF_A_METHOD: Final = frozenset(
    (json_rpc.INVALID_REQUEST, json_rpc.METHOD_NOT_FOUND, json_rpc.INVALID_PARAMS)
)
"""Errors of a server that does not know a method; the status of such a reply does not matter."""


def is_good(status: int) -> bool:
    """True if a reply of this status brings the answer to a request."""
    return 200 <= status < 300 and status != 202


def refusal_of(reply: Reply, body: bytes, kind: str, url: str) -> json_rpc.MCPError:
    """The error that the server has sent, or an error for its status."""
    if reply.status == 202:
        # The reply to a request must bring its answer; 202 brings none.
        return json_rpc.MCPError(json_rpc.INVALID_REQUEST, "server answered a request with 202 Accepted")
    target = redirect_of(reply, url)
    if target is not None:
        return json_rpc.MCPError(json_rpc.INVALID_REQUEST, _redirected(url, target))
    message = message_in(body) if kind.startswith("application/json") else None
    error: object = None if message is None else message.get("error")
    if type(error) is dict:
        fields = cast("dict[str, Any]", error)
        code, text = fields.get("code"), fields.get("message")
        if type(code) is int and type(text) is str:
            is_verdict = not _is_no_verdict(reply.status) or (reply.status >= 500 and code in _OF_A_METHOD)
            return (json_rpc.MCPError if is_verdict else NoVerdictError)(code, text, fields.get("data"))
    if reply.status == 404:
        # Outside of a session a gateway answers 404 for a missing method.
        return json_rpc.MCPError(json_rpc.METHOD_NOT_FOUND, "Not Found")
    kind_of_error = NoVerdictError if _is_no_verdict(reply.status) else json_rpc.MCPError
    return kind_of_error(json_rpc.INTERNAL_ERROR, f"Server returned an error response: HTTP {reply.status}")


def _is_no_verdict(status: int) -> bool:
    return status in _NO_VERDICTS or status >= 500


def unauthorized(name: str, error: json_rpc.MCPError, *, sent: bool) -> LoginRequiredError:
    """The error for 401, which says nothing about the method or the revision of the server."""
    text = f": {in_log(error.message)}" if error.code != json_rpc.INTERNAL_ERROR else ""
    if sent:
        return LoginRequiredError(name, f"{REFUSES_CREDENTIALS} (HTTP 401{text}); renew them")
    mend = 'give it `"auth": "oauth"` and log in, or `headers` with a token'
    return LoginRequiredError(name, f"{WANTS_CREDENTIALS} (HTTP 401{text}); {mend}")


def _redirected(url: str, target: str) -> str:
    address = in_log(shown(target))
    if url.startswith("https:") and target.startswith("http:"):
        return (
            f"Redirect to {address} not followed: it would leave HTTPS for plain HTTP. The server is "
            "likely behind a proxy whose forwarded headers it does not trust; give the address with https "
            "or mend the settings of the proxy"
        )
    return f"Redirect to {address} not followed; use that URL as the endpoint if it is the intended server"


GOODBYE_TIMEOUT: Final = 1.0
"""Seconds that ending an HTTP session may take."""

TELL_TIMEOUT: Final = 30.0
"""Seconds in which a server must acknowledge a notification or an answer."""

RETRY: Final = 1.0
"""Seconds before a stream is resumed, unless the server asks for another wait."""

MIN_RETRY: Final = 0.05
MAX_RETRY: Final = 3600.0
"""The shortest and the longest wait before a stream is resumed."""

MAX_ATTEMPTS: Final = 2
"""Attempts in a row to resume or to open a stream, before a refusal is final."""

_SESSION_ID: Final = "mcp-session-id"
_VERSION: Final = "mcp-protocol-version"
_LAST_ID: Final = "last-event-id"
_JSON: Final = "application/json"
_POSTED: Final = {"accept": f"{_JSON}, {EVENTS}", "content-type": _JSON}
_STREAMED: Final = {"accept": EVENTS, "cache-control": "no-store"}


@asynccontextmanager
async def http_client(
    name: str,
    url: str,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None = None,
    credentials: Credentials | None = None,
    refusal: Refusal | None = None,
) -> AsyncGenerator[HttpClient]:
    client = HttpClient(name, url, headers, auth, credentials, refusal)
    try:
        yield client
    finally:
        await client.aclose()


class HttpClient(ClientDispatcher):
    """The dispatcher of one connection over streamable HTTP."""

    def __init__(
        self,
        name: str,
        url: str,
        headers: Mapping[str, str],
        auth: httpx2.Auth | None = None,
        credentials: Credentials | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        super().__init__(Carrier(url, headers, auth, credentials, refusal))
        self._name = name
        self._url = url
        self._intake = Intake()
        self._session: dict[str, str] = {}
        self._seen_session: str | None = None
        self._version: str | None = None
        self._common = _POSTED
        self._listens = False
        # A login may wait for a person.
        self._timeout = TELL_TIMEOUT if auth is None and credentials is None else None

    @property
    def paced(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._intake.paced

    async def aclose(self) -> None:
        if self._seen_session is not None:
            self._session = {_SESSION_ID: self._seen_session}
            self._agree(self._version)
            with anyio.move_on_after(GOODBYE_TIMEOUT, shield=True):
                # Nothing depends on the reply, and a login flow may raise anything.
                with suppress(Exception):
                    await (await self._carrier.send("DELETE", self._common)).aclose()
        with anyio.CancelScope(shield=True):
            await self._carrier.aclose()

    async def notify(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> None:
        if method == "notifications/cancelled" and is_modern(self._version):
            return
        await super().notify(method, params, opts)
        if method == "notifications/initialized" and self._session and not (self._listens or self._closed):
            self._listens = True
            self._start(self._listen)

    def _is_told_of_cancels(self, method: str) -> bool:
        return method != "initialize" and not is_modern(self._version)

    async def _exchange(
        self, flight: Flight, method: str, body: bytes, opts: dispatch.CallOptions
    ) -> dict[str, Any]:
        headers = opts.get("headers") or {}
        if method == "initialize":
            self._session = {}
            self._agree(None)
        elif (version := headers.get(_VERSION)) is not None and version != self._version:
            self._agree(version)
        try:
            reply = await self._posted(body, headers)
            begins = method == "initialize"
            if begins or self._seen_session is None:
                self._note_session(reply, begins=begins)
            if is_good(reply.status) and is_stream(reply):
                answer = await self._from_events(reply, flight)
            else:
                answer = await self._from_body(reply, flight)
        except UpstreamError:
            raise
        except FloodError as fault:
            raise self._cut(fault) from None
        except self._carrier.faults as fault:
            raise NoVerdictError(json_rpc.CONNECTION_CLOSED, self._carrier.why(fault)) from None
        if begins:
            self._agree_by(answer)
        return answer

    def _cut(self, fault: FloodError) -> UpstreamUnavailableError:
        cut = UpstreamUnavailableError(self._name, str(fault))
        self.end_by(cut)
        return cut

    async def _posted(self, body: bytes, headers: Mapping[str, str]) -> Reply:
        common = self._common
        try:
            reply = await self._carrier.send("POST", {**common, **headers}, body)
        except LoginRequiredError as fault:
            if not fault.for_more:
                self.end_by(fault)
            raise
        except self._carrier.faults:
            raise
        # A login flow may raise anything; without credentials every other request fails, too.
        except Exception as fault:
            self.end_by(fault)
            raise json_rpc.MCPError.from_error_data(json_rpc.CLOSED) from fault
        if reply.status == 404 and _SESSION_ID in common:
            # The answer to a lost session (2025-11-25, basic/transports, "Session Management").
            await release(reply)
            self._session, self._seen_session = {}, None
            self.end_by(UpstreamUnavailableError(self._name, "the server has ended the session"))
            raise json_rpc.MCPError.from_error_data(json_rpc.CLOSED) from self._fault
        return reply

    async def _tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a notification or an answer; if that fails, once more.

        A second copy does no harm, while a server could wait for a lost one without end.
        """
        why = f"no reply within {TELL_TIMEOUT:g} s"
        with anyio.move_on_after(self._timeout):
            for _ in range(2):
                try:
                    await drain(await self._posted(body, headers))
                except self._carrier.faults as fault:
                    why = self._carrier.why(fault)
                except json_rpc.MCPError:
                    return
                else:
                    return
        _log.warning("a message to %s was lost: %s", self._carrier.host, in_log(why))

    async def _from_body(self, reply: Reply, flight: Flight) -> dict[str, Any]:
        kind = reply.header("content-type").lower()
        try:
            body = await self._whole(reply)
        except BaseException:
            await release(reply)
            raise
        await reply.aclose()
        if not is_good(reply.status):
            refusal = refusal_of(reply, body, kind, self._url)
            if reply.status == 401:
                raise unauthorized(self._name, refusal, sent=self._carrier.sends_credentials)
            raise refusal
        message = message_in(body) if kind.startswith(_JSON) or not kind else None
        if message is not None and "method" not in message:
            if self.is_for(message, flight):
                return message
            raise json_rpc.MCPError(
                json_rpc.INVALID_REQUEST, f"its answer has the id of another request than {flight.number}"
            )
        if kind.startswith(_JSON):
            raise json_rpc.MCPError(json_rpc.PARSE_ERROR, json_rpc.UNREADABLE)
        raise json_rpc.MCPError(json_rpc.INVALID_REQUEST, f"Unexpected content type: {in_log(kind)}")

    async def _whole(self, reply: Reply) -> bytes:
        meter, parts, size = Meter(self._intake), list[bytes](), 0
        try:
            async for chunk in reply.chunks():
                size += len(chunk)
                if size > MAX_MESSAGE:
                    raise json_rpc.MCPError(
                        json_rpc.PARSE_ERROR, f"its answer has more than {MAX_MESSAGE} bytes"
                    )
                await meter.room(len(chunk))
                parts.append(chunk)
        finally:
            meter.give_back()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _from_events(self, reply: Reply, flight: Flight) -> dict[str, Any]:
        """The answer at the end of a stream, which is resumed if the server closes it early."""
        parser, backoff, received = EventParser(MAX_MESSAGE), Backoff(), -1
        while True:
            began = anyio.current_time()
            try:
                answer = await self._read_events(reply, parser, flight)
            except BaseException as fault:
                await release(reply)
                if isinstance(fault, FloodError) or not isinstance(fault, self._carrier.faults):
                    raise
                is_whole = False
            else:
                if answer is not None:
                    await self._drain_later(reply)
                    return answer
                await reply.aclose()
                is_whole = True
            if not parser.last_id:
                raise json_rpc.MCPError(json_rpc.CONNECTION_CLOSED, "SSE stream ended without a response")
            if is_whole and (close := closing.get()) is not None:
                # The stream of the call's client is closed as well.
                close()
            if flight.received > received:
                backoff, wait = Backoff(), 0.0
            else:
                # Without new messages the waits grow, whatever the server asks for.
                wait = backoff.after(anyio.current_time() - began)
            received = flight.received
            reply = await self._resumed(parser, wait)
            parser = EventParser(MAX_MESSAGE, parser.last_id, parser.retry)

    async def _read_events(self, reply: Reply, parser: EventParser, flight: Flight) -> dict[str, Any] | None:
        meter = Meter(self._intake)
        try:
            async with aclosing(self._events(reply, parser, meter)) as events:
                async for event in events:
                    if event.name not in (b"", b"message") or not event.data:
                        continue
                    message = message_in(event.data)
                    if message is None:
                        raise json_rpc.MCPError(json_rpc.PARSE_ERROR, json_rpc.UNREADABLE)
                    if "method" in message:
                        flight.received += 1
                        self._take(message, len(event.data))
                    elif self.is_for(message, flight):
                        return message
        except EventTooLongError as fault:
            raise json_rpc.MCPError(json_rpc.CONNECTION_CLOSED, f"SSE stream failed: {fault}") from None
        finally:
            meter.give_back()
        return None

    async def _resumed(self, parser: EventParser, wait: float) -> Reply:
        """Resume a stream after `wait` seconds, or after the longer wait that the server asks for."""
        asked = RETRY if parser.retry is None else parser.retry / 1000
        wait = max(MIN_RETRY, wait, min(asked, MAX_RETRY))
        for _ in range(MAX_ATTEMPTS):
            await anyio.sleep(wait)
            with suppress(*self._carrier.faults):
                reply = await self._carrier.send("GET", self._for_stream(parser))
                if reply.status == 200 and is_stream(reply):
                    return reply
                await drain(reply)
        raise json_rpc.MCPError(
            json_rpc.CONNECTION_CLOSED, "SSE stream ended and reconnection attempts were exhausted"
        )

    async def _listen(self) -> None:
        """Read the messages of a legacy server outside of calls, until it refuses the stream."""
        backoff, refused, parser = Backoff(), 0, EventParser(MAX_MESSAGE)
        while refused < MAX_ATTEMPTS:
            began = anyio.current_time()
            parser = EventParser(MAX_MESSAGE, parser.last_id, parser.retry)
            # A server may be down for a while.
            with suppress(*self._carrier.faults):
                reply = await self._carrier.send("GET", self._for_stream(parser))
                if reply.status == 405:
                    return await drain(reply)
                refused = 0 if reply.status == 200 and is_stream(reply) else refused + 1
                if refused:
                    await drain(reply)
                else:
                    await self._read_session_stream(reply, parser)
            wait = backoff.after(anyio.current_time() - began)
            await anyio.sleep(max(wait, min((parser.retry or 0) / 1000, MAX_RETRY)))

    async def _read_session_stream(self, reply: Reply, parser: EventParser) -> None:
        try:
            async for event in self._events(reply, parser):
                answer = self._answer_in(event)
                if answer is not None and (flight := self.flight_of(answer)) is not None:
                    flight.settle(answer)
                    flight.scope.cancel()
        except EventTooLongError as fault:
            _log.warning("%s: %s", self._carrier.host, fault)
        except FloodError as fault:
            self._cut(fault)
        finally:
            await release(reply)

    async def _drain_later(self, reply: Reply) -> None:
        """Read a stream to its end in the background, so that its connection can be used again."""
        if self._closed:
            await release(reply)
        else:
            self._start(lambda: self._end_of(reply))

    async def _end_of(self, reply: Reply) -> None:
        with suppress(*self._carrier.faults):
            await drain(reply)

    def _note_session(self, reply: Reply, *, begins: bool) -> None:
        session = reply.header(_SESSION_ID)
        if session:
            self._seen_session = session
            if begins:
                self._session = {_SESSION_ID: session}
                self._agree(self._version)

    def _agree_by(self, answer: dict[str, Any]) -> None:
        result: Any = answer.get("result")
        version: object = result.get("protocolVersion") if type(result) is dict else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(version, str) and version.isascii() and version.isprintable():
            self._agree(version)

    def _agree(self, version: str | None) -> None:
        self._version = version
        named = {} if version is None else {_VERSION: version}
        self._common = {**_POSTED, **self._session, **named}

    def _for_stream(self, parser: EventParser) -> dict[str, str]:
        last = {_LAST_ID: parser.last_id.decode("latin-1")} if parser.last_id else {}
        return {**self._common, **_STREAMED, **last}
