"""`MCPServer`: answers the requests of all transports.

A table has the handler of each method. If a program has added middleware or handlers to
`ToolsetServer.lowlevel`, the SDK's view of this server, requests pass them first (`SdkHandlers`).
"""

from __future__ import annotations

import logging
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from mcp_toolset.calls.decision import OTEL, tracing
from mcp_toolset.calls.observers import TraceSampler, label_of
from mcp_toolset.calls.suspended import SuspendedStore
from mcp_toolset.context.connection import APPS, RequestContext, client_of, extensions_in
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.context.spans import provide, server_span
from mcp_toolset.context.task import TASKS
from mcp_toolset.extending.joined import Extensions
from mcp_toolset.protocol.eras import STRICTEST
from mcp_toolset.protocol.methods import MODERN_PROTOCOL_VERSIONS, NOTIFICATION_METHODS, SERVER_INFO_META_KEY
from mcp_toolset.protocol.server_machine import negotiated_version
from mcp_toolset.server.offering import Offering
from mcp_toolset.server.resource_handlers import OVERLAP, Announcements, ResourceHandlers, Subscriptions
from mcp_toolset.server.tool_answers import ToolAnswers
from mcp_toolset.server.tool_table import ServedTools
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.source import ToolSource

if TYPE_CHECKING:
    from mcp_toolset.server.client_side import ClientSide
    from mcp_toolset.shared.state import SharedState


_MAX_LOGGED: Final = 16
"""The number of clients that the log names in one second."""

_log: Final = logging.getLogger("mcp_toolset.server")


_OWN_EXTENSIONS: Final = frozenset((APPS, TASKS))
"""The extensions of clients that do not depend on what mounted servers declare."""


class Handshake:
    """The name, the version, the instructions and the capabilities of one server."""

    def __init__(
        self, side: ClientSide, offering: Offering, *, name: str, version: str, instructions: str | None
    ) -> None:
        self._side = side
        self._offering = offering
        self.info: Mapping[str, Any] = {"name": name, "version": version}
        self.instructions = instructions  # for the model; they change with the tools
        self.has_tasks: Callable[[], bool] = lambda: False  # true if own tools may be tasks
        self.methods: Container[str] = ()  # the methods with a handler
        self.extensions: Mapping[str, Any] = {}
        self._second, self._logged = -math.inf, 0

    def capabilities(self, identity: Identity | None = None, *, modern: bool) -> dict[str, Any]:
        declares = partial(self._offering.declares, identity=identity)
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
        if declares("resources"):
            capabilities["resources"] = {"subscribe": declares("resources", "subscribe"), "listChanged": True}
        if declares("prompts"):
            capabilities["prompts"] = {"listChanged": True}
        if declares("completions"):
            capabilities["completions"] = {}
        if declares("logging", "" if modern else "setLevel"):
            capabilities["logging"] = {}
        extensions: dict[str, Any] = dict(self.extensions)
        if self.offers_tasks(identity):
            if modern:
                extensions[TASKS] = {}
            else:
                # Without a login the owner of a task is unknown, so there is no `list`.
                capabilities["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        mounted = self._offering.extensions()
        if extensions := {**mounted.get("extensions", {}), **extensions}:
            capabilities["extensions"] = extensions
        if "experimental" in mounted:
            capabilities["experimental"] = mounted["experimental"]
        return capabilities

    def offers_tasks(self, identity: Identity | None = None) -> bool:
        declared = self._offering.declared
        return "tasks/get" in self.methods and (
            self.has_tasks()
            or declared("extensions", TASKS, identity)
            or declared("tasks", "requests", identity)
        )

    async def initialize(self, request: RequestContext) -> dict[str, Any]:
        """Answer the handshake of a legacy client, which opens its connection."""
        params = request.params or {}
        version = negotiated_version(params.get("protocolVersion", ""))
        answer = {
            "protocolVersion": version,
            "capabilities": self.capabilities(request.identity, modern=False),
            "serverInfo": self._offering.server_info() or dict(self.info),
        }
        request.connection.accept(version, params.get("clientInfo"), params.get("capabilities"))
        self._log_client(request, version)
        return self._with_introduction(answer, request)

    async def discover(self, request: RequestContext) -> dict[str, Any]:
        answer = {
            "resultType": "complete",
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": self.capabilities(request.identity, modern=True),
            **STRICTEST.to_wire(),
        }
        self._log_client(request, request.protocol_version)
        return self._with_introduction(answer, request)

    def _log_client(self, request: RequestContext, version: str | None) -> None:
        if not _log.isEnabledFor(logging.INFO):
            return
        if (now := monotonic()) - self._second > 1:
            self._second, self._logged = now, 0
        self._logged += 1
        if self._logged <= _MAX_LOGGED:
            name = in_log(label_of(request.connection.client_info or {}) or "a client without a name")
            _log.info("%s asks what is served, in revision %s", name, version, extra={"client": name})
        elif self._logged == _MAX_LOGGED + 1:
            _log.info("more clients ask what is served; at most %s a second are named here", _MAX_LOGGED)

    def _with_introduction(self, answer: dict[str, Any], request: RequestContext) -> dict[str, Any]:
        if (text := self._side.instructions_to(WireContext(request))) is not None:
            answer["instructions"] = text
        meta = self._side.handshake_meta(request.identity)
        return {**answer, "_meta": meta} if meta else answer


Answer = Callable[[RequestContext], Awaitable[dict[str, Any]]]


class SdkHandlers(ABC):
    """Handlers and middleware that a program has added through the SDK."""

    @abstractmethod
    def takes(self, method: str) -> bool: ...

    @abstractmethod
    async def answer(self, request: RequestContext) -> dict[str, Any]: ...

    @abstractmethod
    async def notified(self, request: RequestContext) -> None: ...


class MCPServer:
    """Answers the requests to one toolset server; see `context.connection.Answers`."""

    def __init__(
        self,
        side: ClientSide,
        served: ServedTools,
        opened: Callable[[], AbstractAsyncContextManager[None]],
        *,
        name: str,
        version: str,
        instructions: str | None,
        offering: Offering,
        extensions: Extensions,
        shared: SharedState | None = None,
        suspended: SuspendedStore | None = None,
        traces: TraceSampler | None = None,
    ) -> None:
        provide()
        self._side = side
        self._served = served
        self._offering = offering
        self.subscriptions = Subscriptions(overlap=0.0 if shared is None else OVERLAP)
        self.announcements = Announcements(self.subscriptions, offering)
        self.handshake = Handshake(side, offering, name=name, version=version, instructions=instructions)
        stamp: Mapping[str, Any] = {SERVER_INFO_META_KEY: self.handshake.info}
        trips = RoundTrips(store=suspended)
        tools = self.tools = ToolAnswers(side, served, trips, self.announcements, stamp, extensions)
        tools.offers_tasks = self.handshake.offers_tasks
        self.reading = ResourceHandlers(offering, trips, self.subscriptions, stamp)
        self.program: SdkHandlers | None = None
        self.traces = traces  # samples requests, if the program collects no traces
        self.shared = shared  # the state of all replicas; `None` without replicas
        self.opened = opened
        self.input_schema = served.input_schema
        self.end_streams = self.subscriptions.end_streams
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

    def told_of(self, sources: Mapping[str, ToolSource]) -> None:
        """Tell the extensions the mounted servers, and compose the table of handlers again."""
        self._extensions.compiled(sources)
        self._answers = self._composed()

    @cached_property
    def _answers(self) -> Mapping[str, Answer]:
        """The handlers by method, with those of extensions; the empty name stands for unknown methods."""
        return self._composed()

    def _composed(self) -> Mapping[str, Answer]:
        answers = dict(self._own)
        self._extensions.intercepting(answers)
        for method in ("initialize", "server/discover"):
            answers[method] = partial(self._answer_handshake, answers[method])
        return answers

    async def _answer_handshake(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        """Answer a handshake, after a limited wait for servers that may have an extension of the client."""
        capabilities = (request.params or {}).get("capabilities") or request.connection.client_capabilities
        names = {name for table in extensions_in(capabilities).values() for name in table}
        if names - _OWN_EXTENSIONS:
            before = self._answers
            await self._offering.arrive()
            if self._answers is not before:
                # A server that is ready now may have turned on an extension that changes the answer.
                return await self._answers[request.method](request)
        return await answer(request)

    def answer(self, request: RequestContext) -> Awaitable[dict[str, Any]]:
        if self.program is not None and self.program.takes(request.method):
            return self.program.answer(request)
        if self.traces is not None or (OTEL in sys.modules and tracing()):
            return self.own_answer(request)
        answers = self._answers
        return (answers.get(request.method) or answers[""])(request)

    def own_answer(self, request: RequestContext) -> Awaitable[dict[str, Any]]:
        """`answer` without the handlers of the program, within a span if the request is traced."""
        answers = self._answers
        work = (answers.get(request.method) or answers[""])(request)
        if tracing():
            return server_span(work, request)
        traces = self.traces
        if traces is not None and (traces.due or _has_trace(request)):
            if traces.sampled((request.params or {}).get("_meta")):
                return server_span(work, request, traces)
        return work

    async def notified(self, request: RequestContext) -> None:
        try:
            if self.program is not None and self.program.takes(request.method):
                await self.program.notified(request)
            else:
                await self.own_notified(request)
        # A program's handler may raise anything, and nothing waits for an answer.
        except Exception:
            _log.exception("the handler of %r failed", request.method)

    async def own_notified(self, request: RequestContext) -> None:
        work = self._note(request)
        if tracing():
            work = server_span(work, request)
        await work

    async def _note(self, request: RequestContext) -> dict[str, Any]:
        if request.method not in NOTIFICATION_METHODS:
            for handler in self._extensions.notified:
                await handler(request)
        elif not request.modern:
            match request.method:
                case "notifications/initialized":
                    request.connection.initialize_accepted = True
                    self.announcements.add(request.connection, request.identity)
                case "notifications/roots/list_changed":
                    client_of(request).roots_changed.tell()
                case _:
                    pass
        return {}


def _stamped(answer: Answer, stamp: Mapping[str, Any]) -> Answer:
    async def stamped(request: RequestContext) -> dict[str, Any]:
        result = await answer(request)
        return {**result, "_meta": {**(result.get("_meta") or {}), **stamp}}

    return stamped


def _has_trace(request: RequestContext) -> bool:
    meta = None if request.params is None or "_meta" not in request.params else request.params["_meta"]
    return bool(meta) and "traceparent" in meta


async def _pong(request: RequestContext) -> dict[str, Any]:
    return {}
