"""`HostCalls`, `LiveChanges`, `Lifecycle`: what a server does once it is made, as bases of `ToolsetServer`.

What mounted servers say about themselves, instructions and `serverInfo`, is passed on to clients.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict, cast

import anyio

from mcp_toolset._records import replace
from mcp_toolset.calls.background import BackgroundWork
from mcp_toolset.calls.observers import CallObserver, Observation, digest_of, report_of, tell
from mcp_toolset.calls.rules import Rules
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.catalog.instructions import BUDGET, instructions_of
from mcp_toolset.catalog.registry.registry import SourceHandle, ToolRegistry
from mcp_toolset.concurrency.tasks import REQUEST_TIMEOUT
from mcp_toolset.context.connection import PendingLogin
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.context.shared import Shared
from mcp_toolset.errors import CallError, StateError, UnknownToolError, sole
from mcp_toolset.extending.joined import Extensions
from mcp_toolset.server.handler_context import ManualCalls, PendingCall
from mcp_toolset.server.mcp_server import MCPServer, News
from mcp_toolset.server.mounts import (
    DRAIN,
    PATIENCE,
    Attachments,
    KeptCatalogs,
    Reloadable,
    Reloading,
    ReloadReport,
    UnlistedMounts,
    Visibility,
    toolsets_in,
)
from mcp_toolset.server.offering import Offering
from mcp_toolset.server.tool_table import MAX_LISTS, ServedTools
from mcp_toolset.tools import source as opening
from mcp_toolset.tools.binding import ToolSelector
from mcp_toolset.tools.call import LOCAL_CONTEXT, Identity, ToolCall, ToolContext
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import (
    OpeningWait,
    SourceStatus,
    ToolSource,
    fits,
    not_ready,
    settled,
    state_of,
    unwind,
)
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.toolset import Toolset
from mcp_toolset.tools.view import ToolBinding, UnboundName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from starlette.applications import Starlette

    from mcp_toolset.calls.background import EventLog
    from mcp_toolset.calls.middleware import ToolMiddleware
    from mcp_toolset.catalog.deferred.catalog import IndexKeeping
    from mcp_toolset.catalog.grants.access import Access
    from mcp_toolset.catalog.grants.ledger import GrantLedger
    from mcp_toolset.catalog.search.index import Scorer, SearchHit
    from mcp_toolset.config import HubConfig
    from mcp_toolset.context.shared import Shared
    from mcp_toolset.extensions.keywords import Keywords
    from mcp_toolset.protocol.eras import CacheHint
    from mcp_toolset.security.authenticator import Auth, Authenticator
    from mcp_toolset.security.policy import Policy
    from mcp_toolset.server.monitor import Monitor, Ready
    from mcp_toolset.server.mounts import Keeping
    from mcp_toolset.server.state_keeper import StateKeeper
    from mcp_toolset.stores.store import StorePlace
    from mcp_toolset.tools.call import Sessions
    from mcp_toolset.tools.source import CompletionProvider, PromptProvider, ResourceProvider
    from mcp_toolset.transports.http.messages import HttpLimits


class OwnKeywords(TypedDict, total=False):
    """What few servers say of themselves.

    Attributes:
        events: Where tools note events; a log in memory unless given.
        manual_timeout: Seconds that a manual call waits for the application, unless the tool says
            otherwise.
        grants: Issues and checks the grants of deferred tools; by default in memory, with the default
            lifetimes.
        access: A function that says who may use which deferred tool, at each search, resolve and call.
        client_prefix: What clients put before every name, such as `mcp__tools__`; with it, names
            stay within 64 characters.
        state: Where names and membership are kept from one run to the next: the path of a file, the URL
            of a store, or a `Store`.
        scorer: The second ranking beside the words in the search of deferred tools, as for `SearchIndex`;
            for a sentence model give an `EmbeddingScorer` that no other server uses.
        list_hint: How long, and for whom, clients of 2026-07-28 may keep this server's own entries of
            lists. Mounted servers send their own hints, and the strictest hint of a list counts.
        list_patience: Seconds from the opening on in which lists and searches wait for mounted servers
            of which nothing is known; 5 unless given here or in the configuration that is served.
        keep: The folder that keeps what mounted servers list, and the index of the search, from one run
            to the next; `False` keeps nothing. Unless given: `MCP_TOOLSET_CACHE`, else beside `state`,
            else the user's cache.
        instructions_budget: Tokens that the instructions of mounted servers take at most; 0 leaves
            them out.
        sessions: Returns another session for a tool with the capability `sessions`, from its id and the
            context of the call; `None` if the tool may not read that session.
        shared: What the replicas of this server share, such as `SharedState("redis://…")`: grants, names
            and members, limits, sessions and questions, unless these are given. See docs/replicas.md.
        ready: What must work for `/ready` to say so; the configuration's unless given, otherwise a server
            that listens is ready. See docs/starting.md.
    """

    events: EventLog | None
    manual_timeout: float
    grants: GrantLedger | None
    access: Access | None
    client_prefix: str
    state: StorePlace | None
    scorer: Scorer | Literal["built-in"] | None
    list_hint: CacheHint
    list_patience: float | None
    keep: Keeping
    instructions_budget: int
    sessions: Sessions | None
    shared: Shared | None
    ready: Ready | None


OWN: Final = frozenset(OwnKeywords.__annotations__)
"""Their names; the other keywords are keys of extensions."""

if TYPE_CHECKING:

    class ServerKeywords(OwnKeywords, Keywords, total=False):
        """What few servers say, and the extensions of this package by their keys."""

    class ServeKeywords(ServerKeywords, total=False):
        """The parameters of `ToolsetServer` that `serve` passes on, and its keywords."""

        version: str
        middleware: Sequence[ToolMiddleware]
        resources: ResourceProvider | None
        prompts: PromptProvider | None
        completions: CompletionProvider | None
        capabilities: Iterable[str]
        auth: Auth | None
        extensions: Sequence[Any]


def turned_on(toolset: Toolset, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    """The extensions by keyword, with those that a toolset turns on unless a keyword says otherwise."""
    said = {key: True for key in toolset.extension_keys if keywords.get(key) is None}
    return {**keywords, **said} if said else keywords


def authenticator(auth: Auth | None) -> Authenticator | None:
    if auth is None:
        return None
    # Few servers have callers to authenticate.
    from mcp_toolset.security.authenticator import Authenticator

    return auth if isinstance(auth, Authenticator) else Authenticator(auth)


def observed_by(others: Iterable[CallObserver], rules: Rules) -> Rules:
    known = {id(one) for one in rules.observers}
    added = [one for one in others if id(one) not in known]
    return replace(rules, observers=(*rules.observers, *added)) if added else rules


SERVERS_META_KEY: Final = "mcp-toolset/servers"
"""Where the answers to `initialize` and `server/discover` have the servers behind this one, in `_meta`."""


def _instructed(toolsets: Iterable[Toolset]) -> Iterator[Toolset]:
    """The application's toolsets with instructions, each once; mounted servers speak for themselves."""
    every = (each for toolset in toolsets for each in toolsets_in(toolset))
    found = {id(each): each for each in every if not fits(each, MountedSource) and each.instructions}
    yield from found.values()


class ServerParts:
    """The parts of a server that its program and its clients reach."""

    name: str  # the server's name
    toolset: Toolset  # what it serves
    answers: MCPServer  # what answers the requests of clients
    configured: Reloadable | None  # the configuration among what it serves, or `None`
    registry: ToolRegistry  # which tools there are, and which of them can be called
    extensions: Extensions
    grants: GrantLedger  # issues and judges the grants of deferred tools
    work: BackgroundWork  # what tools have begun in the background
    _attachments: Attachments
    _auth: Authenticator | None
    _keeper: StateKeeper | None
    _manual: ManualCalls
    _offering: Offering
    _stack: AsyncExitStack | None
    _is_told: bool
    _said: str | None
    _own: OwnKeywords
    _shared: Shared | None
    _kept: KeptCatalogs
    _indexes: IndexKeeping | None
    _news: News
    _served: ServedTools
    _unlisted: UnlistedMounts
    _visibility: Visibility
    _introductions: dict[object, str | None]
    _reloads: Reloading | None
    _rules: Rules

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
        self.extensions.compiled(self.registry.sources())
        self.answers.compose()
        text = self.answers.handshake.instructions = self._introduction(None)
        self._introductions = {self._visibility.group(None): text}

    def instructions_to(self, identity: Identity | None) -> str | None:
        visible, known = self._visibility, self._introductions
        said = self.answers.handshake.instructions
        # A text that a program has set by way of the SDK is for every caller.
        if visible.policy is None or said != known.get(visible.group(None)):
            return said
        group = visible.group(identity)
        text = known[group] if group in known else self._introduction(identity)
        if len(known) < MAX_LISTS:
            known[group] = text
        return text

    def _introduction(self, identity: Identity | None) -> str | None:
        sources, withheld = self.registry.sources(), self._withheld(identity)
        alone = self._served.passing.source()
        if alone is not None:
            said = alone.instructions
        else:
            known = [one for one in sources.items() if one[0] not in withheld]
            texts = ((name, source.instructions) for name, source in known if fits(source, MountedSource))
            said = instructions_of(texts, self._own.get("instructions_budget", BUDGET))
        own = self._instructions_of_toolsets(identity)
        parts = (self._said, *own, self._served.preview(identity), said)
        return "\n\n".join(part for part in parts if part) or None

    def _instructions_of_toolsets(self, identity: Identity | None) -> Iterator[str]:
        """What the application's toolsets say about their tools, if a caller may know of one of these."""
        served = list(self._served.table.values())
        for toolset in _instructed(self.registry.toolsets()):
            origins = {id(one.origin) for one in toolset.bindings()}
            those = [one for one in served if id(one.origin) in origins]
            if self._own.get("access") is not None:
                # The host decides for each caller, and this text is for all of a group.
                those = [one for one in those if not one.deferred]
            if any(not self._visibility.hides(one, identity) for one in those):
                yield toolset.instructions


class ClientSide(ServerParts):
    """The side of a server that answers the requests of clients: lists, calls, what a handshake says."""

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if call.name not in self._served.table or self._served.is_personal:
            await self.known_to(context)
            await self._current()
        if call.name not in self._served.table and (source := await self._absent(call.name, context)):
            return self._not_ready(source, call, context)
        try:
            return await self._served.call(call, context)
        except UnknownToolError as fault:
            raise await self._unknown(fault, call.name, context) from None

    async def _unknown(self, fault: UnknownToolError, name: str, context: ToolContext) -> UnknownToolError:
        """The error for a tool that does not exist for a caller, as it is for one that exists for none."""
        if self._visibility.policy is not None and name in self._served.table:
            # An unknown name waits for what may bring the tool, so a hidden one does.
            await self._unlisted.bring(lambda: False)
        hides = self._visibility.hides_server
        away = self._unlisted.away(name)
        away = [one for one in away if not hides(one.source_name, context.identity)]
        return not_ready(self._searchable(fault), away)

    def _searchable(self, fault: UnknownToolError) -> UnknownToolError:
        """The error with the way on, where tools are behind search: the same for every unknown name."""
        if not self._served.defers:
            return fault
        from mcp_toolset.catalog.deferred.preparing import how_to_find

        return UnknownToolError(fault.name, how_to_find(fault.name))

    def listed(self, context: ToolContext) -> list[dict[str, Any]]:
        return self._served.listed(context)

    def unknown_to(self, context: ToolContext) -> bool:
        return bool(self._served.unknown_to(context)) or not self._knows_granted(context)

    def _knows_granted(self, context: ToolContext) -> bool:
        """True if nothing has to be fetched to say what a session was granted, and so is listed to it."""
        return context.session is None or not self._served.defers or self.grants.knows_held(context)

    async def known_to(self, context: ToolContext) -> None:
        if not self._knows_granted(context):
            await self.grants.know_held(context)
        if not (sources := self._served.unknown_to(context)):
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
            if name not in withheld and fits(source, MountedSource)
            for info in (source.server_info(),)
        ]
        return {SERVERS_META_KEY: servers} if servers else {}

    def is_arriving(self) -> bool:
        return bool(self._unlisted)

    async def arrive(self) -> None:
        await self._unlisted.arrive(listed=True)

    def grants_issued(self, context: ToolContext) -> int:
        return self.grants.issued_to(context) if context.session and self._served.defers else 0

    async def definition(self, name: str, context: ToolContext) -> Mapping[str, str]:
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
        self._tell(call, context, tool=call.name, server=name, outcome="refused", reason=reason)
        return result

    def refused(self, call: ToolCall, context: ToolContext, fault: CallError) -> None:
        self._tell(call, context, fault)

    def _tell(
        self, call: ToolCall, context: ToolContext, fault: CallError | None = None, **told: str
    ) -> None:
        if observers := self._rules.observers:
            digest = digest_of(observers)
            binding = self._served.table.get(call.name)
            seen = Observation(binding, digest(call.arguments) if digest else "")
            seen.fault = fault
            tell(observers, replace(report_of(seen, call, context, None), **told))


_log = logging.getLogger("mcp_toolset.policy")


class HostCalls(ClientSide):
    """The side of a server that its own program calls, without a wire."""

    @property
    def auth(self) -> Authenticator | None:
        """Who may call over HTTP, by the argument `auth`, otherwise by the configuration; `None`: any client.

        Raises:
            ConfigError: what the configuration says cannot be used.
        """
        configured = self.configured if self._auth is None else None
        return self._auth if configured is None else configured.authenticator()

    def rely_on_callers(self, auth: Auth | None = None, *, stdio: bool = False) -> None:
        """Refuse rules of a configuration for some callers, if neither it nor `auth` says who calls.

        Such rules of the program are a warning: it may call its tools for callers that it knows.

        Args:
            auth: Who may call over HTTP.
            stdio: Whether a client on standard input is served, of which nothing is known.

        Raises:
            ConfigError: there are such rules.
        """
        if self.configured is not None:
            self.configured.rely_on_callers(bool(auth or self._auth))
        is_known = not stdio and (auth or self.auth) is not None
        if not is_known and not self._is_told and self._visibility.is_for_some():
            self._is_told = True
            mend = "serve over HTTP" if stdio else "give auth=…"
            _log.warning("rules for callers by name, role or scope match nobody here: %s", mend)

    def tools(self) -> list[dict[str, Any]]:
        """The entries of `tools/list` for a client without grants, in wire form."""
        return list(self._served.wire)

    @property
    def offering(self) -> Offering:
        """The prompts and resources of all that is served, under their public names."""
        return self._offering

    def bindings(self) -> list[ToolBinding]:
        """Everything that can be called, resident and deferred, under its public name."""
        return list(self._served.table.values())

    @property
    def policy(self) -> Policy | None:
        """The policy that applies now: the program's and the configuration's together; `None` for none."""
        return self._visibility.policy

    def limits_of(self, binding: ToolBinding, identity: Identity | None = None) -> list[Any]:
        """How much a caller may use of a tool: each limit with its place; without a caller, those for all."""
        return self._visibility.limits_of(binding, identity)

    def statuses(self) -> dict[str, SourceStatus]:
        """The status of each mounted server, by its name."""
        return self._served.statuses()

    async def settled(self) -> None:
        """Wait until every mounted server has been reached or has failed once.

        Opening a server does not wait for slow mounts. Use this before listing all tools.
        """
        await settled(list(self.registry.sources().values()))
        await self._rebuild()

    def unbound(self) -> tuple[UnboundName, ...]:
        """The names in hooks, middleware and verbs that match no tool so far."""
        return self._served.report.found

    def search(
        self, query: str, *, server: str | None = None, limit: int = 10, context: ToolContext | None = None
    ) -> list[SearchHit]:
        """Search the deferred tools, as `search_tools` does for a model: all, or those for a caller."""
        if not self._served.defers:
            return []
        return self._served.catalog.search(query, server=server, limit=limit, context=context)

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *, context: ToolContext = LOCAL_CONTEXT
    ) -> ToolResult:
        """Call a tool in process, with the same checks, middleware and hooks as a client's call.

        Raises:
            UnknownToolError: no such tool for this caller.
            UpstreamProtocolError: a mounted server answered with a protocol error.
            StateError: the server is not open.
        """
        self._require_open()
        return await self.call(ToolCall(name, arguments or {}), context)

    async def call_as_host(
        self, name: str, arguments: dict[str, Any] | None = None, *, context: ToolContext = LOCAL_CONTEXT
    ) -> ToolResult:
        """Call any tool, listed or deferred, as the program that owns the server: no grant is needed.

        Middleware, hooks and checks apply as to every call.

        Raises:
            UnknownToolError: no such tool.
            StateError: the server is not open.
        """
        self._require_open()
        return await self._served.call_ungranted(ToolCall(name, arguments or {}), context)

    def _require_open(self) -> None:
        if self._stack is None:
            raise StateError(f"server {self.name!r} is not open; call its tools inside `async with server:`")

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

    def serves_one_user(self) -> None:
        """Treat all callers without authentication as the same user, as over stdio."""
        self.extensions.alone()

    async def run_stdio(self, *, drain: float = 1.0) -> None:
        """Serve one client on standard input and output, until it closes them.

        Args:
            drain: Seconds that requests in flight may take after the client has closed its output: the client
                may still read the answers.
        """
        from mcp_toolset.transports.stdio_server import serve_stdio

        self.serves_one_user()
        self.rely_on_callers(stdio=True)
        await serve_stdio(self.answers, drain=drain)

    def http_app(
        self,
        *,
        allowed_hosts: Sequence[str] = (),
        allowed_origins: Sequence[str] = (),
        json_response: bool = False,
        request_timeout: float = REQUEST_TIMEOUT,
        limits: HttpLimits | None = None,
        trusted_proxies: Sequence[str] | None = None,
        auth: Auth | None = None,
    ) -> Starlette:
        """A Starlette application with `/mcp` (streamable HTTP) and `/sse`; see `transports.http.app`.

        `auth` says who may call this application; by default the server's `auth` decides. `limits` and
        `trusted_proxies` are by default those of the configuration.
        """
        from mcp_toolset.transports.http.app import http_app
        from mcp_toolset.transports.http.messages import HttpLimits

        stated = {} if self.configured is None else dict(self.configured.config.http or {})
        proxies: Sequence[str] = stated.pop("trusted_proxies", ())
        own = authenticator(auth)
        self.rely_on_callers(own)
        return http_app(
            self.answers,
            self.monitor,
            self.extensions.http_pages(),
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            json_response=json_response,
            request_timeout=request_timeout,
            limits=limits or HttpLimits(**stated),
            trusted_proxies=proxies if trusted_proxies is None else trusted_proxies,
            auth=lambda: own or self.auth,
            logins=self._login_of,
            told=self.extensions.record,
            shared=self._shared,
        )

    @cached_property
    def monitor(self) -> Monitor:
        """How the server is doing, for the pages that monitoring asks."""
        # What serves one client by pipes is not asked.
        from mcp_toolset.server.monitor import Monitor

        return Monitor(self._required, self.statuses, self._visibility.hides_server, self._shared)

    def _required(self) -> Ready:
        """What must work for the server to be ready, as told here, or in the configuration."""
        if (told := self._own.get("ready")) is not None:
            return told
        from mcp_toolset.server.monitor import Ready

        stated = None if self.configured is None else self.configured.config.ready
        return Ready(**(stated or {}))

    def _login_of(self, ticket: str) -> PendingLogin | None:
        """The login at a mounted server that has this ticket."""
        sources = [one for one in self.registry.sources().values() if fits(one, MountedSource)]
        return next((login for one in sources if (login := one.login_of(ticket)) is not None), None)

    async def run_http(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        request_timeout: float = REQUEST_TIMEOUT,
        insecure: bool = False,
    ) -> None:
        """Serve `/mcp` and `/sse` until cancelled; see `transports.http.app`.

        Raises:
            ToolsetError: the address cannot be used, or other machines reach it without authentication.
        """
        from mcp_toolset.transports.http.app import serve_http

        await serve_http(self, host=host, port=port, request_timeout=request_timeout, insecure=insecure)


class LiveChanges(ServerParts):
    """Toolsets that join and leave, another configuration, other members: each without a restart."""

    async def attach(self, toolset: Toolset | Tool[..., Any] | Callable[..., Any]) -> SourceHandle:
        """Serve one more toolset from now on; clients are told once that the list has changed.

        It returns when each mounted server of the toolset is connected, or has failed once.

        Raises:
            StateError: the server is not open, or the toolset is open somewhere else.
            NameConflictError: a mount or a local tool has a name that is taken; nothing has changed.
        """
        handle = await self._attachments.join(_toolset_of(toolset))
        await self._rebuild()
        return handle

    async def detach(self, handle: SourceHandle, *, drain: float = DRAIN) -> None:
        """Stop serving a toolset, and close it.

        New calls are refused from this moment on; calls in flight have at most `drain` seconds to end. It
        returns when the toolset is closed.

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
        accept: Callable[[], None] | None = None,
    ) -> None:
        """Serve another toolset in the place of an attached one, under the same handle.

        The new toolset is open before the old one leaves, and each call runs on one of them. Tools with the
        same id keep their names and their membership.

        Args:
            handle: What `attach` returned.
            toolset: The new toolset.
            drain: Seconds that calls in flight on the old one may take.
            accept: Called when the new toolset is open. If it raises an error, the new toolset is closed, the
                old one stays, and `replace` raises the error.

        Raises:
            StateError: nothing is attached by this handle, or the toolset is open somewhere else.
            NameConflictError: a name is taken; the old one stays.
        """
        left = await self._attachments.change(handle, _toolset_of(toolset), accept)
        try:
            await self._rebuild()
        finally:
            await left.ended(drain)

    async def reload(
        self, config: HubConfig | None = None, *, drain: float = DRAIN, patience: float = PATIENCE
    ) -> ReloadReport:
        """Read the configuration file again and serve it, without ending any call in flight.

        A server keeps running if its entry has not changed, or only in names, choices of tools or pins. New
        and changed servers are started beside the running ones; then all changes take effect at once, and
        clients are told once. If a changed server does not answer in time, its old connection serves calls
        until the new one answers or fails. `reload` returns when the new configuration is served; removed
        servers are closed when their calls have ended.

        Args:
            config: The configuration; read again from where it came unless given.
            drain: Seconds that calls in flight on removed servers may take.
            patience: Seconds to wait for servers that are starting.

        Raises:
            StateError: the server is not open, or serves no configuration.
            ConfigError: the file cannot be used. The server keeps its configuration, as for the errors below.
            DefinitionError: an entry cannot be served as written.
            NameConflictError: a name is taken.
        """
        if self.configured is None:
            raise StateError(
                "this server serves no configuration; mount one with toolset_from_config, or use attach()"
            )
        if self._reloads is None:
            raise StateError("a configuration is reloaded while the server is open; enter it first")
        report = await self._reloads.reload(config, drain=drain, patience=patience)
        if self.extensions.record is not None:
            self.extensions.record("reloaded", changes=str(report))
        return report

    async def choose(self, members: Mapping[ToolSelector, bool | None]) -> int:
        """Make tools members of the catalog or remove them, and wait until the change is served.

        See `ToolRegistry.choose`; a tool that is taken out is refused at once.

        Raises:
            UnknownToolError: one of them is not there, or is hidden by a policy; nothing has changed.
        """
        generation = self.registry.choose(members)
        await self._rebuild()
        return generation


def _toolset_of(value: Toolset | Tool[..., Any] | Callable[..., Any]) -> Toolset:
    return cast("Toolset", value) if isinstance(value, Toolset) else Toolset(value)


class Lifecycle(ServerParts):
    """Opens the mounted servers and the tasks of a server, and closes them in the opposite order."""

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
            await self._open(OpeningWait(patience=opening.PATIENCE))
        except BaseExceptionGroup as group:
            raise sole(group) from None
        return self

    async def _open(self, waiting: OpeningWait) -> None:
        async with AsyncExitStack() as stack:
            await self._open_stores(stack)
            self._news.attach()
            if self._keeper is not None:
                await stack.enter_async_context(self._keeper.state)
                await self._keeper.restore()
                stack.callback(self.registry.on_change(self._keeper.changed))
                stack.push_async_callback(self._save_last)
            for source in self.toolset.sources():
                stack.callback(source.on_change(self._news.watching(source)))
            await self._kept.restore(self.toolset.sources())
            await stack.enter_async_context(self.toolset.opening(waiting))
            await stack.enter_async_context(self._kept.running())
            if self._indexes is not None:
                await stack.enter_async_context(self._indexes.running())
            self._unlisted.begin(self.toolset.sources(), self.toolset.listing_sources())
            await self._rebuild()
            if self._served.defers and self._indexes is not None:
                await self._indexes.fetch()
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
            await self.extensions.run(stack)
            self._manual.open()
            stack.callback(self._manual.close)
            self._stack = stack.pop_all()

    async def _open_stores(self, stack: AsyncExitStack) -> None:
        """Open what calls and changes are written to."""
        if self._shared is not None:
            await stack.enter_async_context(self._shared.running())
            self._share(self._shared)
        await self.extensions.open(stack)
        self.extensions.declare(self.registry.sources().values())

    def _share(self, shared: Shared) -> None:
        """Tell the mounts what the replicas share; some of them one replica alone may have."""
        if self.configured is not None:
            self.configured.share(shared)
        for source in self.toolset.sources():
            if fits(source, MountedSource):
                source.share(shared)

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
            await self._open(OpeningWait(limit=0))
        except BaseExceptionGroup as group:
            raise sole(group) from None
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self.__aexit__)
            yield

    def use_nothing_kept(self) -> None:
        """Serve only what mounted servers list in this run, before the server is opened; it is kept."""
        self._kept.is_used = False

    async def _save_last(self) -> None:
        if self._keeper is not None:
            with anyio.CancelScope(shield=True):
                await self._keeper.save()
