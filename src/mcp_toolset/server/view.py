"""`ServerView`: some of a server's tools under a name of their own, for clients that see nothing else.

A view is a server of its own over the tools that another server has compiled. It has its own table, lists,
search, grants, sessions and tasks, so that nothing of another view is in it. The mounted servers, which it
neither opens nor closes, the rules, and the stores that are one for all are those of the other server.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from difflib import get_close_matches
from functools import cached_property, partial
from types import CoroutineType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import anyio

from mcp_toolset._records import replace
from mcp_toolset.calls.observers import VIEW
from mcp_toolset.catalog.registry.state import RegistryEntry, ToolKey
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.errors import DefinitionError, NameConflictError, StateError, UnknownNameError
from mcp_toolset.extending.host import ViewOptions
from mcp_toolset.extending.joined import Extensions, extensions_of_view
from mcp_toolset.security.patterns import Permissions, Section, ToolFacts, hints_of
from mcp_toolset.security.policy import Policy
from mcp_toolset.server.handler_context import ManualCalls
from mcp_toolset.server.mcp_server import MCPServer
from mcp_toolset.server.mounts import Visibility, permissions_in, unused_by, unused_patterns
from mcp_toolset.server.parts import OWN, ServerHost
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.server.tool_table import ServedTools
from mcp_toolset.tools.binding import Gate, NameUse, ToolBinding
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.definition import prefix_from
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.opening import OpeningWait
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import SourceStatus, ToolSource
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.toolset import Toolset
from mcp_toolset.tools.view import Made, NameReport, UnboundName, same

if TYPE_CHECKING:
    from mcp_toolset.calls.middleware import Guard
    from mcp_toolset.config.extensions import ServerSettings, Settings
    from mcp_toolset.extending.extension import Extension

_log = logging.getLogger("mcp_toolset.server")

_ALIKE = ("rules", "policy", "capabilities", "completions")
"""Arguments of a server that its views have as well; resources and prompts follow the tools."""


_UNKNOWN = hints_of(None)


class _Stated(Toolset):
    """A toolset without tools that states permissions."""

    def __init__(self, stated: Permissions) -> None:
        super().__init__()
        self.stated_permissions = stated


class ViewToolset(Toolset):
    """The tools of a server that a view has, as the server has them at the moment."""

    def __init__(self, server: ToolsetServer, options: ViewOptions) -> None:
        self._server = server
        self._added = frozenset(map(id, server.added_tools))
        self._made = Made(self._viewed)
        self._stated: list[_Stated] = []
        self._compiled: tuple[list[ToolBinding], object, list[ToolBinding]] = ([], None, [])
        self.become(options)
        super().__init__(name=server.toolset.name)

    def become(self, options: ViewOptions) -> None:
        self._options = options
        self._chosen = Policy.of(Permissions(Section(f"{options.place}.tools", allow=options.tools)))

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        every = [one for toolset in self._server.registry.toolsets() for one in permissions_in(toolset)]
        stated = [*every, *(() if self._options.permissions is None else (self._options.permissions,))]
        if stated != [one.stated_permissions for one in self._stated]:
            self._stated = [*map(_Stated, stated)]
        return iter(self._stated)

    def compiled(self, turn: object) -> list[ToolBinding]:
        bindings, (known, options, done) = self._server.registry.admitting(), self._compiled
        if options is not self._options or not same(bindings, known):
            made = self._made.of(bindings, self._options)
            done = [one for one in made if one is not None]
            self._compiled = (bindings, self._options, done)
        return list(done)

    def sources(self) -> list[ToolSource]:
        registry = self._server.registry
        chosen = {one.source for one in self.compiled(None)}
        listed = {one.source for one in registry.bindings()}
        return [
            source
            for name, source in registry.sources().items()
            if name in chosen or (name not in listed and self._may_have(name))
        ]

    def listing_sources(self) -> list[ToolSource]:
        if (defers := self._options.defers) is not None:
            return [] if defers else self.sources()
        deferring = self._server.registry.deferring()
        return [one for one in self.sources() if one.source_name not in deferring]

    @property
    def defers(self) -> bool:
        if (defers := self._options.defers) is not None:
            return defers
        deferring = self._server.registry.deferring()
        return any(one.deferred for one in self.compiled(None)) or any(
            one.source_name in deferring for one in self.sources()
        )

    @property
    def extension_keys(self) -> frozenset[str]:
        return frozenset()

    @property
    def has_local(self) -> bool:
        """True if it has some tool of the program, or all there could be."""
        return "*" in self._options.tools or any(not one.source for one in self.compiled(None))

    def misfits(self, tools: Sequence[ToolBinding], guards: Iterable[Any]) -> list[UnboundName]:
        """The patterns and names of the view that fit no tool of the server.

        Args:
            tools: The tools of the server that patterns are held against.
            guards: The guards that the view has and the server has not.
        """
        options, known = self._options, self._server.registry.known_tools()
        every = self._server.extensions
        facts = known, tools, every.judged, every.unjudged
        stated = [] if options.permissions is None else [Policy.of(options.permissions)]
        in_program = not options.place.startswith("toolset.")
        found = [
            replace(one, where=f"{options.place}.tools")
            for one in unused_patterns(self._chosen, *facts, in_program=in_program)
        ]
        found += (one for each in stated for one in unused_patterns(each, *facts, in_program=in_program))
        found += (
            replace(one, where=f"{options.place}.{one.where}") for one in unused_by(guards, known, tools)
        )
        public = {one.name for one in tools}
        uses = (NameUse(one, f"{options.place}.names") for one in options.names if one not in public)
        return [*found, *(known.missing(use, get_close_matches(use.name, public, 1)) for use in uses)]

    def includes(self, thing: ToolFacts) -> bool:
        """True if the patterns of the view choose something of the server."""
        return self._chosen.decide_facts(thing, ()).kind != "deny"

    def of_status(self, server: str, status: SourceStatus) -> SourceStatus:
        """The status of a server as far as it is about tools of the view."""

        def has(tool: str, hints: frozenset[str] = _UNKNOWN) -> bool:
            name = self._server.registry.name_of(ToolKey(server, tool))
            facts = ToolFacts(name, "", server, tool, hints)
            return self.includes(facts)

        return replace(
            status,
            tools=sum(one.source == server for one in self.compiled(None)),
            set_aside=tuple(one for one in status.set_aside if has(one[0])),
            flagged=tuple(one for one in status.flagged if has(one[0])),
            changes=tuple(
                one
                for one in status.changes
                if has(one.name, hints_of((one.pinned or one.offered).annotations))
            ),
        )

    def _may_have(self, server: str) -> bool:
        """True if patterns name a server that has not listed its tools, or choose all of its tools."""
        start = f"{prefix_from(server)}_"
        if any(one.startswith((start, f"{server}/")) for one in self._options.tools):
            return True
        return self._chosen.decide_facts(self._chosen.any_tool_of(server), ()).kind != "deny"

    def _viewed(self, binding: ToolBinding) -> ToolBinding | None:
        if id(binding.origin) in self._added or not self._chosen.chooses(binding):
            return None
        options, name, gate = self._options, binding.name, binding.gate
        new = options.names.get(name, name)
        if new != name and binding.asked:
            _log.warning(
                "%s: %s keeps its name, as two tools of the server ask for %s",
                *(options.place, in_log(name), in_log(binding.asked)),
            )
            new = name
        if new != name:
            # Rules know the tool by the name that it has at the server.
            binding, gate = replace(binding.called(new), own=name), gate and partial(_under, name, gate)
        deferred = binding.deferred if options.defers is None else options.defers
        if binding.gate is gate and binding.deferred == deferred:
            return binding
        return replace(binding, gate=gate, deferred=deferred)


def _under(name: str, gate: Gate, call: ToolCall, context: ToolContext) -> None:
    gate(replace(call, name=name), context)


class _ViewHost(ServerHost):
    """A view as its extensions see it."""

    def __init__(self, server: ToolsetServer, own: ServerView, *facts: Any, **parts: Any) -> None:
        super().__init__(*facts, **parts)
        self._server, self._view = server, own
        self.outer = server.extensions.get
        self.stated, self.stated_by_server = server.host.stated, server.host.stated_by_server

    @property
    def view(self) -> str:
        return self._view.options.name

    def includes(self, thing: ToolFacts) -> bool:
        return self._view.toolset.includes(thing)

    @property
    def served_as(self) -> str:
        return f"{self._server.host.served_as}#{self.view}"

    @property
    def identified(self) -> str:
        return f"{self._server.host.identified}#{self.view}"

    @property
    def configuration(self) -> None:
        return None

    def stated_by_file(self, key: str) -> Sequence[tuple[Settings | None, Mapping[str, ServerSettings]]]:
        own = self._view.options.settings.get(key)
        return [*self._server.host.stated_by_file(key), *([] if own is None else [(own, {})])]


class _ViewTools(ServedTools):
    """The tools of a view, with statuses of mounted servers that tell of these tools alone."""

    seen: Callable[[str, SourceStatus], SourceStatus] | None = None
    known: Callable[[ToolBinding], dict[str, Any] | None] | None = None

    def _wire(self, binding: ToolBinding) -> dict[str, Any]:
        known = None if self.known is None else self.known(binding)
        return super()._wire(binding) if known is None else known

    def statuses(self) -> dict[str, SourceStatus]:
        seen, every = self.seen, super().statuses()
        return every if seen is None else {name: seen(name, status) for name, status in every.items()}


class _ViewVisibility(Visibility):
    """The tools and servers that exist for callers of a view."""

    names: Mapping[str, str] = {}
    """The names at the server of tools that have others here."""

    def hides_absent(self, entry: RegistryEntry, identity: Identity | None) -> bool:
        name = self.names.get(entry.name, entry.name)
        return super().hides_absent(replace(entry, name=name), identity)


class _ViewAnswers(MCPServer):
    """Answers the requests to a view, and says so where calls and events are reported."""

    view = ""
    place = ""
    in_flight = 0
    idle: anyio.Event | None = None
    outer: MCPServer | None = None

    def require_no_program(self, method: str) -> None:
        """Refuse a method that the program has put middleware or a handler of its own before.

        Raises:
            DefinitionError: it has.
        """
        program = None if self.outer is None else self.outer.program
        if program is not None and program.takes(method):
            raise DefinitionError(
                f"{self.place}: {method} passes what was added to server.lowlevel, which views do not have; "
                "give it to the server as middleware=… or as an extension, or leave the views out"
            )

    async def answer(self, request: RequestContext) -> dict[str, Any]:
        self.require_no_program(request.method)
        token = VIEW.set(self.view)
        self.in_flight += 1
        try:
            return await super().answer(request)
        finally:
            VIEW.reset(token)
            self.in_flight -= 1
            if self.idle is not None and not self.in_flight:
                self.idle.set()

    async def notified(self, request: RequestContext) -> None:
        token = VIEW.set(self.view)
        try:
            await super().notified(request)
        finally:
            VIEW.reset(token)


class ServerView(ToolsetServer):
    """A view of an open server; enter it with `async with`, and leave it before the server closes."""

    _is_part: ClassVar = True
    _seeing: ClassVar = _ViewVisibility
    _answering: ClassVar = _ViewAnswers
    _serving: ClassVar = _ViewTools
    _stack: AsyncExitStack | None
    toolset: ViewToolset

    def __init__(self, server: ToolsetServer, options: ViewOptions) -> None:
        """Describe the view `options` of a server."""
        self._server, self.options = server, options
        self._seen: Sequence[object] = ()
        self._judged: Sequence[object] = ()
        given = server._given
        rules = given["rules"]
        self._misfits = NameReport(None if rules is None else rules.strict)
        self._watched: dict[ToolSource, Callable[[], None]] = {}
        super().__init__(
            ViewToolset(server, options),
            name=server.name,
            version=given["version"],
            instructions=given["instructions"] if options.instructions is None else options.instructions,
            keep=False,
            grants=server.grants.beside(lambda name: self.options.names.get(name, name)),
            extensions=given["extensions"],
            **{name: given[name] for name in (*_ALIKE, *(OWN & given.keys() - _OTHERWISE))},
        )
        self.sessions, self._speaking = server.sessions, server.registry
        if server.gives("events"):
            self.events = server.events
        self._mcp_server.require_no_program("tools/call")
        self.leaving, self.closed = anyio.Event(), anyio.Event()

    def _hosting(self, *facts: Any, **parts: Any) -> ServerHost:
        return _ViewHost(self._server, self, *facts, **parts)

    def _extended(self, given: Sequence[Any], keywords: Mapping[str, Any], host: ServerHost) -> Extensions:
        server = self._server
        stated: Mapping[str, Settings | None] = (
            {} if server.configured is None else server.configured.config.extensions
        )
        said = {key: value for key, value in server._given.items() if key not in OWN}
        return extensions_of_view(server.extensions, said, stated, self.options.extensions, host)

    def _lists_all(self) -> Callable[[ToolContext], bool | None] | None:
        """The extensions' decision for a client, unless the view itself says where its tools are."""
        if (asked := super()._lists_all()) is None:
            return None
        return lambda context: asked(context) if self.options.defers is None else False

    @cached_property
    def _manual(self) -> ManualCalls:
        return self._server._manual

    @cached_property
    def _served(self) -> _ViewTools:
        made = cast("_ViewTools", super()._served)
        made.seen, made.known = self.toolset.of_status, self._server._served.wire_like
        return made

    @cached_property
    def _mcp_server(self) -> _ViewAnswers:
        made = cast("_ViewAnswers", super()._mcp_server)
        made.view, made.place, made.outer = self.options.name, self.options.place, self._server.answers
        return made

    async def __aenter__(self) -> Self:
        """Compile its tools, and follow those of the server from now on."""
        if self._stack is not None:
            raise StateError(f"the view {self.options.name!r} is already open")
        await self._open(OpeningWait(timeout=0))
        return self

    async def _open(self, waiting: OpeningWait) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.grants.store)
            await self.extensions.open(stack)
            self._news.attach()
            stack.callback(self._watch, ())
            stack.callback(self._offering.follow(self._server.offering, self._served.moved.set))
            self._unlisted.begin(self.toolset.sources(), self.toolset.listing_sources())
            await self._rebuild()
            stack.callback(self.registry.on_change(self._news.changed.set))
            stack.callback(self.grants.on_revoke(self._news.revoked.set))
            stack.callback(self._offering.local.on_change(self._news.changed.set))
            await stack.enter_async_context(self._news.running(self._rebuild))
            await stack.enter_async_context(self._attachments.running())
            await stack.enter_async_context(self.work)
            await self.extensions.run(stack)
            self._server.views.append(self)
            stack.callback(self._server.views.remove, self)
            self._stack = stack.pop_all()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leaving.set()
        self.closed.set()
        await super().__aexit__(kind, fault, trace)

    async def leave(self, drain: float) -> None:
        """End its streams, and wait for its calls in flight, at most `drain` seconds."""
        self.leaving.set()
        self._mcp_server.end_streams()
        with anyio.move_on_after(drain):
            while self._mcp_server.in_flight:
                self._mcp_server.idle = anyio.Event()
                await self._mcp_server.idle.wait()

    def become(self, options: ViewOptions) -> bool:
        """Take other options from the next compilation of the server on; `False` if that needs a new view."""
        if options.name != self.options.name:
            return False
        outer = self._server.extensions
        for key in {*options.extensions, *self.options.extensions}:
            unless_said = outer.get(key) is not None
            before = self.options.extensions.get(key, unless_said)
            if options.extensions.get(key, unless_said) != before:
                return False
        self.options = options
        self.toolset.become(options)
        said = options.instructions
        self._own_instructions = self._server._given["instructions"] if said is None else said
        return True

    async def refresh(self) -> None:
        """Serve the tools of the server as they are now, if anything of them has changed."""
        if self._stack is None:
            return
        try:
            if same(self._look(), self._seen):
                self._report_misfits()
            else:
                await self._rebuild()
        except (NameConflictError, UnknownNameError) as fault:
            _log.warning("%s: the tools stay as they were: %s", self.options.place, in_log(fault))

    def _look(self) -> list[object]:
        """The parts of its table: the same objects for as long as the table stays."""
        if not self._rules.hooks.is_empty:
            return [object()]
        sources = self.toolset.sources()
        mounted = [one for one in sources if isinstance(one, MountedSource)]
        return [
            *(self.options, self._visibility.wanted(), self._visibility.rules()),
            *self.toolset.compiled(None),
            *sources,
            *(one.snapshot for one in mounted),
            *(one.instructions for one in mounted),
        ]

    def unbound(self) -> tuple[UnboundName, ...]:
        """The patterns and names of the view that match no tool of the server so far."""
        outer = self._server.extensions
        self.extensions.guards()  # turns on those that the settings of the view add
        guards = [
            guard
            for key in self.options.settings
            for guard in _guards(self.extensions.get(key))
            if guard not in _guards(outer.get(key))
        ]
        return tuple(self.toolset.misfits(self._server._served.judged(), guards))

    def _report_misfits(self) -> None:
        """Tell the names that fit no tool, as the server does of its own."""
        known = self._server.registry.known_tools()
        judged: list[object] = [self.options, known.starting, known.waiting, *self._server._served.judged()]
        if not same(judged, self._judged):
            self._misfits.take(self.unbound(), is_closed=known.is_closed)
            self._judged = judged

    async def _current(self) -> None:
        await self._server._current()
        await super()._current()

    async def _rebuild(self) -> None:
        self._report_misfits()
        cast("_ViewVisibility", self._visibility).names = {
            new: name for name, new in self.options.names.items()
        }
        local = self._server.offering.local.offered if self.toolset.has_local else ((), ())
        self._offering.local.offer(*local)
        self._watch(self.toolset.sources())
        await super()._rebuild()
        self._seen = self._look()

    def _watch(self, sources: Iterable[ToolSource]) -> None:
        """Follow the status of these sources from now on; the server tells of changes of their tools."""
        wanted = list(sources)
        for source in [one for one in self._watched if one not in wanted]:
            self._watched.pop(source)()
        for source in wanted:
            if source not in self._watched:
                self._watched[source] = source.on_change(self._news.status.set)

    def call(self, call: ToolCall, context: ToolContext) -> CoroutineType[Any, Any, ToolResult]:
        work = super().call(call, context)
        return work if VIEW.get() else self._named(work)

    async def _named(self, work: Awaitable[ToolResult]) -> ToolResult:
        token = VIEW.set(self.options.name)
        try:
            return await work
        finally:
            VIEW.reset(token)


def _guards(extension: Extension | None) -> tuple[Guard, ...]:
    found = None if extension is None else extension.guard()
    if isinstance(found, tuple):
        return found
    return () if found is None else (found,)


_OTHERWISE = frozenset({"grants", "state", "keep", "shared", "scorer", "ready", "manual_timeout", "events"})
"""Keywords of a server that its views have otherwise."""
