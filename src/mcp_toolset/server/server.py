"""`ToolsetServer`: one toolset behind one MCP server, for every transport and both protocol eras."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import anyio

from mcp_toolset.calls.background import BackgroundWork
from mcp_toolset.calls.events import EventLog
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.middleware import ToolMiddleware
from mcp_toolset.calls.pipeline.rules import Rules, rules_from
from mcp_toolset.catalog.deferred.tool_names import FIXED_TOOLS
from mcp_toolset.catalog.grants.access import Access, AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.catalog.instructions import BUDGET
from mcp_toolset.catalog.registry.registry import SourceHandle, ToolRegistry
from mcp_toolset.concurrency.deadlines import REQUEST_TIMEOUT
from mcp_toolset.context.offer_kinds import OfferingSource, Offers
from mcp_toolset.errors import StateError, sole
from mcp_toolset.protocol.cache_hints import STRICTEST, CacheHint
from mcp_toolset.server import unlisted_mounts as unlisted
from mcp_toolset.server.attachments import DRAIN, Attachments
from mcp_toolset.server.changes import News
from mcp_toolset.server.handler_context import LocalTools
from mcp_toolset.server.introductions import joint_instructions, servers_meta
from mcp_toolset.server.kept_catalogs import Keeping, KeptCatalogs, folder_for
from mcp_toolset.server.manual_calls import MANUAL_TIMEOUT, ManualCalls, PendingCall
from mcp_toolset.server.mcp_server import LowlevelServer
from mcp_toolset.server.offers.local_offers import LocalOffers
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.server.reloadable import PATIENCE, Reloading, ReloadReport, reloadable_in
from mcp_toolset.server.state_keeper import StateKeeper
from mcp_toolset.server.tool_table import ServedTools
from mcp_toolset.server.unlisted_mounts import UnlistedMounts
from mcp_toolset.tools.binding.selector import ToolSelector
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.core.capability import ALWAYS, granted
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.source import SourceStatus, state_of
from mcp_toolset.tools.declare.prompts import CompletionProvider, PromptProvider
from mcp_toolset.tools.declare.resources import ResourceProvider
from mcp_toolset.tools.declare.tool import Tool
from mcp_toolset.tools.toolsets import opening
from mcp_toolset.tools.toolsets.opening import Waiting, settled, unwind
from mcp_toolset.tools.toolsets.toolset import Toolset
from mcp_toolset.tools.view.unbound import UnboundName
from mcp_toolset.tools.view.view import ToolBinding

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
    from mcp_toolset.catalog.search.index import Scorer, SearchHit
    from mcp_toolset.config import HubConfig
    from mcp_toolset.transports.http.limits import HttpLimits


class ToolsetServer:
    """Serves a toolset. `async with server:` opens what is mounted in it.

    `lowlevel` is an SDK `Server`, so `mcp.Client(server.lowlevel)` talks to it in process. `registry`
    says which tools there are and which of them can be called; toolsets join and leave with `attach`
    and `detach` while clients are connected. `configured` is the configuration among what it serves,
    which `reload` reads again, or `None`.

    A catalog of more than 500 tools is compiled in a worker thread, so that calls go on meanwhile: what
    a toolset is told to ask of its tools, such as the predicate of `filtered`, is then asked there.
    """

    def __init__(
        self,
        toolset: Toolset,
        *,
        name: str = "mcp-toolset",
        version: str = "0.1.0",
        instructions: str | None = None,
        hooks: HookSet | None = None,
        middleware: Sequence[ToolMiddleware] = (),
        tool_middleware: Mapping[Any, Sequence[ToolMiddleware]] | None = None,
        rules: Rules | None = None,
        resources: ResourceProvider | None = None,
        prompts: PromptProvider | None = None,
        completions: CompletionProvider | None = None,
        capabilities: Iterable[str] = (),
        events: EventLog | None = None,
        manual_timeout: float = MANUAL_TIMEOUT,
        grants: GrantLedger | None = None,
        access: Access | None = None,
        client_prefix: str = "",
        state: str | PathLike[str] | None = None,
        scorer: Scorer | Literal["built-in"] | None = "built-in",
        list_hint: CacheHint = STRICTEST,
        list_patience: float | None = None,
        keep: Keeping = None,
        instructions_budget: int = BUDGET,
    ) -> None:
        """Describe a server; nothing is opened or listening yet.

        Args:
            toolset: What it serves.
            name: The server's name, as clients see it.
            version: The server's version, as clients see it.
            instructions: Text for the model; a preview of deferred tools is added to it, and what mounted
                servers say about themselves.
            hooks: Execution and description hooks, for local and mounted tools alike.
            middleware: Around every call, outermost first.
            tool_middleware: Around the calls of some tools, by name, pattern, tool or toolset.
            rules: Hooks, middleware and descriptions together, instead of the three above; a name in
                them, or in a verb, that stands for no tool is told when the server is opened: see
                docs/names.md.
            resources: What clients can read besides.
            prompts: What users can pick besides, such as `Prompts`.
            completions: Proposes values for arguments of prompts and resource templates.
            capabilities: What every local tool is granted: `ask`, `sample`, `session`, `catalog`,
                `membership`, `background`, `events`; `progress` and `log` are always.
            events: Where tools note events; a log in memory unless given.
            manual_timeout: Seconds that a manual call waits for the application, unless the tool says
                otherwise.
            grants: Issues and judges the grants of deferred tools; in memory, with the default
                lifetimes, unless given.
            access: Who may have which deferred tool, asked at each search, resolve and call.
            client_prefix: What clients put before every name, such as `mcp__tools__`; with it, names
                stay within 64 characters.
            state: A file that keeps names and membership from one run to the next.
            scorer: Joined with the words in the search of deferred tools, as for `SearchIndex`; give an
                `EmbeddingScorer` of this server's own to search with a sentence model.
            list_hint: How long, and for whom, clients of 2026-07-28 may keep the lists of what is this
                server's own; what is mounted has hints of its own, and the strictest of all counts.
            list_patience: Seconds from the opening on in which lists and searches wait for mounted servers
                of which nothing is known; 5 unless given here or in the configuration that is served.
            keep: The folder that keeps what mounted servers list from one run to the next; `False` keeps
                nothing. Unless given: `MCP_TOOLSET_CACHE`, else beside `state`, else the user's cache.
            instructions_budget: Tokens that the instructions of mounted servers take at most; 0 leaves
                them out.

        Raises:
            DefinitionError: there is no such capability, the time is not positive, the prefix is too
                long, or `access` is asynchronous.
            NameConflictError: two mounts or two local tools have one name, or one has a name of the
                deferred catalog's.
        """
        self.toolset = toolset
        self.name = name
        self._version = version
        self._instructions = instructions
        self._rules = rules_from(rules, hooks, middleware, tool_middleware)
        self._resources = resources
        self._prompts = prompts
        self._completions = completions
        self._capabilities = granted(capabilities, f"server {name!r}")
        self.work = BackgroundWork()
        self.events = EventLog() if events is None else events
        self._manual_timeout = manual_timeout
        self._manual = ManualCalls(manual_timeout)
        self._local = LocalTools(self, self._manual, self._capabilities | ALWAYS)
        self.grants = grants or GrantLedger()
        AccessPolicy(access)
        self._access = access
        self._scorer: Scorer | Literal["built-in"] | None = scorer
        self._client_prefix = client_prefix
        self._state = state
        self._list_hint = list_hint
        self.registry = ToolRegistry(toolset, client_prefix=client_prefix, reserved=FIXED_TOOLS)
        self.members = self.registry.membership
        self._keeper = None if state is None else StateKeeper(state, self.registry)
        self._stack: AsyncExitStack | None = None
        self.configured = reloadable_in(toolset)
        self._list_patience = list_patience
        self._instructions_budget = instructions_budget
        self._keep: Keeping = keep
        self._kept = KeptCatalogs(partial(folder_for, keep, state))
        self._unlisted = UnlistedMounts(self._patience(), self._current)
        self._offering = Offering(
            LocalOffers(resources, prompts, completions, self._logs, list_hint), self._offers, self._unlisted
        )
        self._served = ServedTools(
            self.registry,
            self._catalog,
            lambda binding: self._offering.bound(self._local.bound(binding)),
            self._offering,
            rules=self._rules,
            own_hint=list_hint,
        )
        self.lowlevel = LowlevelServer(
            self, name=name, version=version, instructions=instructions, offering=self._offering
        )
        self._news = News(self._served, self._offering, self.lowlevel)
        self._attachments = Attachments(self.registry, self._news.changed.set)
        self._reloads: Reloading | None = None

    def derived(
        self,
        *,
        toolset: Toolset | None = None,
        name: str | None = None,
        grants: GrantLedger | None = None,
        client_prefix: str | None = None,
        state: str | PathLike[str] | None = None,
    ) -> ToolsetServer:
        """A server like this one, hooks and all, with another toolset, name, ledger, prefix or state file."""
        return ToolsetServer(
            toolset or self.toolset,
            name=name or self.name,
            version=self._version,
            instructions=self._instructions,
            hooks=None,
            middleware=(),
            tool_middleware=None,
            rules=self._rules,
            resources=self._resources,
            prompts=self._prompts,
            completions=self._completions,
            capabilities=self._capabilities,
            events=self.events,
            manual_timeout=self._manual_timeout,
            grants=grants or self.grants,
            access=self._access,
            client_prefix=self._client_prefix if client_prefix is None else client_prefix,
            state=state or self._state,
            scorer=self._scorer,
            list_hint=self._list_hint,
            list_patience=self._list_patience,
            keep=self._keep,
            instructions_budget=self._instructions_budget,
        )

    async def __aenter__(self) -> Self:
        """Open every upstream concurrently, wait for them, and freeze the first view.

        For programs that use the server from Python: it returns when each upstream is ready or has
        failed, or some seconds after something can be used. Serving waits for no upstream: `run_stdio`,
        `run_http` and `http_app` open a server that is not open yet by `opened()`.

        Raises:
            StateError: it is open already.
            InvalidStateError: the state file is corrupt or foreign.
        """
        if self._stack is not None:
            raise StateError(f"server {self.name!r} is already open")
        try:
            await self._open(Waiting(patience=opening.PATIENCE))
        except BaseExceptionGroup as group:
            raise sole(group) from None
        return self

    async def _open(self, waiting: Waiting) -> None:
        async with AsyncExitStack() as stack:
            self._news.attach()
            if self._keeper is not None:
                await self._keeper.restore()
                stack.callback(self.registry.on_change(self._keeper.changed))
                stack.push_async_callback(self._save_last)
            for source in self.toolset.sources():
                stack.callback(source.on_change(self._news.watching(source)))
            await self._kept.restore(self.toolset.sources())
            await stack.enter_async_context(self.toolset.opening(waiting))
            await stack.enter_async_context(self._kept.running())
            self._unlisted.begin(self.toolset.sources(), self.toolset.listing_sources())
            await self._rebuild()
            stack.callback(self.registry.on_change(self._news.changed.set))
            stack.callback(self.grants.on_revoke(self._news.revoked.set))
            stack.callback(self._offering.local.on_change(self._news.changed.set))
            await stack.enter_async_context(self._news.running(self._rebuild))
            if self._keeper is not None:
                await stack.enter_async_context(self._keeper.running())
            await stack.enter_async_context(self._attachments.running())
            if self.configured is not None:
                reloads = self._reloads = self.configured.reloads(
                    sources=self.registry.sources, changed=self._news.changed.set, rebuild=self._rebuild
                )
                await stack.enter_async_context(reloads.running())
            await stack.enter_async_context(self.work)
            self._manual.open()
            stack.callback(self._manual.close)
            self._stack = stack.pop_all()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every upstream, children included."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await unwind(stack, kind, fault, trace)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Open for the length of a block, unless it is open already, and wait for no mounted server.

        This is how a server is opened to be served: what is mounted joins when it is ready. Lists are
        those of the last run until then; see docs/starting.md.
        """
        if self._stack is not None:
            yield
            return
        try:
            await self._open(Waiting(limit=0))
        except BaseExceptionGroup as group:
            raise sole(group) from None
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self.__aexit__)
            yield

    async def attach(self, toolset: Toolset | Tool[..., Any] | Callable[..., Any]) -> SourceHandle:
        """Serve one more toolset from now on; clients are told once that the list has changed.

        It returns when what is mounted in it has been reached, or has failed once and is tried again.

        Raises:
            StateError: the server is not open, or the toolset is open somewhere else.
            NameConflictError: a mount or a local tool has a name that is taken; nothing has changed.
        """
        handle = await self._attachments.join(_toolset_of(toolset))
        await self._rebuild()
        return handle

    async def detach(self, handle: SourceHandle, *, drain: float = DRAIN) -> None:
        """Serve a toolset no longer, and close it.

        Nothing new is called in it from this moment; calls that are under way end as they would, for
        at most `drain` seconds. It returns when everything is closed.

        Raises:
            StateError: nothing is attached by this handle.
        """
        left = self._attachments.leave(handle)
        try:
            await self._rebuild()
        finally:
            await left.ended(drain)

    async def replace(
        self,
        handle: SourceHandle,
        toolset: Toolset | Tool[..., Any] | Callable[..., Any],
        *,
        drain: float = DRAIN,
    ) -> None:
        """Serve another toolset in the place of an attached one, under the same handle.

        The new one is open before the old one leaves, and calls see the one or the other. Tools of
        the same id keep their names and their membership.

        Raises:
            StateError: nothing is attached by this handle, or the toolset is open somewhere else.
            NameConflictError: a name is taken; the old one stays.
        """
        left = await self._attachments.change(handle, _toolset_of(toolset))
        try:
            await self._rebuild()
        finally:
            await left.ended(drain)

    async def reload(
        self, config: HubConfig | None = None, *, drain: float = DRAIN, patience: float = PATIENCE
    ) -> ReloadReport:
        """Serve the configuration as it is by now, without ending anything that is under way.

        Servers whose entry is the same go on, and so do those that are only named, chosen or judged in
        another way. The others are started next to what there is, then all of it changes at once, and
        clients are told once. One that is reached in another way and does not answer in time is called
        as it was until it does, or has failed. It returns when the new configuration is served; what
        has left is closed when its calls have ended.

        Args:
            config: The configuration; read again from where it came unless given.
            drain: Seconds that calls under way in what has left may take.
            patience: Seconds to wait for servers that are starting.

        Raises:
            StateError: the server is not open, or serves no configuration.
            ConfigError: the file cannot be used. What is served stays, here as below.
            DefinitionError: an entry asks for something impossible.
            NameConflictError: a name is taken.
        """
        if self.configured is None:
            raise StateError(
                "this server serves no configuration; mount one with toolset_from_config, or use attach()"
            )
        if self._reloads is None:
            raise StateError("a configuration is reloaded while the server is open; enter it first")
        return await self._reloads.reload(config, drain=drain, patience=patience)

    async def choose(self, members: Mapping[ToolSelector, bool | None]) -> int:
        """Put tools into the catalog or take them out, and wait until that is served.

        See `ToolRegistry.choose`; a tool that is taken out is refused at once.

        Raises:
            UnknownToolError: one of them is not there, or is hidden by a policy; nothing has changed.
        """
        generation = self.registry.choose(members)
        await self._rebuild()
        return generation

    def tools(self) -> list[dict[str, Any]]:
        """What a client without grants sees in `tools/list`, in wire form."""
        return list(self._served.wire)

    @property
    def offering(self) -> Offering:
        """The prompts and resources of all that is served, under their public names."""
        return self._offering

    def bindings(self) -> list[ToolBinding]:
        """Everything that can be called, resident and deferred, under its public name."""
        return list(self._served.table.values())

    def statuses(self) -> dict[str, SourceStatus]:
        """How each mounted server is doing, by its name."""
        return self._served.statuses()

    async def settled(self) -> None:
        """Wait until every mounted server has been reached or has failed once.

        Opening does not wait for slow ones; whoever wants the whole picture does.
        """
        await settled(list(self.registry.sources().values()))
        await self._rebuild()

    def unbound(self) -> tuple[UnboundName, ...]:
        """The names that hooks, middleware and verbs were given and that stand for no tool, so far."""
        return self._served.report.found

    def search(self, query: str, *, server: str | None = None, limit: int = 10) -> list[SearchHit]:
        """Search the deferred tools, as `search_tools` does for a model."""
        return self._served.catalog.search(query, server=server, limit=limit) if self._served.defers else []

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *, context: ToolContext = LOCAL_CONTEXT
    ) -> ToolResult:
        """Call a tool without a wire, through the same gate, middleware and hooks.

        Raises:
            UnknownToolError: no such tool for this caller.
            UpstreamProtocolError: a mounted server answered with a protocol error.
        """
        return await self.call(ToolCall(name, arguments or {}), context)

    async def call_as_host(
        self, name: str, arguments: dict[str, Any] | None = None, *, context: ToolContext = LOCAL_CONTEXT
    ) -> ToolResult:
        """Call any tool, deferred ones too: the program that owns the server needs no grant.

        Middleware, hooks and checks apply as to every call.

        Raises:
            UnknownToolError: no such tool.
        """
        return await self._served.call_ungranted(ToolCall(name, arguments or {}), context)

    @property
    def pending_calls(self) -> list[PendingCall]:
        """The calls of manual tools that wait for the application, the oldest first."""
        return self._manual.pending()

    async def next_pending(self) -> PendingCall:
        """Wait for a manual call that was not handed out yet; several readers share the calls.

        Raises:
            StateError: the server was closed meanwhile.
        """
        return await self._manual.next()

    def submit_result(self, call_id: str, output: Any) -> None:
        """Answer a pending call: with a value, a `ToolResult`, `AskUser` or `Halt`; see `ManualCalls`."""
        self._manual.submit(call_id, output)

    def fail(self, call_id: str, message: str) -> None:
        """End a pending call with an error that the model can read; see `ManualCalls`."""
        self._manual.fail(call_id, message)

    async def run_stdio(self, *, drain: float = 1.0) -> None:
        """Serve one client on standard input and output, until it closes them.

        Args:
            drain: Seconds that requests in flight may take once the client has closed its output alone:
                it may still read the answers.
        """
        from mcp_toolset.transports.stdio_server import serve_stdio

        await serve_stdio(self.lowlevel, drain=drain)

    def http_app(
        self,
        *,
        allowed_hosts: Sequence[str] = (),
        allowed_origins: Sequence[str] = (),
        json_response: bool = False,
        request_timeout: float = REQUEST_TIMEOUT,
        limits: HttpLimits | None = None,
    ) -> Starlette:
        """A Starlette application with `/mcp` (streamable HTTP) and `/sse`; see `http.http_app`."""
        from mcp_toolset.transports.http.app import http_app

        return http_app(
            self.lowlevel,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            json_response=json_response,
            request_timeout=request_timeout,
            limits=limits,
        )

    async def run_http(
        self, *, host: str = "127.0.0.1", port: int = 8000, request_timeout: float = REQUEST_TIMEOUT
    ) -> None:
        """Serve `/mcp` and `/sse` until cancelled; see `http.serve_http`."""
        from mcp_toolset.transports.http.app import serve_http

        await serve_http(self, host=host, port=port, request_timeout=request_timeout)

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run one call; see `ServedTools.call`."""
        if call.name not in self._served.table and (absent := await self._absent(call.name)) is not None:
            return absent
        return await self._served.call(call, context)

    def listed(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that this caller sees; see `ServedTools.listed`."""
        return self._served.listed(context)

    def listed_for_all(self) -> list[dict[str, Any]]:
        """The tools that every caller sees: one object for as long as nothing changes."""
        return self._served.wire

    def listed_to(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that a caller sees, in wire form; see `ServedTools.listed_to`."""
        return self._served.listed_to(context)

    def unknown_to(self, context: ToolContext) -> bool:
        """Whether it has still to be found out what some server lists to clients like this one."""
        return bool(self._served.unknown_to(context))

    async def known_to(self, context: ToolContext) -> None:
        """Wait, for a little while at most, until that is known and served."""
        async with anyio.create_task_group() as group:
            for source in self._served.unknown_to(context):
                group.start_soon(source.known_to, context)
        await self._rebuild()

    def granted(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that only this caller sees; see `ServedTools.granted`."""
        return self._served.granted(context)

    def list_hint(self) -> CacheHint:
        """How long a client may keep what is listed; see `ServedTools.list_hint`."""
        return self._served.list_hint()

    def list_meta(self) -> Mapping[str, Any]:
        """What the mounted servers' lists of tools have in `_meta`."""
        return self._served.list_meta

    def handshake_meta(self) -> dict[str, Any]:
        """What the answer to a handshake has in `_meta`: the servers behind this one."""
        return servers_meta(self.registry.sources(), self._withheld())

    def _patience(self) -> float:
        """How long lists wait for what was never listed: as told here, or in the configuration."""
        if self._list_patience is not None:
            return self._list_patience
        configured = None if self.configured is None else self.configured.config.list_patience
        return unlisted.LIST_PATIENCE if configured is None else configured

    def _withheld(self) -> frozenset[str]:
        """The mounted servers that not everybody may know of."""
        if self._access is None or not self._served.defers:
            return frozenset()
        return self._served.catalog.withheld_servers()

    def is_arriving(self) -> bool:
        """Whether `arrive` may have something to wait for."""
        return bool(self._unlisted)

    async def arrive(self) -> None:
        """Wait for listed mounts of which nothing is known yet; see `UnlistedMounts.arrive`."""
        await self._unlisted.arrive(listed=True)

    def grants_issued(self, context: ToolContext) -> int:
        """How many grants this caller's session was given so far."""
        return self.grants.issued_to(context) if context.session and self._served.defers else 0

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a listed tool; see `ServedTools.input_schema`."""
        return self._served.input_schema(name)

    def _catalog(self) -> DeferredCatalog:
        # Search has tables to load, and perhaps numpy, for which nobody waits who defers nothing.
        from mcp_toolset.catalog.deferred.catalog import DeferredCatalog

        return DeferredCatalog(
            self.grants,
            self.registry.sources,
            access=self._access,
            scorer=self._scorer,
            arrive=self._unlisted.arrive,
            deferring=self.registry.deferring,
        )

    async def _save_last(self) -> None:
        if self._keeper is not None:
            with anyio.CancelScope(shield=True):
                await self._keeper.save()

    def _logs(self) -> bool:
        return self._served.has_own

    def _offers(self) -> dict[str, Offers]:
        """What each mounted source offers beside its tools, if it is of a kind that offers any."""
        return {
            name: source.offers
            for name, source in self.registry.sources().items()
            if isinstance(source, OfferingSource)
        }

    async def _absent(self, name: str) -> ToolResult | None:
        """Wait for what may bring a tool of this name; the error if its server is known and is not ready."""
        await self._unlisted.arrive(in_time=False)
        source = None if name in self._served.table else self.registry.absent_source(name)
        if source is None:
            return None
        await settled([source])
        await self._current()
        if name in self._served.table or not (state := state_of(source.source_name, source.status)):
            return None
        return ToolResult.of_error(f"{name} cannot be called now: {state}")

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
        sources, withheld = self.registry.sources(), self._withheld()
        said = joint_instructions(sources, withheld, self._instructions_budget)
        parts = (self._instructions, self._served.preview(), said)
        self.lowlevel.instructions = "\n\n".join(part for part in parts if part) or None


def _toolset_of(value: Toolset | Tool[..., Any] | Callable[..., Any]) -> Toolset:
    return cast("Toolset", value) if isinstance(value, Toolset) else Toolset(value)
