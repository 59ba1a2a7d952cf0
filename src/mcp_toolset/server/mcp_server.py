"""`MCPServer`: answers all requests, of every transport.

A table leads from each method to what answers it. A program that has put middleware or handlers of its own
on `ToolsetServer.lowlevel`, the SDK's view of this server, has requests pass there first (`SdkHandlers`).
`News` compiles the tools again when a source changes, and sends `list_changed` to clients.
"""

from __future__ import annotations

import logging
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import anyio

from mcp_toolset._records import replace
from mcp_toolset.calls.decision import OTEL, tracing
from mcp_toolset.calls.dispatch import in_output_form
from mcp_toolset.calls.observers import Observation, TraceSampler, digest_of, label_of, report_of, tell
from mcp_toolset.calls.rules import Rules
from mcp_toolset.calls.suspended import SuspendedStore
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.catalog.instructions import BUDGET, instructions_of
from mcp_toolset.catalog.registry.registry import ToolRegistry
from mcp_toolset.concurrency.tasks import ThreadEvent, beside
from mcp_toolset.context.connection import APPS, RequestContext, client_of, extensions_in
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.context.spans import provide, server_span
from mcp_toolset.context.task import TASKS
from mcp_toolset.errors import (
    CallError,
    ClientCapabilityError,
    InvalidOutputError,
    NameConflictError,
    RequestStateError,
    UnknownNameError,
    UnknownToolError,
    UpstreamProtocolError,
)
from mcp_toolset.extending.joined import Extensions
from mcp_toolset.protocol.eras import (
    STRICTEST,
    CacheHint,
    Encoded,
    list_for,
    lowered_tool,
    result_for,
    with_tools,
)
from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, MCPError, json_of, refusal
from mcp_toolset.protocol.methods import MODERN_PROTOCOL_VERSIONS, NOTIFICATION_METHODS, SERVER_INFO_META_KEY
from mcp_toolset.protocol.server_machine import negotiated_version
from mcp_toolset.server.mounts import KeptCatalogs, Sight, UnlistedMounts, Visibility, toolsets_in
from mcp_toolset.server.offering import Offering, has_page
from mcp_toolset.server.resource_handlers import OVERLAP, Announcements, ResourceHandlers, Subscriptions
from mcp_toolset.server.tool_table import MAX_LISTS, ListVariants, ServedTools
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.opening import settled
from mcp_toolset.tools.result import AskUser, ElicitationAnswer, Halt, InputRequired, ToolResult, joined
from mcp_toolset.tools.signature import UNTYPED
from mcp_toolset.tools.source import ToolSource, not_ready, state_of
from mcp_toolset.tools.view import ToolBinding

if TYPE_CHECKING:
    from mcp_toolset.server.parts import OwnKeywords
    from mcp_toolset.server.view import ServerView
    from mcp_toolset.shared.state import SharedState

SERVERS_META_KEY: Final = "mcp-toolset/servers"
"""Where the answers to `initialize` and `server/discover` have the servers behind this one, in `_meta`."""


class ClientSide:
    """The side of a server that answers its clients: lists, calls, what a handshake says."""

    _mcp_server: cached_property[MCPServer]  # what answers the requests of clients
    registry: ToolRegistry  # which tools there are, and which of them can be called
    _speaking: ToolRegistry  # the one whose toolsets have words of their own
    extensions: Extensions
    grants: cached_property[GrantLedger]  # issues and judges the grants of deferred tools
    _own_instructions: str | None
    _own: OwnKeywords
    _kept: cached_property[KeptCatalogs]
    _news: cached_property[News]
    _served: cached_property[ServedTools]
    _unlisted: cached_property[UnlistedMounts]
    _visibility: cached_property[Visibility]
    _introductions: dict[object, str | None]
    _rules: cached_property[Rules]
    views: list[ServerView]  # the views of this server that are open

    def _withheld(self, identity: Identity | None) -> frozenset[str]:
        """The mounted servers that a caller, or one whom the policy treats the same, may not know of."""
        hides = self._visibility.hides_server
        secret = frozenset(name for name in self.registry.sources() if hides(name, identity))
        if self._own.get("access") is None or not self._served.defers:
            return secret
        return secret | self._served.catalog.withheld_servers(identity)

    async def _current(self) -> None:
        """See that what is served is what the sources say now."""
        if self._news.changed.is_set():
            await self._rebuild()
        else:
            await self._served.compiled_by_now()

    async def _rebuild(self) -> None:
        # Whatever was told so far is taken in by this.
        self._news.changed.clear()
        await self._served.compile()
        await self._kept.restore(self.registry.sources().values())
        self._mcp_server.told_of(self.registry.sources())
        text = self._mcp_server.handshake.instructions = self._introduction(None)
        self._introductions = {(self._visibility.group(None), False): text}
        for view in tuple(self.views):
            await view.refresh()

    def instructions_to(self, context: ToolContext) -> str | None:
        visible, known = self._visibility, self._introductions
        said = self._mcp_server.handshake.instructions
        whole = self._served.lists_all(context)
        # A text that a program has set by way of the SDK is for every caller.
        if (visible.policy is None and not whole) or said != known.get((visible.group(None), False)):
            return said
        key = (visible.group(context.identity), whole)
        text = known[key] if key in known else self._introduction(context.identity, whole=whole)
        if len(known) < MAX_LISTS:
            known[key] = text
        return text

    def _introduction(self, identity: Identity | None, *, whole: bool = False) -> str | None:
        sources, withheld = self.registry.sources(), self._withheld(identity)
        alone = self._served.passing()
        if alone is not None:
            said = alone.instructions
        else:
            known = [one for one in sources.items() if one[0] not in withheld]
            texts = (
                (name, source.instructions) for name, source in known if isinstance(source, MountedSource)
            )
            said = instructions_of(texts, self._own.get("max_instruction_tokens", BUDGET))
        own = self._instructions_of_toolsets(identity)
        preview = None if whole else self._served.preview(identity)
        parts = (self._own_instructions, *own, preview, said)
        return "\n\n".join(part for part in parts if part) or None

    def _instructions_of_toolsets(self, identity: Identity | None) -> Iterator[str]:
        """The words of the application's toolsets about their tools, if a caller may know of one of these."""
        served = list(self._served.table.values())
        # Mounted servers speak for themselves.
        every = (each for toolset in self._speaking.toolsets() for each in toolsets_in(toolset))
        speaking = {
            id(each): each for each in every if not isinstance(each, MountedSource) and each.instructions
        }
        for toolset in speaking.values():
            origins = {id(one.origin) for one in toolset.bindings()}
            those = [one for one in served if id(one.origin) in origins]
            if self._own.get("access") is not None:
                # The host decides for each caller, and this text is for all of a group.
                those = [one for one in those if not one.deferred]
            if any(not self._visibility.hides(one, identity) for one in those):
                yield toolset.instructions

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if call.name not in self._served.table or self._served.is_personal:
            await self.known_to(context)
            await self._current()
        if call.name not in self._served.table:
            if (public := self._of_an_app(call.name, context)) is not None:
                call = replace(call, name=public)
            elif source := await self._absent(call.name, context):
                return self._not_ready(source, call, context)
        served = self._served
        try:
            # A tool that is passed on without being listed has no place in the table.
            return await (served.dispatch if call.name in served.table else served).call(call, context)
        except UnknownToolError as fault:
            raise await self._unknown(fault, call.name, context) from None

    def _of_an_app(self, name: str, context: ToolContext) -> str | None:
        """The public name of the tool that a page of a mounted server calls by the server's own name.

        A page knows no other names. The client has to show pages, and only one server that has pages may have
        a tool of this name.
        """
        if not isinstance(context, WireContext) or APPS not in context.carried.get("extensions", ()):
            return None
        table = [one for one in self._served.table.values() if one.source]
        paged = {one.source for one in table if has_page(one)}
        found = [
            one.name
            for one in table
            if one.source in paged
            and one.definition.name == name
            and not self._visibility.hides(one, context.identity)
        ]
        return found[0] if len(found) == 1 else None

    async def _unknown(self, fault: UnknownToolError, name: str, context: ToolContext) -> UnknownToolError:
        """The error for a tool that does not exist for a caller, as it is for one that exists for none."""
        if self._visibility.policy is not None and name in self._served.table:
            # An unknown name waits for what may bring the tool, so a hidden one does.
            await self._unlisted.bring(lambda: False)
        hides = self._visibility.hides_server
        away = self._unlisted.away(name)
        away = [one for one in away if not hides(one.source_name, context.identity)]
        return not_ready(self._searchable(fault, context), away)

    def _searchable(self, fault: UnknownToolError, context: ToolContext) -> UnknownToolError:
        """The error with the way on, where tools are behind search: the same for every unknown name."""
        if not self._served.defers or self._served.lists_all(context):
            return fault
        from mcp_toolset.catalog.deferred.preparing import how_to_find

        return UnknownToolError(fault.name, how_to_find(fault.name))

    def listed(self, context: ToolContext) -> list[dict[str, Any]]:
        granted = self._served.granted(context)
        listed = self._served.listed_to(context)
        return [*listed, *granted] if granted else listed

    def unknown_to(self, context: ToolContext) -> bool:
        """True if it has still to be found out what some server lists to clients like this one."""
        return bool(self._served.lists.unknown_to(context)) or not self._knows_granted(context)

    def _knows_granted(self, context: ToolContext) -> bool:
        """True if nothing has to be fetched to say what a session was granted, and so is listed to it."""
        return context.session is None or not self._served.defers or self.grants.knows_held(context)

    async def known_to(self, context: ToolContext) -> None:
        if not self._knows_granted(context):
            await self.grants.know_held(context)
        if not (sources := self._served.lists.unknown_to(context)):
            return
        async with anyio.create_task_group() as group:
            for source in sources:
                group.start_soon(source.known_to, context)
        await self._current()

    def handshake_meta(self, identity: Identity | None) -> dict[str, Any]:
        withheld = self._withheld(identity)
        servers = [
            {"name": name, "state": source.status.state, **({"serverInfo": info} if info else {})}
            for name, source in self.registry.sources().items()
            if name not in withheld and isinstance(source, MountedSource)
            for info in (source.server_info(),)
        ]
        return {SERVERS_META_KEY: servers} if servers else {}

    async def arrive(self, context: ToolContext) -> None:
        """Wait for mounts of which nothing is known, as long as there is time, if their tools are listed."""
        await self._unlisted.arrive(listed=self._served.searches(context))

    def grants_issued(self, context: ToolContext) -> int:
        return self.grants.issued_to(context) if context.session and self._served.defers else 0

    async def definition(self, name: str, context: ToolContext) -> Mapping[str, str]:
        """The digest of a tool's definition, by its name, once its server is there; nothing without it."""
        if name not in self._served.table:
            await self._absent(name, context)
        binding = self._served.table.get(name)
        return {} if binding is None else {name: binding.definition.digest}

    async def _absent(self, name: str, context: ToolContext) -> ToolSource | None:
        """Wait for what may bring a tool of this name; its server if that is known and is not ready."""
        await self._unlisted.bring(lambda: name in self._served.table)
        found = None if name in self._served.table else self.registry.absent(name)
        if found is None or self._visibility.hides_absent(found[0], context.identity):
            return None
        source = found[1]
        await settled([source])
        await self._current()
        if name in self._served.table or not state_of(source.source_name, source.status):
            return None
        return source

    def _not_ready(self, source: ToolSource, call: ToolCall, context: ToolContext) -> ToolResult:
        """The error for a call of a tool whose server is not ready; observers are told."""
        name = source.source_name
        result = ToolResult.of_error(f"{call.name} cannot be called now: {state_of(name, source.status)}")
        reason = "the server is not ready"
        self.refused(call, context, tool=call.name, server=name, outcome="refused", reason=reason)
        return result

    def refused(
        self, call: ToolCall, context: ToolContext, fault: CallError | None = None, **told: str
    ) -> None:
        """Report a call that is refused before it gets to the dispatch table."""
        if observers := self._rules.observers:
            digest = digest_of(observers)
            binding = self._served.table.get(call.name)
            seen = Observation(binding, digest(call.arguments) if digest else "")
            seen.fault = fault
            tell(observers, replace(report_of(seen, call, context, None), **told))


HALT_META_KEY: Final = "mcp-toolset/halt"
"""In the `_meta` of a result: why the tool wants the loop to end after it."""


def halted(result: ToolResult) -> ToolResult:
    """The result with its halt said twice: in `_meta` for a program, in words for a model."""
    if result.halt is None:
        return result
    note = {"type": "text", "text": f"[The tool asks to stop here: {result.halt.reason}]"}
    meta: dict[str, Any] = {**(result.wire.get("_meta") or {}), HALT_META_KEY: result.halt.reason}
    return replace(result, wire={**result.wire, "content": [*result.content, note], "_meta": meta})


def fitted(binding: ToolBinding, output: Any) -> ToolResult:
    if isinstance(output, Halt):
        return replace(fitted(binding, output.result), halt=output)
    if isinstance(output, ToolResult | AskUser):
        return _checked(binding, UNTYPED.to_result(output, binding.name))
    if binding.output is None:
        structured = not isinstance(output, str | None)
        return _structured(binding, output) if structured else UNTYPED.to_result(output, binding.name)
    result = _structured(binding, output)
    return _checked(binding, in_output_form(binding.output, result, result.text))


def _structured(binding: ToolBinding, output: Any) -> ToolResult:
    try:
        text = output if isinstance(output, str) else None
        return ToolResult.of_structured(output, text=text)
    except ValueError as fault:
        raise InvalidOutputError(f"the output for {binding.name} has no JSON form: {fault}") from None


def _checked(binding: ToolBinding, result: ToolResult) -> ToolResult:
    if binding.output is None or result.is_error or not result.is_complete:
        return result
    if not binding.output.is_valid(result.structured):
        faults = "; ".join(binding.output.problems(result.structured))
        raise InvalidOutputError(f"the output for {binding.name} does not fit its output schema: {faults}")
    return result


def answered(binding: ToolBinding, asked: AskUser, answer: ElicitationAnswer) -> ToolResult:
    """The result of a call that asked the user: the answer, or that there is none."""
    # The answer to a question without a schema is its text.
    if answer.action == "decline":
        return ToolResult.of_error(f"{binding.name}: the user declined to answer: {asked.question}")
    if answer.action == "cancel":
        return ToolResult.of_error(f"{binding.name}: the user left the question unanswered: {asked.question}")
    content = dict(answer.content)
    if asked.schema is None:
        return fitted(binding, content["answer"])
    sole = next(iter(content.values())) if len(content) == 1 else content
    if binding.output is not None and not binding.output.is_valid(content):
        return fitted(binding, sole)
    return ToolResult.of_structured(content)


_NO_TOOL: Final[Mapping[str, Any]] = {}
_KeptList = tuple[list[dict[str, Any]], tuple[CacheHint, Mapping[str, Any]], Encoded]

MAX_VARIANTS: Final = 16  # lists of tools that are kept in JSON, for clients that do not see the same


class ToolAnswers:
    """Answers about tools, for one server."""

    def __init__(
        self,
        side: ClientSide,
        served: ServedTools,
        trips: RoundTrips,
        announcements: Announcements,
        stamp: Mapping[str, Any],
        extensions: Extensions,
    ) -> None:
        self._side = side
        self._served = served
        self._extensions = extensions
        self._trips = trips
        self._announcements = announcements
        self.definition = side.definition
        self.stamp = stamp  # what a server says of itself in modern results
        self.offers_tasks: Callable[[], bool] = lambda: False  # calls may become tasks
        self._lists: dict[tuple[bool, int], _KeptList] = {}

    async def list(self, request: RequestContext) -> dict[str, Any]:
        context = WireContext(request)
        await self._side.arrive(context)
        if self._side.unknown_to(context):
            await self._side.known_to(context)
        if (request.params or {}).get("cursor") is not None:
            raise MCPError(INVALID_PARAMS, "Unknown cursor: this server lists all its tools on one page")
        encoded, granted = self._encoded(context), self._served.granted(context)
        return with_tools(encoded, [lowered_tool(tool) for tool in granted]) if granted else encoded

    def _encoded(self, context: WireContext) -> Encoded:
        modern, tools = context.modern, self._served.listed_to(context)
        hint = self._served.list_hint() if modern else STRICTEST
        meta = self._served.list_meta(context.identity)
        known = self._lists.get((modern, id(tools)))
        if known is not None and known[0] is tools and known[1] == (hint, meta):
            return known[2]
        stamp = {**meta, **self.stamp} if modern else meta
        result = list_for(tools, modern=modern, stamp=stamp, hint=hint.to_wire())
        if len(self._lists) >= MAX_VARIANTS:
            self._lists.clear()
        self._lists[modern, id(tools)] = (tools, (hint, meta), encoded := Encoded(result, json_of(result)))
        return encoded

    async def call(self, request: RequestContext) -> dict[str, Any]:
        params: Mapping[str, Any] = request.params or {}
        context = WireContext(request)
        # What a modern client is granted is not on its list.
        counts = self._served.defers and not request.modern
        issued = self._side.grants_issued(context) if counts else 0
        try:
            result = await self._answered(ToolCall(params["name"], params.get("arguments") or {}), context)
        except (UnknownToolError, UpstreamProtocolError) as fault:
            raise refusal(fault) from None
        if counts and self._side.grants_issued(context) != issued:
            await self._announcements.to(request.connection)
        told = result if result.halt is None else halted(result)
        return result_for(told.wire, version=request.protocol_version, stamp=self.stamp)

    def listed(self, name: str, context: WireContext) -> Mapping[str, Any]:
        every = (*self._served.listed_to(context), *self._served.granted(context))
        return next((tool for tool in every if tool["name"] == name), _NO_TOOL)

    async def result(self, call: ToolCall, context: WireContext) -> dict[str, Any]:
        """The result of a call for a client, on the wire; `InputRequired` once it is handed over."""
        try:
            result = await self._answered(call, context)
        except (UnknownToolError, UpstreamProtocolError) as fault:
            raise refusal(fault) from None
        return result_for(halted(result).wire, version=context.protocol_version or "", stamp=self.stamp)

    async def _answered(self, call: ToolCall, context: WireContext) -> ToolResult:
        """Run a call, or run it again with what the client answers; or ask the client."""
        bound = (call.name, call.arguments, context.principal)
        filled: ToolCall | None = None
        try:
            if context.resume(self._trips, call):
                tools = await self._side.definition(call.name, context)
                await self._trips.claim(context.replay, tools)
            filled = call if self._extensions.sent is None else self._extensions.sent(call, context)
            try:
                result = await self._side.call(filled, context)
                if self._extensions.answered is not None:
                    result = self._extensions.answered(result, filled, context)
            except (InputRequired, BaseExceptionGroup) as fault:
                asking = joined(fault)
                if not isinstance(asking, InputRequired) or context.is_handed_over:
                    raise asking from None
                tools = await self._side.definition(call.name, context)
                return self._trips.suspend(context.replay, asking.requests, *bound, tools=tools)
            if result.is_complete or context.is_handed_over:
                return result
            tools = await self._side.definition(call.name, context)
            return self._trips.relayed(result, context.replay, *bound, tools=tools)
        except CallError as fault:
            if filled is None:
                # What a client refers to was not there: no tool was looked up, and so nothing was reported.
                self._side.refused(call, context, fault)
            return _failed(fault, context)


def _failed(fault: CallError, context: WireContext) -> ToolResult:
    """The result of a call that failed; some faults are errors of the protocol."""
    if isinstance(fault, UnknownToolError):
        raise fault
    if isinstance(fault, RequestStateError) or (isinstance(fault, ClientCapabilityError) and context.modern):
        raise refusal(fault) from None
    return ToolResult.of_error(str(fault))


_TOLD: Final = 16
"""Clients that the log names in one second."""

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
        request.connection.accept(version, params.get("clientInfo"), params.get("capabilities"))
        self._log_client(request, version)
        return self._introducing(answer, request)

    async def discover(self, request: RequestContext) -> dict[str, Any]:
        answer = {
            "resultType": "complete",
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": self.capabilities(request.identity, modern=True),
            **STRICTEST.to_wire(),
        }
        self._log_client(request, request.protocol_version)
        return self._introducing(answer, request)

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

    def _introducing(self, answer: dict[str, Any], request: RequestContext) -> dict[str, Any]:
        if (text := self._side.instructions_to(WireContext(request))) is not None:
            answer["instructions"] = text
        meta = self._side.handshake_meta(request.identity)
        return {**answer, "_meta": meta} if meta else answer


Answer = Callable[[RequestContext], Awaitable[dict[str, Any]]]


class SdkHandlers(ABC):
    """Additions of a program to this server by way of the SDK."""

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
        self.traces = traces  # chooses requests, if the program collects none
        self.shared = shared  # what replicas of the server share; `None` without replicas
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
        """Tell the extensions of the mounted servers, and ask what answers each method from now on."""
        self._extensions.compiled(sources)
        self._answers = self._composed()

    @cached_property
    def _answers(self) -> Mapping[str, Answer]:
        """The answers by method; the empty one stands for unknown methods."""
        return self._composed()

    def _composed(self) -> Mapping[str, Answer]:
        answers = dict(self._own)
        self._extensions.intercepting(answers)
        for method in ("initialize", "server/discover"):
            answers[method] = partial(self._once_arrived, answers[method])
        return answers

    async def _once_arrived(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        """Answer a handshake; wait a little for mounted servers that may have an extension of the client."""
        said = (request.params or {}).get("capabilities") or request.connection.client_capabilities
        if any(name not in _OWN_EXTENSIONS for table in extensions_in(said).values() for name in table):
            before = self._answers
            await self._offering.arrive()
            if self._answers is not before:
                # A server that has arrived may have turned an extension on, which stands around the answer.
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
        """The same past what a program has added, within a span while a program collects traces."""
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
            for told in self._extensions.notified:
                await told(request)
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
        """A callback for changes of any kind of a source, which finds out whether the tools are others."""
        if not isinstance(source, MountedSource):
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
            self._answers.told_of(self._served.registry.sources())

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
            if self._served.varies_by_client and deferred != before:
                await self._answers.announcements.tools()
            elif (others := told.may_differ(lists)) or saying:
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
