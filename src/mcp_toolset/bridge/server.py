"""`ToolsetServer`: one toolset behind one MCP server, for every transport and both protocol eras."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.from_thread

from mcp_toolset.bridge.capabilities import LocalTools
from mcp_toolset.bridge.kinds import OfferingSource, Offers
from mcp_toolset.bridge.local_offers import LocalOffers
from mcp_toolset.bridge.lowlevel import LowlevelServer
from mcp_toolset.bridge.manual import MANUAL_TIMEOUT, ManualCalls, PendingCall
from mcp_toolset.bridge.naming import settle_names, sources_by_name
from mcp_toolset.bridge.offering import Offering
from mcp_toolset.calls.dispatch import ToolDispatch
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.middleware import ToolMiddleware
from mcp_toolset.catalog.deferred import FIXED_TOOLS, DeferredCatalog
from mcp_toolset.catalog.grants import GrantLedger
from mcp_toolset.catalog.search import SearchHit
from mcp_toolset.errors import StateError, sole
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.capability import ALWAYS, granted
from mcp_toolset.tools.opening import settled, unwind
from mcp_toolset.tools.prompts import CompletionProvider, PromptProvider
from mcp_toolset.tools.resources import ResourceProvider
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import SourceStatus
from mcp_toolset.tools.toolset import Toolset
from mcp_toolset.tools.view import ToolBinding

if TYPE_CHECKING:
    from starlette.applications import Starlette


class ToolsetServer:
    """Serves a toolset. `async with server:` opens what is mounted in it.

    `lowlevel` is an SDK `Server`, so `mcp.Client(server.lowlevel)` talks to it in process.
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
        tool_middleware: Mapping[str, Sequence[ToolMiddleware]] | None = None,
        resources: ResourceProvider | None = None,
        prompts: PromptProvider | None = None,
        completions: CompletionProvider | None = None,
        capabilities: Iterable[str] = (),
        manual_timeout: float = MANUAL_TIMEOUT,
    ) -> None:
        """Describe a server; nothing is opened or listening yet.

        Args:
            toolset: What it serves.
            name: The server's name, as clients see it.
            version: The server's version, as clients see it.
            instructions: Text for the model; a preview of deferred tools is added to it.
            hooks: Execution and description hooks, for local and mounted tools alike (X8).
            middleware: Around every call, outermost first.
            tool_middleware: Around the calls of single tools, by public name.
            resources: What clients can read besides.
            prompts: What users can pick besides, such as `Prompts`.
            completions: Proposes values for arguments of prompts and resource templates.
            capabilities: What every local tool is granted (H4): `ask`, `sample`, `session`, `catalog`;
                `progress` and `log` are always.
            manual_timeout: Seconds that a manual call waits for the application, unless the tool says
                otherwise (A7).

        Raises:
            DefinitionError: there is no such capability, or the time is not positive.
        """
        self.toolset = toolset
        self.name = name
        self._version = version
        self._instructions = instructions
        self._hooks = hooks or HookSet()
        self._middleware = tuple(middleware)
        self._tool_middleware = dict(tool_middleware or {})
        self._resources = resources
        self._prompts = prompts
        self._completions = completions
        self._capabilities = granted(capabilities, f"server {name!r}")
        self._manual_timeout = manual_timeout
        self._manual = ManualCalls(manual_timeout)
        self._local = LocalTools(self, self._manual, self._capabilities | ALWAYS)
        self._catalog = DeferredCatalog(GrantLedger(), self._status_of)
        self._defers = toolset.defers
        self._sources = sources_by_name(toolset.sources())
        self._resident: list[ToolBinding] = []
        self._table: dict[str, ToolBinding] = {}
        self._wire: list[dict[str, Any]] = []
        self._dispatch = ToolDispatch(())
        self._dirty = anyio.Event()
        self._thread = 0
        self._stack: AsyncExitStack | None = None
        self._offering = Offering(LocalOffers(resources, prompts, completions, self._logs), self._offers)
        self.lowlevel = LowlevelServer(
            self, name=name, version=version, instructions=instructions, offering=self._offering
        )

    def derived(self, *, toolset: Toolset | None = None, name: str | None = None) -> ToolsetServer:
        """A server like this one, hooks and all, with another toolset or name."""
        return ToolsetServer(
            toolset or self.toolset,
            name=name or self.name,
            version=self._version,
            instructions=self._instructions,
            hooks=self._hooks,
            middleware=self._middleware,
            tool_middleware=self._tool_middleware,
            resources=self._resources,
            prompts=self._prompts,
            completions=self._completions,
            capabilities=self._capabilities,
            manual_timeout=self._manual_timeout,
        )

    async def __aenter__(self) -> Self:
        """Open every upstream concurrently and freeze the first view.

        Raises:
            StateError: it is open already.
            NameConflictError: two local tools have one name, or one has a name of the deferred catalog's.
        """
        if self._stack is not None:
            raise StateError(f"server {self.name!r} is already open")
        self._thread = threading.get_ident()
        try:
            await self._open()
        except BaseExceptionGroup as group:
            raise sole(group) from None
        return self

    async def _open(self) -> None:
        async with AsyncExitStack() as stack:
            for source in self._sources.values():
                stack.callback(source.on_change(self._changed))
            await stack.enter_async_context(self.toolset)
            await self._rebuild()
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            await self._offering.news()
            group.start_soon(self._keep_fresh)
            stack.callback(self._offering.local.on_change(self._changed_somewhere))
            group.start_soon(self.lowlevel.reading.announce_updates)
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
        """Open for the length of a block, unless it is open already."""
        if self._stack is not None:
            yield
            return
        async with self:
            yield

    def tools(self) -> list[dict[str, Any]]:
        """What a client without grants sees in `tools/list`, in wire form."""
        return list(self._wire)

    def bindings(self) -> list[ToolBinding]:
        """Everything that can be called, resident and deferred, under its public name."""
        return list(self._table.values())

    def statuses(self) -> dict[str, SourceStatus]:
        """How each mounted server is doing, by its name."""
        return {name: source.status for name, source in self._sources.items()}

    async def settled(self) -> None:
        """Wait until every mounted server has been reached or has failed once.

        Opening does not wait for slow ones (F5); whoever wants the whole picture does.
        """
        await settled(list(self._sources.values()))
        await self._rebuild()

    def search(self, query: str, *, server: str | None = None, limit: int = 10) -> list[SearchHit]:
        """Search the deferred tools, as `search_tools` does for a model."""
        return self._catalog.index.search(query, server=server, limit=limit)

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
        binding = self._table.get(name)
        if binding is not None and binding.deferred:
            direct = self._composed([replace(binding, gate=None)])
            return await direct.call(ToolCall(name, arguments or {}), context)
        return await self.call_tool(name, arguments, context=context)

    @property
    def pending_calls(self) -> list[PendingCall]:
        """The calls of manual tools that wait for the application, the oldest first (A7)."""
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

    async def run_stdio(self) -> None:
        """Serve one client on standard input and output, until it closes them."""
        from mcp_toolset.bridge.stdio import serve_stdio

        await serve_stdio(self.lowlevel)

    def http_app(
        self,
        *,
        allowed_hosts: Sequence[str] = (),
        allowed_origins: Sequence[str] = (),
        json_response: bool = False,
    ) -> Starlette:
        """A Starlette application with `/mcp` (streamable HTTP) and `/sse`; see `http.http_app`."""
        from mcp_toolset.bridge.http import http_app

        return http_app(
            self.lowlevel,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            json_response=json_response,
        )

    async def run_http(self, *, host: str = "127.0.0.1", port: int = 8000) -> None:
        """Serve `/mcp` and `/sse` until cancelled; see `http.serve_http`."""
        from mcp_toolset.bridge.http import serve_http

        await serve_http(self, host=host, port=port)

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run one call through the table as it stands now (F14: a change does not touch it)."""
        return await self._dispatch.call(call, context)

    def listed(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that this caller sees; a legacy session also sees what it was granted (X2)."""
        if context.session is None or not self._defers:
            return self._wire
        granted = self._catalog.granted(context)
        return [*self._wire, *(binding.to_wire() for binding in granted)] if granted else self._wire

    def grants_held(self, context: ToolContext) -> int:
        """How many deferred tools this caller's session may call by name."""
        return len(self._catalog.granted(context)) if context.session and self._defers else 0

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool, for the SDK's header checks."""
        binding = self._table.get(name)
        return None if binding is None else binding.definition.input_schema

    def _changed(self) -> None:
        self._dirty.set()

    async def _keep_fresh(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty = anyio.Event()
            before = self._wire
            await self._rebuild()
            if self._wire != before:
                await self.lowlevel.announce_tools()
            await self.lowlevel.announce_offers(await self._offering.news())

    def _changed_somewhere(self) -> None:
        """Note a change; providers may call this from a worker thread."""
        if threading.get_ident() == self._thread:
            self._changed()
        else:
            anyio.from_thread.run_sync(self._changed)

    def _logs(self) -> bool:
        return any(not binding.source for binding in self._resident)

    def _offers(self) -> dict[str, Offers]:
        """What each mounted source offers beside its tools, if it is of a kind that offers any."""
        return {
            name: source.offers
            for name, source in self._sources.items()
            if isinstance(source, OfferingSource)
        }

    async def _rebuild(self) -> None:
        reserved = FIXED_TOOLS if self._defers else ()
        named = settle_names(self.toolset.bindings(), reserved=reserved)
        bindings = await self._hooks.describe(named)
        deferred = [binding for binding in bindings if binding.on and binding.deferred]
        self._resident = [binding for binding in bindings if binding.on and not binding.deferred]
        table = list(self._resident)
        if self._defers:
            self._catalog.update(deferred)
            table = [*self._resident, *self._catalog.bindings()]
        self._table = {binding.name: binding for binding in table}
        self._dispatch = self._composed(table)
        self._wire = [binding.to_wire() for binding in table if not binding.deferred]
        self.lowlevel.instructions = self._instructions_now()

    def _composed(self, bindings: Sequence[ToolBinding]) -> ToolDispatch:
        return ToolDispatch(
            [self._offering.bound(self._local.bound(binding)) for binding in bindings],
            hooks=self._hooks,
            middleware=self._middleware,
            tool_middleware=self._tool_middleware,
        )

    def _instructions_now(self) -> str | None:
        parts = (self._instructions, self._catalog.preview() if self._defers else None)
        return "\n\n".join(part for part in parts if part) or None

    def _status_of(self, source: str) -> SourceStatus | None:
        found = self._sources.get(source)
        return None if found is None else found.status
