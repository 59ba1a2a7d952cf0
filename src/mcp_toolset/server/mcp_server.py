"""`MCPServer`: answers all requests, of every transport.

A table leads from each method to what answers it. A program that has put middleware or handlers of its own
on `ToolsetServer.lowlevel`, the SDK's view of this server, has requests pass there first (`Program`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from mcp_toolset.calls.pipeline.decision import tracing
from mcp_toolset.calls.suspended import SuspendedStore
from mcp_toolset.context.client import client_of
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.context.shared import Shared
from mcp_toolset.context.spans import provide, server_span
from mcp_toolset.protocol.revisions import SERVER_INFO_META_KEY
from mcp_toolset.server.answers.handshake import Handshake
from mcp_toolset.server.answers.tool_answers import Surface, ToolAnswers
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.server.offers.resource_handlers import Reading
from mcp_toolset.server.offers.subscriptions import OVERLAP, Announcements, Subscriptions

if TYPE_CHECKING:
    from mcp_toolset.calls.pipeline.observers import TraceSampler
    from mcp_toolset.extending.joined import Extensions

Answer = Callable[[RequestContext], Awaitable[dict[str, Any]]]

_log = logging.getLogger("mcp_toolset.server")


class Program(Protocol):
    """What a program has added to this server by way of the SDK."""

    def takes(self, method: str) -> bool:
        """Whether a request or notification of a method has to pass it."""
        ...

    async def answer(self, request: RequestContext) -> dict[str, Any]:
        """The result of a request, by the program's middleware and handlers."""
        ...

    async def notified(self, request: RequestContext) -> None:
        """Hand a notification to the program's middleware and handlers."""
        ...


class MCPServer:
    """Answers the requests to one toolset server; see `context.connection.Answers`.

    Attributes:
        handshake: What the server says of itself.
        announcements: Tells clients that lists have changed.
        reading: Answers about resources, prompts and completions.
        subscriptions: The modern clients that listen for changes.
        tools: Answers about tools, and calls.
        program: What a program has added; `None` while it has not asked for `lowlevel`.
        shared: What replicas of the server share; `None` without replicas.
        traces: Chooses the requests that are traced, if the program collects no traces; `None` for none.
    """

    def __init__(
        self,
        surface: Surface,
        *,
        name: str,
        version: str,
        instructions: str | None,
        offering: Offering,
        extensions: Extensions,
        shared: Shared | None = None,
        suspended: SuspendedStore | None = None,
        traces: TraceSampler | None = None,
    ) -> None:
        """Serve what `surface` and `offering` give; calls that wait for answers are kept in `suspended`."""
        provide()
        self._surface = surface
        self.subscriptions = Subscriptions(overlap=0.0 if shared is None else OVERLAP)
        self.announcements = Announcements(self.subscriptions, offering)
        self.handshake = Handshake(surface, offering, name=name, version=version, instructions=instructions)
        stamp: Mapping[str, Any] = {SERVER_INFO_META_KEY: self.handshake.info}
        trips = RoundTrips(store=suspended)
        tools = self.tools = ToolAnswers(surface, trips, self.announcements, stamp, extensions)
        tools.offers_tasks = self.handshake.offers_tasks
        self.reading = Reading(offering, trips, self.subscriptions, stamp)
        self.program: Program | None = None
        self.traces = traces
        self.shared = shared
        self._extensions = extensions
        self._own: dict[str, Answer] = {
            **extensions.methods(),
            "tools/call": tools.call,
            "tools/list": tools.list,
            "initialize": self.handshake.initialize,
            "server/discover": _stamped(self.handshake.discover, stamp),
            "ping": _pong,
            **self.reading.answers(),
            "": self.reading.unknown,
        }
        self.handshake.methods = self._own

    def compose(self) -> None:
        """Ask the extensions what answers each method from now on."""
        answers = dict(self._own)
        self._extensions.intercepting(answers)
        self._unknown, self._answers = answers.pop(""), answers

    def answer(self, request: RequestContext) -> Awaitable[dict[str, Any]]:
        """The result of a request, in the envelope of its client's era; see `Answers`."""
        if self.program is not None and self.program.takes(request.method):
            return self.program.answer(request)
        if self.traces is not None or tracing():
            return self.own_answer(request)
        return self._answers.get(request.method, self._unknown)(request)

    def own_answer(self, request: RequestContext) -> Awaitable[dict[str, Any]]:
        """The same past what a program has added, within a span while a program collects traces."""
        work = self._answers.get(request.method, self._unknown)(request)
        if tracing():
            return server_span(work, request)
        traces = self.traces
        if traces is not None and (traces.due or _has_trace(request)):
            if traces.sampled((request.params or {}).get("_meta")):
                return server_span(work, request, traces)
        return work

    async def notified(self, request: RequestContext) -> None:
        """Take a notification; nothing is raised."""
        try:
            if self.program is not None and self.program.takes(request.method):
                await self.program.notified(request)
            else:
                await self.own_notified(request)
        # A program's handler may raise anything, and nothing waits for an answer.
        except Exception:
            _log.exception("the handler of %r failed", request.method)

    async def own_notified(self, request: RequestContext) -> None:
        """The same past what a program has added, within a span while a program collects traces."""
        work = self._note(request)
        if tracing():
            work = server_span(work, request)
        await work

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Keep the server open for as long as the block runs."""
        return self._surface.opened()

    def input_schema(self, name: str, scope: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The input schema of a tool that the caller of an ASGI scope can call."""
        return self._surface.input_schema(name, scope)

    def end_streams(self) -> None:
        """End every `subscriptions/listen` stream in order."""
        self.subscriptions.end_streams()

    async def _note(self, request: RequestContext) -> dict[str, Any]:
        if not request.modern:
            match request.method:
                case "notifications/initialized":
                    request.connection.initialize_accepted = True
                    self.announcements.add(request.connection, request.identity)
                case "notifications/roots/list_changed":
                    client_of(request).roots_changed()
                case _:
                    pass
        return {}


def _stamped(answer: Answer, stamp: Mapping[str, Any]) -> Answer:
    async def stamped(request: RequestContext) -> dict[str, Any]:
        result = await answer(request)
        return {**result, "_meta": {**(result.get("_meta") or {}), **stamp}}

    return stamped


def _has_trace(request: RequestContext) -> bool:
    """Whether the client has sent its trace."""
    meta = None if request.params is None or "_meta" not in request.params else request.params["_meta"]
    return bool(meta) and "traceparent" in meta


async def _pong(request: RequestContext) -> dict[str, Any]:
    return {}
