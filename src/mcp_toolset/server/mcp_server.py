"""`MCPServer`: answers all requests, of every transport.

A table leads from each method to what answers it. A program that has put middleware or handlers of its own
on `ToolsetServer.lowlevel`, the SDK's view of this server, has requests pass there first (`SdkHandlers`).
`News` compiles the tools again when a source changes, and sends `list_changed` to clients.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol

from mcp_toolset.calls.decision import tracing
from mcp_toolset.calls.observers import TraceSampler, label_of
from mcp_toolset.calls.suspended import SuspendedStore
from mcp_toolset.concurrency.tasks import ThreadEvent, beside
from mcp_toolset.context.connection import RequestContext, client_of
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.context.shared import Shared
from mcp_toolset.context.spans import provide, server_span
from mcp_toolset.context.task import TASKS
from mcp_toolset.errors import NameConflictError, UnknownNameError
from mcp_toolset.extending.joined import Extensions
from mcp_toolset.protocol.eras import STRICTEST
from mcp_toolset.protocol.methods import MODERN_PROTOCOL_VERSIONS, SERVER_INFO_META_KEY
from mcp_toolset.protocol.server_machine import negotiated_version
from mcp_toolset.server.offering import Offering
from mcp_toolset.server.resource_handlers import OVERLAP, Announcements, ResourceHandlers, Subscriptions
from mcp_toolset.server.tool_answers import ServerSurface, ToolAnswers
from mcp_toolset.server.tool_table import ListVariants, ServedTools
from mcp_toolset.server.visibility import Sight
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.source import ToolSource, fits

_TOLD: Final = 16
"""Clients that the log names in one second."""

_log: Final = logging.getLogger("mcp_toolset.server")


class Handshake:
    """The name, the version, the instructions and the capabilities of one server."""

    def __init__(
        self, surface: ServerSurface, offering: Offering, *, name: str, version: str, instructions: str | None
    ) -> None:
        self._surface = surface
        self._offering = offering
        self.info: Mapping[str, Any] = {"name": name, "version": version}
        self.instructions = instructions  # text for the model; it changes with what is served
        self.has_tasks: Callable[[], bool] = lambda: False  # own tools may be tasks
        self.methods: Container[str] = ()  # the methods that are answered
        self.extensions: Mapping[str, Any] = {}
        self._since, self._told = -math.inf, 0

    def capabilities(self, identity: Identity | None = None, *, modern: bool) -> dict[str, Any]:
        declares = partial(self._offering.declares, identity=identity)
        found: dict[str, Any] = {"tools": {"listChanged": True}}
        if declares("resources"):
            found["resources"] = {"subscribe": declares("resources", "subscribe"), "listChanged": True}
        if declares("prompts"):
            found["prompts"] = {"listChanged": True}
        if declares("completions"):
            found["completions"] = {}
        if declares("logging", "" if modern else "setLevel"):
            found["logging"] = {}
        extensions: dict[str, Any] = dict(self.extensions)
        if self.offers_tasks(identity):
            if modern:
                extensions[TASKS] = {}
            else:
                # Whose tasks they are is not known without a login, so there is no `list`.
                found["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        theirs = self._offering.extensions()
        if extensions := {**theirs.get("extensions", {}), **extensions}:
            found["extensions"] = extensions
        if "experimental" in theirs:
            found["experimental"] = theirs["experimental"]
        return found

    def offers_tasks(self, identity: Identity | None = None) -> bool:
        declared = self._offering.declared
        return "tasks/get" in self.methods and (
            self.has_tasks()
            or declared("extensions", TASKS, identity)
            or declared("tasks", "requests", identity)
        )

    async def initialize(self, request: RequestContext) -> dict[str, Any]:
        """The answer to the handshake of a legacy client, whose connection is open from then on."""
        params = request.params or {}
        version = negotiated_version(params.get("protocolVersion", ""))
        answer = {
            "protocolVersion": version,
            "capabilities": self.capabilities(request.identity, modern=False),
            "serverInfo": self._offering.server_info() or dict(self.info),
        }
        answer = self._introducing(answer, request.identity)
        request.connection.accept(version, params.get("clientInfo"), params.get("capabilities"))
        self._log_client(request, version)
        return answer

    async def discover(self, request: RequestContext) -> dict[str, Any]:
        answer = {
            "resultType": "complete",
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": self.capabilities(request.identity, modern=True),
            **STRICTEST.to_wire(),
        }
        self._log_client(request, request.protocol_version)
        return self._introducing(answer, request.identity)

    def _log_client(self, request: RequestContext, version: str | None) -> None:
        if not _log.isEnabledFor(logging.INFO):
            return
        if (now := monotonic()) - self._since > 1:
            self._since, self._told = now, 0
        self._told += 1
        if self._told <= _TOLD:
            name = in_log(label_of(request.connection.client_info or {}) or "a client without a name")
            _log.info("%s asks what is served, in revision %s", name, version, extra={"client": name})
        elif self._told == _TOLD + 1:
            _log.info("more clients ask what is served; at most %s a second are named here", _TOLD)

    def _introducing(self, answer: dict[str, Any], identity: Identity | None) -> dict[str, Any]:
        if (text := self._surface.instructions_to(identity)) is not None:
            answer["instructions"] = text
        meta = self._surface.handshake_meta(identity)
        return {**answer, "_meta": meta} if meta else answer


Answer = Callable[[RequestContext], Awaitable[dict[str, Any]]]


class SdkHandlers(Protocol):
    """What a program has added to this server by way of the SDK."""

    def takes(self, method: str) -> bool: ...
    async def answer(self, request: RequestContext) -> dict[str, Any]: ...
    async def notified(self, request: RequestContext) -> None: ...


class MCPServer:
    """Answers the requests to one toolset server; see `context.connection.Answers`."""

    def __init__(
        self,
        surface: ServerSurface,
        served: ServedTools,
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
        provide()
        self._surface = surface
        self._served = served
        self.subscriptions = Subscriptions(overlap=0.0 if shared is None else OVERLAP)
        self.announcements = Announcements(self.subscriptions, offering)
        self.handshake = Handshake(surface, offering, name=name, version=version, instructions=instructions)
        stamp: Mapping[str, Any] = {SERVER_INFO_META_KEY: self.handshake.info}
        trips = RoundTrips(store=suspended)
        tools = self.tools = ToolAnswers(surface, served, trips, self.announcements, stamp, extensions)
        tools.offers_tasks = self.handshake.offers_tasks
        self.reading = ResourceHandlers(offering, trips, self.subscriptions, stamp)
        self.program: SdkHandlers | None = None
        self.traces = traces  # chooses requests, if the program collects none
        self.shared = shared  # what replicas of the server share; `None` without replicas
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

    def opened(self) -> AbstractAsyncContextManager[None]:
        return self._surface.opened()

    def input_schema(self, name: str, scope: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._served.input_schema(name, scope)

    def end_streams(self) -> None:
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
    meta = None if request.params is None or "_meta" not in request.params else request.params["_meta"]
    return bool(meta) and "traceparent" in meta


async def _pong(request: RequestContext) -> dict[str, Any]:
    return {}


class News:
    """Compiles anew after changes, and announces what clients see of them."""

    def __init__(self, served: ServedTools, offering: Offering, answers: MCPServer) -> None:
        self.changed = ThreadEvent()  # to be set when tools or members have changed
        self.status = ThreadEvent()  # set when only the status of a source, or what it offers, has changed
        self.revoked = ThreadEvent()  # to be set when grants were taken back
        self._served = served
        self._offering = offering
        self._answers = answers

    def attach(self) -> None:
        self.changed.attach()
        self.status.attach()
        self.revoked.attach()

    @asynccontextmanager
    async def running(self, compiled: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
        await self._offering.news()
        async with beside(
            partial(self._follow, compiled),
            self._follow_status,
            partial(self._announce, self._served.lists, self._served.visibility.sight),
            self._announce_grants,
            self._answers.reading.announce_updates,
        ):
            yield

    async def _follow(self, compiled: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self.changed.wait()
            try:
                await compiled()
            # A toolset of the application's own came to name two tools alike, or a strict rule has no tool;
            # what was served stays.
            except (NameConflictError, UnknownNameError) as fault:
                _log.warning("the tools stay as they were: %s", fault)

    def watching(self, source: ToolSource) -> Callable[[], None]:
        """What a source is to call after a change of any kind: it finds out whether the tools are others."""
        if not fits(source, MountedSource):
            return self.changed.set
        seen = source.snapshot

        def told() -> None:
            nonlocal seen
            before, seen = seen, source.snapshot
            (self.status if seen is before else self.changed).set()

        return told

    async def _follow_status(self) -> None:
        """Take a status in without compiling; a mount that is no longer starting may settle names."""
        while True:
            await self.status.wait()
            if not await self._served.take_statuses():
                self.changed.set()
            self._answers.compose()

    async def _announce(self, told: ListVariants, seen: Sight) -> None:
        """Tell clients about a changed list, however many steps led to it, once."""
        # A server may say that a list has changed which is the same again by now: its clients are told.
        self._served.moved.attach()
        self._served.moved.clear()
        deferred = self._served.deferred_digests()
        while True:
            before, deferred = deferred, self._served.deferred_digests()
            said = self._offering.said()
            saying = [source for source in _saying("tools", said) if self._served.lists_some(source)]
            lists, told = told, self._served.lists
            sight, seen = seen, self._served.visibility.sight
            if (others := told.may_differ(lists)) or saying:
                await self._answers.announcements.tools(
                    # Another list may be the host's doing, of which no session of a client tells it.
                    () if others else saying,
                    to=partial(self._lists_otherwise, told, lists, saying),
                )
            elif deferred != before:
                await self._answers.announcements.grants()
            news = await self._offering.news()
            for capability in ("resources", "prompts"):
                if sources := _saying(capability, said):
                    news[capability] = news.get(capability, frozenset()).union(sources)
            names = self._served.registry.sources()
            may_see_others = sight.policy is not None or seen.policy is not None
            flipped = partial(seen.differs, sight, names) if may_see_others else None
            await self._answers.announcements.offers(news, flipped)
            await self._answers.announcements.lists(self._offering.list_news())
            await self._served.moved.wait()

    def _lists_otherwise(
        self, now: ListVariants, before: ListVariants, saying: Sequence[str], identity: Identity | None
    ) -> bool:
        """True if a caller sees another list, or a server that says so, or may have lost a grant."""
        if now.differs(before, identity) or (self._served.defers and now.policy is not before.policy):
            return True
        return bool(saying) and self._offering.sees_some(saying, identity)

    async def _announce_grants(self) -> None:
        while True:
            await self.revoked.wait()
            await self._answers.announcements.grants()


def _saying(capability: str, said: Mapping[str, frozenset[str]]) -> list[str]:
    return [name for name, each in said.items() if capability in each]
