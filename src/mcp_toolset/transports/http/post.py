"""`PostedRequest`: a request that came by POST, and the answer to it: JSON, or an event stream if need be.

The answer is JSON unless something is to be said before it: a report, a question to the client, or after
some time of silence that the server is still there. From then on it is a stream of events (basic/transports).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast

import anyio
from starlette.requests import Request
from starlette.types import Send

from mcp_toolset.concurrency.tasks import CancelledError, TaskSet, from_outside, new_scope
from mcp_toolset.context.connection import Answers, Connection, RequestContext
from mcp_toolset.protocol.codec import notification, progress_token
from mcp_toolset.protocol.dispatch import CallOptions, Params
from mcp_toolset.protocol.eras import answer_line
from mcp_toolset.protocol.inbound import Kind, kind_of
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, UNWRITTEN, ErrorData, RequestId, error_for_peer
from mcp_toolset.transports.http.kept_events import PING, CallEvents
from mcp_toolset.transports.http.limits import SLICE, WAY, BoundedSend
from mcp_toolset.transports.http.messages import STREAM, event_of
from mcp_toolset.transports.requests import OneWayContext

PING_INTERVAL: Final = 15.0
"""Seconds of silence after which the answer becomes a stream with a comment, so that no proxy drops it."""

Outcome = tuple[dict[str, Any] | None, ErrorData | None]
"""The result of a request, or what went wrong; neither if it was cancelled."""

_log = logging.getLogger("mcp_toolset.wire")


class PostedRequest(OneWayContext):
    """One request and its answer; the handler's context at the same time.

    Attributes:
        log: What is kept of its stream; `None` before that has begun, and where nothing is.
    """

    log: CallEvents | None = None
    http: Request

    def __init__(
        self,
        request: Mapping[str, Any],
        http: Request,
        send: Send,
        *,
        streams: bool,
        asks: bool = False,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self._method: str = request["method"]
        self._params: dict[str, Any] | None = request.get("params")
        self._token = progress_token(self._params)
        self._send = send
        self._streams = streams
        self.http = http
        self._receive = http.receive
        self._headers = headers
        self._streaming = self._detached = self._complete = False
        self._sending: anyio.Lock | None = None
        self._beside: TaskSet | None = None
        self._cancel_requested = None
        self.scope = new_scope()
        self.finished, self.can_send_request = False, asks
        self.number: RequestId = request["id"]
        self.request_id = self.number

    async def perform(self, answers: Answers, connection: Connection) -> Outcome:
        """Run the handler; `watch` runs beside it, if it takes its time."""
        request = RequestContext(self._method, self._params, self.request_id, connection, self, self.http)
        ended = self.watched()
        try:
            with self.scope:
                try:
                    return await answers.answer(request), None
                # A handler may raise anything; the client gets an answer whatever it is.
                except (Exception, CancelledError) as raised:
                    if from_outside(raised):
                        raise
                    return None, error_for_peer(raised)
        finally:
            self.finished, self.can_send_request = True, False
            ended()
            if self._beside is not None:
                await self._beside.end()
        return None, None

    def watched(self) -> Callable[[], object]:
        """Have `begin_watch` called if the request takes its time; returns what says that it has ended."""
        raise NotImplementedError

    def begin_watch(self) -> None:
        self.beside(self.watch)

    def beside(self, work: Callable[[], Awaitable[None]]) -> None:
        if self.finished:
            return
        if self._beside is None:
            self._beside = TaskSet(self._failed)
        self._beside.begin(work)

    def _failed(self) -> None:
        fault = None if self._beside is None else self._beside.fault
        _log.warning("the stream of a request failed; its client gets nothing more", exc_info=fault)

    async def watch(self) -> None:
        raise NotImplementedError

    async def client_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def ping(self) -> None:
        if self._streams:
            await self.event(PING)

    async def event(self, event: bytes) -> None:
        await self._push(None, event)

    async def say(self, message: bytes) -> None:
        """Send a message, which makes a stream of the response; once the handler has ended, nothing."""
        await self._push(message)

    async def _push(self, message: bytes | None, event: bytes = b"") -> None:
        if self._sending is None:
            self._sending = anyio.Lock()
        async with self._sending:
            if self.finished:
                return
            primed = b"" if self._streaming else await self._begin()
            if message is not None:
                event = event_of(message) if self.log is None else self.log.add(message)
            if not self._detached:
                await self._part(primed + event, more=True)

    async def _begin(self) -> bytes:
        """Begin a stream; returns its first event, if there is one before what is said."""
        headers = [*STREAM, *self._headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self._streaming = True
        self.log = self.keep()
        return b"" if self.log is None else self.log.priming()

    def keep(self) -> CallEvents | None:
        """Where the events of its stream are kept, if its client may come back for them."""
        return None

    async def close_early(self) -> None:
        """End the response, if its client may come back for the rest of it; the call goes on."""
        if self._sending is None:
            self._sending = anyio.Lock()
        async with self._sending:
            if self._detached and self.log is not None:
                self.log.detach()
            elif not self.finished:
                primed = b"" if self._streaming else await self._begin()
                self._detached = self.log is not None
                await self._part(primed, more=not self._detached)

    def close_soon(self) -> None:
        self.beside(self.close_early)

    def detach(self) -> None:
        self._detached = True

    async def _part(self, event: bytes, *, more: bool) -> None:
        self._complete = not more
        await self._send({"type": "http.response.body", "body": event, "more_body": more})

    async def written(self, outcome: Outcome, statuses: Mapping[int, int]) -> tuple[bytes, int]:
        """The answer to an outcome, in a turn of the event loop in which others have not written much."""
        way: BoundedSend | None = self.http.scope.get(WAY)
        if way is None:
            return self.body_of(outcome, statuses)
        unsent, result = way.unsent, outcome[0]
        if result is not None and (unsent.written or unsent.size):
            # Of a stream that may be resumed, an answer is kept even if nobody takes it now.
            reason = await way.room(result, may_drop=self.log is None)
            if reason is not None:
                return answer_line(self.number, None, ErrorData(INTERNAL_ERROR, reason)), 503
        answer = self.body_of(outcome, statuses)
        if len(answer[0]) > SLICE:
            unsent.wrote(len(answer[0]))
        return answer

    def body_of(self, outcome: Outcome, statuses: Mapping[int, int]) -> tuple[bytes, int]:
        result, fault = outcome
        if fault is None:
            try:
                return answer_line(self.number, result, None), 200
            except ValueError:
                fault = UNWRITTEN
        return answer_line(self.number, None, fault), statuses.get(fault.code, 200)

    async def answer(self, body: bytes, status: int) -> None:
        """Send the answer and complete the response; who calls keeps no result in memory beside it."""
        if self._sending is None:
            return await self._answer(body, status)
        # A task of the tool's own may be saying something at this moment.
        async with self._sending:
            await self._answer(body, status)

    async def _answer(self, body: bytes, status: int) -> None:
        if self._streaming:
            event = event_of(body) if self.log is None else self.log.end(body)
            if not self._complete:
                await self._part(b"" if self._detached else event, more=False)
            return
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *self._headers,
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        if self._streams and not self.finished:
            await self.say(notification(method, params or {}))


def kind_of_posted(message: object) -> Kind:
    """What a message of a legacy client is, as other servers take it.

    Some clients write `"id": null` into every notification. An error without an id is the answer to what
    could not be read.
    """
    if not isinstance(message, dict):
        return "garbage"
    fields, kind = cast("dict[str, Any]", message), kind_of(message)  # pyright: ignore[reportUnknownArgumentType]
    if "error" in fields and "id" in fields and fields.get("jsonrpc") == "2.0" and _is_error(fields["error"]):
        return "answer"
    if kind == "answer":
        return kind if type(fields.get("result")) is dict else "garbage"
    if kind == "garbage" and "id" in fields:
        without_id = {key: value for key, value in fields.items() if key != "id"}
        return "notification" if kind_of(without_id) == "notification" else kind
    return kind


def _is_error(error: object) -> bool:
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    return type(fields.get("code")) is int and type(fields.get("message")) is str
