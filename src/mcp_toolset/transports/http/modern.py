"""`ModernPosts`: requests of 2026-07-28 over HTTP, each of which stands alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import anyio
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from mcp_toolset.context.connection import Answers, Connection
from mcp_toolset.protocol.codec import MAX_ASKED, HeavyError, held_by, json_in, json_of, progress_token
from mcp_toolset.protocol.http_headers import (
    METHOD_HEADER,
    NAME_HEADER,
    VERSION_HEADER,
    check_param_headers,
    check_routing_once,
    header_map,
)
from mcp_toolset.protocol.inbound import id_of, kind_of, unsupported_version
from mcp_toolset.protocol.json_rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MODERN_STATUSES,
    PARSE_ERROR,
    ErrorData,
    MCPError,
    RequestId,
)
from mcp_toolset.protocol.methods import is_modern
from mcp_toolset.protocol.server_machine import ServerMachine
from mcp_toolset.transports.http import post as posted
from mcp_toolset.transports.http.messages import METHOD, NAME, PARAM, VERSION, Head, refuse, reply
from mcp_toolset.transports.http.post import PostedRequest
from mcp_toolset.transports.requests import modern_connection

_CALL: Final = "tools/call"
_LISTEN: Final = "subscriptions/listen"
MAX_LISTENING: Final = 128 * 1024
"""Bytes of a request to listen, as `held_by` counts them: it may stay for days, and there are thousands."""

_HALVES: Final = (
    "Invalid request parameters: a text has half of a character (a lone surrogate), which no answer can "
    "repeat; send whole characters"
)
_TOO_LONG: Final = "Invalid request parameters: a request to listen is kept; name fewer resources in one"
_WATCHED_AFTER: Final = 0.02
"""Seconds that a call may take before it is watched whether its client is still there."""

_ROUTING: Final = ((VERSION, VERSION_HEADER), (METHOD, METHOD_HEADER), (NAME, NAME_HEADER))


class ModernPosts:
    """Takes what is posted with the version of the modern era, or with an unknown one."""

    def __init__(self, answers: Answers, *, streams: bool) -> None:
        self._answers = answers
        self._streams = streams
        self._machine = ServerMachine("modern")
        self._annotated: dict[str, tuple[object, bool]] = {}

    async def take(self, scope: Scope, head: Head, body: bytes, receive: Receive, send: Send) -> None:
        if not head.begins_as_json:
            return await reply(send, 400, b"Invalid Content-Type header")
        takes_json, takes_events = head.accepts
        if not takes_json or (self._streams and not takes_events):
            return await reply(send, 406)
        try:
            message, is_whole = _decoded(body)
        except (ValueError, RecursionError) as fault:
            text = f"Parse error: {fault}" if isinstance(fault, HeavyError) else "Parse error"
            return await refuse(send, 400, PARSE_ERROR, text)
        kind = kind_of(message)
        if kind == "notification":
            return await self._acknowledge(head, send)
        if kind != "request":
            text = "Body must be a single JSON-RPC request or notification object"
            return await refuse(send, 400, INVALID_REQUEST, text, number=id_of(message))
        if message["method"] == _LISTEN and not takes_events:
            return await reply(send, 406)
        unusable = _unusable(message, body, is_whole=is_whole)
        if unusable:
            return await refuse(send, 400, INVALID_PARAMS, unusable, number=message["id"])
        try:
            connection = self._received(message, head, scope)
        except MCPError as refused:
            return await _refused(send, message["id"], refused.error)
        await self._answer(message, connection, Request(scope, receive), send)

    async def _acknowledge(self, head: Head, send: Send) -> None:
        said = head.fields.get(VERSION, b"").decode("latin-1")
        if is_modern(said):
            await reply(send, 202)
        else:
            await _refused(send, None, unsupported_version(said).error)

    def _received(self, message: Mapping[str, Any], head: Head, scope: Scope) -> Connection:
        fields = head.fields
        routing = {name: fields[raw].decode("latin-1") for raw, name in _ROUTING if raw in fields}
        if head.repeats:
            check_routing_once(raw.decode("latin-1") for raw, _ in head.all)
        method, params = message["method"], message.get("params")
        envelope = self._machine.receive_request(method, params, routing)
        if method == _CALL:
            self._check_arguments(cast("Mapping[str, Any]", params), head, scope)
        return modern_connection(envelope)

    def _check_arguments(self, params: Mapping[str, Any], head: Head, scope: Scope) -> None:
        arguments: Any = params.get("arguments") or {}
        if not arguments and not any(name.startswith(PARAM) for name in head.fields):
            return
        name: str = params["name"]
        schema = self._answers.input_schema(name, scope)
        if schema is not None and self._has_annotations(name, schema):
            said = [(raw.decode("latin-1"), value.decode("latin-1")) for raw, value in head.all]
            check_param_headers(schema, arguments, said)

    def _has_annotations(self, name: str, schema: Mapping[str, Any]) -> bool:
        known = self._annotated.get(name)
        if known is None or known[0] is not schema:
            known = self._annotated[name] = (schema, bool(header_map(schema)))
        return known[1]

    async def _answer(
        self, message: Mapping[str, Any], connection: Connection, http: Request, send: Send
    ) -> None:
        streams = self._streams or message["method"] == _LISTEN
        exchange = _Exchange(message, http, send, streams=streams)
        try:
            outcome = await exchange.perform(self._answers, connection)
            if outcome != (None, None):
                answer = await exchange.written(outcome, MODERN_STATUSES)
                # It may take its time, and the result is as big as the answer.
                del outcome
                await exchange.answer(*answer)
        finally:
            if connection.has_callbacks:
                await connection.aclose()


class _Exchange(PostedRequest):
    """One modern request: a client that leaves has cancelled it, and it is asked nothing."""

    def watched(self) -> Callable[[], object]:
        # One timer for all would wake the process for nearly each of them.
        return asyncio.get_running_loop().call_later(_WATCHED_AFTER, self.begin_watch).cancel

    async def watch(self) -> None:
        self.beside(self._keep_alive)
        await self.client_gone()
        self.scope.cancel()

    async def _keep_alive(self) -> None:
        while True:
            await anyio.sleep(posted.PING_INTERVAL)
            await self.ping()


async def _refused(send: Send, number: RequestId | None, error: ErrorData) -> None:
    status = MODERN_STATUSES.get(error.code, 200)
    await refuse(send, status, error.code, error.message, number=number, data=error.data)


def _decoded(body: bytes) -> tuple[Any, bool]:
    """The message in a body, and whether all of its characters are whole."""
    try:
        return json_in(body, MAX_ASKED), True
    except HeavyError:
        raise
    except ValueError:
        # The standard library reads what other clients may write, such as half of a surrogate pair.
        message: Any = json.loads(body)
    _check_sendable(message)
    return message, False


def _check_sendable(message: Any) -> None:
    """Refuse an id, and a progress token, that could not be sent back: they raise a `ValueError`."""
    if type(message) is dict:
        fields = cast("dict[str, Any]", message)
        json_of((fields.get("id"), progress_token(fields.get("params"))))


def _unusable(message: Mapping[str, Any], body: bytes, *, is_whole: bool) -> str:
    """Why the parameters of a request are not taken; empty if they may be."""
    if message["method"] == _LISTEN and held_by(body) > MAX_LISTENING:
        return _TOO_LONG
    # What a tool is called with is held against its schema, and its caller is told.
    if is_whole or message["method"] == _CALL:
        return ""
    try:
        json_of(message.get("params"))
    except ValueError:
        return _HALVES
    return ""
