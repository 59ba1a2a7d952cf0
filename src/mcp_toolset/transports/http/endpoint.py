"""`QuickAnswers`: a `tools/call` or `tools/list` over HTTP, without the SDK's models in between.

It stands before the SDK's endpoint, behind the same checks of Host, Origin and authentication, and takes
only what passes every check that the SDK makes: method and headers, each once and in agreement with the
body, content type, what the client accepts, size, envelope, parameter headers. Whatever does not pass,
and whatever it does not know, goes on to the SDK, body and all, which then says what is wrong. Requests
of legacy sessions are `LegacySessions`' to answer.
"""

from __future__ import annotations

from typing import Any, Final, cast

import anyio
from pydantic_core import from_json
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_toolset.protocol.codec import strict_object
from mcp_toolset.protocol.eras import SESSION
from mcp_toolset.protocol.errors import MODERN_STATUSES
from mcp_toolset.protocol.header_schemas import header_map
from mcp_toolset.protocol.inbound import Envelope, read_envelope
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.transports.http import post as posted
from mcp_toolset.transports.http.headers import (
    LAST_EVENT,
    LEGACY,
    METHOD,
    VERSION,
    Body,
    Headers,
    header,
    takes_events,
    usual_head,
)
from mcp_toolset.transports.http.kept_events import place_of
from mcp_toolset.transports.http.legacy_sessions import LegacySessions
from mcp_toolset.transports.http.post import PostedRequest
from mcp_toolset.transports.http.server import HttpServer
from mcp_toolset.transports.serving import modern_connection

_WATCHED_AFTER: Final = 0.02
"""Seconds that a call may take before it is watched whether its client is still there."""


class QuickAnswers:
    """The endpoint of streamable HTTP."""

    def __init__(
        self, sdk: ASGIApp, server: HttpServer, sessions: LegacySessions, *, streams: bool = True
    ) -> None:
        """Stand before `sdk`.

        Args:
            sdk: Takes everything else.
            server: Whose tools are called.
            sessions: Take what belongs to a legacy session.
            streams: Whether reports may turn an answer into an event stream.
        """
        self._sdk = sdk
        self._server = server
        self._sessions = sessions
        self._streams = streams
        self._resumes = sessions.resumes
        self._annotated: dict[str, tuple[object, bool]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        headers = scope["headers"]
        if scope["method"] == "GET" and not self._resumes:
            if await self._resumed(scope, receive, send):
                return
            # Of what is not a call no events are kept, so a client that wants them gets a new stream.
            headers = [(name, value) for name, value in headers if name != LAST_EVENT]
            scope = {**scope, "headers": headers}
        head = usual_head(headers) if scope["method"] == "POST" else None
        version = head.get(VERSION) if head is not None else header(headers, VERSION)
        if version in LEGACY:
            name = header(headers, SESSION)
            session = self._sessions.find(name) if name is not None else None
            if session is not None:
                await session.take(scope, receive, send, usual=head is not None)
                return
        elif head is not None and METHOD in head:
            await self._answer(scope, receive, send, head[METHOD].decode("latin-1"))
            return
        await self._sdk(scope, receive, send)

    async def _resumed(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Whether a client has come back for the rest of a call, and was answered."""
        headers = scope["headers"]
        place = place_of(header(headers, LAST_EVENT))
        name = header(headers, SESSION)
        if (
            place is None
            or name is None
            or header(headers, VERSION) not in LEGACY
            or not takes_events(headers)
        ):
            return False
        session = self._sessions.find(name)
        return session is not None and await session.resume(*place, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, method: str) -> None:
        quick = self._server.quick(method)
        if quick is None:
            await self._sdk(scope, receive, send)
            return
        body = Body(receive)
        found = self._read(scope, await body.read(), method)
        if body.left:
            return
        if found is None:
            await self._sdk(scope, body.receive, send)
            return
        request, route = found
        exchange = _Exchange(request, Request(scope, receive), send, streams=self._streams)
        outcome = await exchange.perform(quick, modern_connection(route), _WATCHED_AFTER)
        if outcome != (None, None):
            answer = exchange.body_of(outcome, MODERN_STATUSES)
            # It may take its time, and the result is as big as the answer.
            del outcome
            await exchange.answer(*answer)

    def _read(self, scope: Scope, body: bytes | None, method: str) -> tuple[dict[str, Any], Envelope] | None:
        """The request in a body, and how it is routed; `None` if anything is unusual about it."""
        try:
            request = strict_object(from_json(body or b""))
        except ValueError:
            return None
        if request is None or request.get("method") != method:
            return None
        if type(request.get("id")) not in (int, str) or type(request.get("params")) is not dict:
            return None
        route = _envelope(request, scope["headers"])
        if route is None or (method == "tools/call" and self._has_annotations(request["params"].get("name"))):
            return None
        return request, route

    def _has_annotations(self, name: object) -> bool:
        """Whether arguments of a tool are to agree with headers: the SDK then compares them."""
        lookup = self._server.get_tool_input_schema
        schema = lookup(name) if lookup is not None and isinstance(name, str) else None
        if schema is None:
            return False
        known = self._annotated.get(cast("str", name))
        if known is None or known[0] is not schema:
            known = self._annotated[cast("str", name)] = (schema, bool(header_map(schema)))
        return known[1]


def _envelope(request: dict[str, Any], headers: Headers) -> Envelope | None:
    """What a request says of its client; `None` if it is to be refused."""
    folded = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name.startswith(b"mcp-")
    }
    try:
        return read_envelope(request["method"], request["params"], folded)
    except MCPError:
        return None


class _Exchange(PostedRequest):
    """One modern request: a client that leaves has cancelled it, and it is asked nothing."""

    async def watch(self) -> None:
        self.beside(self._keep_alive)
        await self.client_gone()
        self.scope.cancel()

    async def _keep_alive(self) -> None:
        while True:
            await anyio.sleep(posted.PING_INTERVAL)
            await self.ping()
