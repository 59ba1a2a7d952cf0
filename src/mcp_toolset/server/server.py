"""`ToolsetServer`: one toolset behind one MCP server, for every transport and both protocol eras."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack, cast

import anyio

from mcp_toolset._index import homes, marked, needed, part
from mcp_toolset._rule import refuse_replaced, refuse_rules_in, rules_among, take
from mcp_toolset.calls.background import BackgroundWork, EventLog
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.middleware import ToolMiddleware
from mcp_toolset.calls.observers import sampler_of
from mcp_toolset.calls.rules import AnyRule, Rules, rules_from
from mcp_toolset.calls.suspended import SuspendedStore
from mcp_toolset.catalog.grants.access import AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.catalog.registry.registry import RegistryMembership, SourceHandle, ToolRegistry
from mcp_toolset.concurrency.tasks import REQUEST_TIMEOUT
from mcp_toolset.context.connection import PendingLogin
from mcp_toolset.context.offer_kinds import MountedSource, Offers
from mcp_toolset.errors import DefinitionError, StateError, sole
from mcp_toolset.extending.joined import Extensions, extensions_of
from mcp_toolset.protocol.eras import STRICTEST
from mcp_toolset.server import mounts
from mcp_toolset.server.client_side import ClientSide
from mcp_toolset.server.handler_context import LocalTools, ManualCalls, PendingCall
from mcp_toolset.server.mcp_server import MCPServer
from mcp_toolset.server.mounts import (
    DRAIN,
    TIMEOUT,
    Attachments,
    KeptCatalogs,
    Reload,
    ReloadReport,
    UnlistedMounts,
    Visibility,
    folder_for,
    reloadable_in,
)
from mcp_toolset.server.news import News
from mcp_toolset.server.offering import LocalOffers, Offering
from mcp_toolset.server.parts import OWN, OwnKeywords, ServerHost, authenticator, observed_by, turned_on
from mcp_toolset.server.tool_answers import ToolAnswers
from mcp_toolset.server.tool_table import ServedTools
from mcp_toolset.tools import opening
from mcp_toolset.tools.binding import ToolBinding, ToolSelector
from mcp_toolset.tools.call import ALWAYS, LOCAL_CONTEXT, Identity, ToolCall, ToolContext, granted
from mcp_toolset.tools.opening import OpeningWait, settled, unwind
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import CompletionProvider, PromptProvider, ResourceProvider, SourceStatus
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.toolset import Toolset, offered_by
from mcp_toolset.tools.view import UnboundName

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
    from mcp_toolset.catalog.registry.state_store import StoredState
    from mcp_toolset.catalog.search.index import SearchHit
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.config.models import HubConfig
    from mcp_toolset.extending.host import ViewOptions
    from mcp_toolset.extensions.keywords import Keywords
    from mcp_toolset.sdk import Server
    from mcp_toolset.security.authenticator import Auth, Authenticator
    from mcp_toolset.security.policy import Policy
    from mcp_toolset.server.parts import ServerKeywords
    from mcp_toolset.server.state_keeper import StateKeeper
    from mcp_toolset.server.view import ServerView
    from mcp_toolset.shared.state import SharedState
    from mcp_toolset.stores.store import StorePlace
    from mcp_toolset.transports.http.budgets import HttpLimits
    from mcp_toolset.transports.http.monitor import Monitor, Ready

_log = logging.getLogger("mcp_toolset.policy")


class ToolsetServer(ClientSide):
    """Serves a toolset to MCP clients. `async with server:` connects to its mounted servers.

    `lowlevel` is an SDK `Server`, so `mcp.Client(server.lowlevel)` talks to it in process. `registry`
    holds the tools and knows which of them can be called; toolsets join and leave with `attach` and
    `detach` while clients are connected. `configured` is the configuration that it serves, which `reload`
    reads again; `None` if it serves none.

    A catalog of more than 500 tools is compiled in a worker thread, so that calls go on meanwhile. Your
    functions for toolsets, such as the predicate of `filtered`, then run in that thread.
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
        rules: AnyRule | None = None,
        resources: ResourceProvider | None = None,
        prompts: PromptProvider | None = None,
        completions: CompletionProvider | None = None,
        capabilities: Iterable[str] = (),
        policy: Policy | None = None,
        auth: Auth | None = None,
        extensions: Sequence[Any] = (),
        **others: Unpack[ServerKeywords],
    ) -> None:
        """Describe a server; nothing is opened or listening yet.

        Args:
            toolset: The toolset to serve.
            name: The server's name, as clients see it.
            version: The server's version, as clients see it.
            instructions: Text for the model. A preview of deferred tools and the instructions of mounted
                servers are added to it.
            hooks: Execution and description hooks, for local and mounted tools alike.
            middleware: Around every call, outermost first.
            tool_middleware: Around the calls of some tools, by name, pattern, tool or toolset.
            rules: `Rules`, or a rule of any other form (see `Rules.of`), instead of the three above. When the
                server opens, it reports names in rules and verbs that match no tool: see docs/names.md.
            resources: Resources that clients can read, such as `Resources`, before those of the toolset.
            prompts: Prompts that users can pick, such as `Prompts`.
            completions: Proposes values for arguments of prompts and resource templates.
            capabilities: The capabilities of every local tool: `ask`, `sample`, `session`, `catalog`,
                `membership`, `background`, `processes`, `events`; `progress` and `log` are always.
            policy: The tools that exist for each caller, and those that need an approval; if the
                configuration has a policy too, the strictest of both counts. See docs/policies.md.
            auth: The authentication over HTTP: a verifier of tokens, several, or an `Authenticator`; the
                configuration's unless given, otherwise any client. See docs/authentication.md.
            extensions: Opt-in parts, the outermost first: of this package, of others, and of the MCP SDK. See
                docs/extensions.md.
            others: The keywords of `OwnKeywords`, and extensions by their keys, such as `journal=True`. The
                toolset and the configuration decide about those that are not given.

        Raises:
            DefinitionError: there is no such capability, the time is not positive, the prefix is too
                long, `access` is asynchronous, or an extension cannot be used as it is.
            NameConflictError: two mounts or two local tools have one name, or one has a name of the
                deferred catalog's.
        """
        own = cast("OwnKeywords", {key: value for key, value in others.items() if key in OWN})
        keywords = {key: value for key, value in others.items() if key not in OWN}
        get = own.get
        shared, access = get("shared"), get("access")
        _check_kinds(toolset, policy, own)
        extensions = tuple(extensions)
        take(policy, auth, *keywords.values(), *extensions)
        self.configured = reloadable_in(toolset)
        self.name = name
        # What is given is taken now, so that its errors come now; the rest is made with the first need.
        if (events := get("events")) is not None:
            self.events = events
        grants = get("grants")
        if grants is None and shared is not None:
            grants = shared.grants()
        if grants is not None:
            self.grants = grants if isinstance(grants, GrantLedger) else GrantLedger(grants)
        if "manual_timeout" in own:
            self._manual = ManualCalls(own["manual_timeout"])
        applied: Rules | None = None
        if rules is not None or hooks is not None or tool_middleware or middleware != ():
            applied = rules_from(rules, hooks, middleware, tool_middleware).taken()
        state = get("state") or (None if shared is None else shared.registry_state(name))
        self._own_instructions = instructions
        self._shared = shared
        self._own = own
        self._given: dict[str, Any] = {
            **others,
            "name": name,
            "version": version,
            "instructions": instructions,
            "rules": applied,
            "policy": policy,
            "auth": auth,
            "resources": resources,
            "prompts": prompts,
            "completions": completions,
            "capabilities": granted(capabilities, f"server {name!r}"),
            "extensions": extensions,
            "state": state,
        }
        services: dict[type, Callable[[], object]] = {
            BackgroundWork: lambda: self.work,
            ToolAnswers: lambda: self.answers.tools,
        }
        host = self.host = self._hosting(
            name,
            version,
            self.configured,
            services,
            shared,
            grants=lambda: self.grants,
            toolsets=lambda: self.registry.toolsets(),
            extensions=lambda: self.extensions,
            served=lambda: self._served,
            visibility=lambda: self._visibility,
            offering=lambda: self._offering,
            relay=lambda: self.answers.reading.relayed,
            lowlevel=lambda: self.lowlevel,
            viewed=self.viewed,
        )
        self.extensions = self._extended(extensions, turned_on(toolset, keywords), host)
        keeps = not any(keywords.get(key) is False for key in marked("keeps_calls"))
        found = {SuspendedStore: shared if keeps else None, **self.extensions.services()}
        for kind, service in found.items():
            services.setdefault(kind, lambda service=service: service)
        self.need = host.need
        if (observers := self.extensions.observers()) or applied is not None:
            self._rules = observed_by(observers, Rules() if applied is None else applied)
        self.toolset = toolset
        self.sessions = get("sessions")
        added = self.added_tools = self.extensions.tools()
        toolsets = [toolset, Toolset(*added)] if added else [toolset]
        prefix = get("client_prefix", "")
        self.registry = ToolRegistry(
            *toolsets, client_prefix=prefix, reserved=host.catalog_names, is_part=self._is_part
        )
        self._speaking = self.registry
        if access is not None and not self.registry.defers and not toolset.sources():
            raise DefinitionError("access decides about deferred tools, and none is: use toolset.deferred()")
        self._introductions = {}
        self.views = []
        self._auth = authenticator(auth)
        self._stack = None
        self._warned_about_callers = set[str]()
        self._reload: Reload | None = None
        self._keeper = None if state is None else _keeper(state, name, self.registry)
        self._kept_in = partial(folder_for, get("keep"), state)
        if "_rules" in vars(self) or policy is not None or self.configured is not None:
            _ = self._served  # now: for the errors of rules, and before a subclass sets such a name

    # The parts, made with the first need: at the latest when the server opens

    @cached_property
    def events(self) -> EventLog:
        """The events that tools note."""
        return EventLog()

    @cached_property
    def grants(self) -> GrantLedger:
        """The ledger that issues and judges the grants of deferred tools."""
        return GrantLedger()

    @cached_property
    def work(self) -> BackgroundWork:
        """The work of tools that goes on after their calls."""
        return BackgroundWork()

    @property
    def members(self) -> RegistryMembership:
        """The members of the catalog, for a tool that may change them."""
        return self.registry.membership

    @cached_property
    def _rules(self) -> Rules:
        return Rules()

    @cached_property
    def _visibility(self) -> Visibility:
        policy, toolsets, host = self._given["policy"], self.registry.toolsets, self.host
        return self._seeing(policy, toolsets, self._rules, self.extensions, lambda: host.identified)

    @cached_property
    def _manual(self) -> ManualCalls:
        return ManualCalls()

    @cached_property
    def _local(self) -> LocalTools:
        _ = self.events  # made in this thread: tools in several threads may note the first one
        return LocalTools(self, self._manual, self._given["capabilities"] | ALWAYS)

    @cached_property
    def _kept(self) -> KeptCatalogs:
        return KeptCatalogs(self._kept_in, self._shared)

    @cached_property
    def _indexes(self) -> Any:
        keeping = part("indexes")
        return keeping and keeping(self._kept_in, self._shared)

    @cached_property
    def _unlisted(self) -> UnlistedMounts:
        return UnlistedMounts(self._list_timeout(), self._current)

    @cached_property
    def _offering(self) -> Offering:
        given, hint, readers = self._given, self._own.get("list_hint", STRICTEST), self.extensions.readers
        offers = _offers(self.toolset, given["resources"], given["prompts"])
        local = LocalOffers(*offers, given["completions"], lambda: self._served.has_own, hint, readers)
        passing, schemes = lambda: self._served.passing(), self.extensions.schemes
        return Offering(local, self._offers, self._unlisted, self._visibility, passing, schemes)

    @cached_property
    def _served(self) -> ServedTools:
        local, offering = self._local, self._offering
        return self._serving(
            self.registry,
            self._catalog,
            lambda binding: offering.bound(local.bound(binding)),
            offering,
            self._visibility,
            rules=self._rules,
            own_hint=self._own.get("list_hint", STRICTEST),
            promises=not self.extensions.reshapes,
            beside=self.extensions.catalog_tools,
            # What `access` says of single calls, no list could say.
            lists_all=None if self._own.get("access") is not None else self._lists_all(),
        )

    @property
    def answers(self) -> MCPServer:
        """Answers the requests of its clients."""
        return self._mcp_server

    @cached_property
    def _mcp_server(self) -> MCPServer:
        made = self._answering(
            self,
            self._served,
            self.opened,
            name=self.name,
            version=self._given["version"],
            instructions=self._own_instructions,
            offering=self._offering,
            extensions=self.extensions,
            shared=self._shared,
            suspended=self.need(SuspendedStore),
            traces=sampler_of(self._rules.observers),
        )
        made.handshake.extensions = self.extensions.advertised()
        made.handshake.has_tasks = lambda: self._local.has_tasks
        return made

    @cached_property
    def _news(self) -> News:
        return News(self._served, self._offering, self.answers)

    @cached_property
    def _attachments(self) -> Attachments:
        return Attachments(self.registry, self._news.changed.set)

    # The parts that a view of a server has otherwise (`server/view.py`)

    _is_part: ClassVar = False
    _seeing: ClassVar = Visibility
    _answering: ClassVar = MCPServer
    _serving: ClassVar = ServedTools

    def _hosting(self, *facts: Any, **parts: Any) -> ServerHost:
        return ServerHost(*facts, **parts)

    def _extended(self, given: Sequence[Any], keywords: Mapping[str, Any], host: ServerHost) -> Extensions:
        file: Mapping[str, Settings | None] = (
            {} if self.configured is None else self.configured.config.extensions
        )
        return extensions_of(given, keywords, file, host)

    def _lists_all(self) -> Callable[[ToolContext], bool | None] | None:
        return self.extensions.lists_all

    def viewed(self, options: ViewOptions) -> ServerView:
        """A view of this server, while it is open: see `server.view`."""
        # Few servers have views.
        from mcp_toolset.server.view import ServerView

        self._require_open()
        return ServerView(self, options)

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Refuse rules as attributes of a class of servers, where nothing would apply them."""
        super().__init_subclass__(**keywords)
        refuse_rules_in(cls, "give it to super().__init__(…)")
        refuse_replaced(cls, _FOR_PROGRAMS, "give hooks=… or policy=… to super().__init__(…)")
        for name in _RULES & vars(cls).keys() if cls.__init__ is ToolsetServer.__init__ else ():
            raise DefinitionError(f"{cls.__qualname__}.{name} applies to nothing: give {name}=… to super()")

    if not TYPE_CHECKING:  # so that a type checker still reports unknown names

        def __setattr__(self, name: str, value: Any) -> None:
            """Refuse a rule that is set after the server was made: nothing would apply it."""
            is_rule = name in _RULES or (not name.startswith("_") and any(rules_among(value)))
            is_made = "registry" in vars(self)
            if (is_made and name in _GIVEN) or (is_rule and name not in _GIVEN):
                raise DefinitionError(
                    f"server.{name} = … applies to no call: write ToolsetServer(…, {name}=…)"
                )
            if name in _FOR_PROGRAMS:
                raise DefinitionError(
                    f"server.{name} = … applies to no call of a client: give hooks=… or middleware=…"
                )
            object.__setattr__(self, name, value)

    @cached_property
    def lowlevel(self) -> Server[Any]:
        """An SDK `Server` in front of this one, made on first use."""
        return needed("lowlevel", "`lowlevel` is")(self.answers)

    def gives(self, key: str) -> bool:
        """True if the program has given a keyword such as `grants`."""
        return self._own.get(key) is not None

    def derived(
        self,
        *,
        toolset: Toolset | None = None,
        name: str | None = None,
        grants: GrantLedger | None = None,
        client_prefix: str | None = None,
        state: StorePlace | None = None,
        shared: SharedState | None = None,
        **others: Unpack[Keywords],
    ) -> ToolsetServer:
        """A server with the same arguments as this one, hooks included, except for those given here."""
        before = self._given
        given: dict[str, Any] = {
            **before,
            "events": self.events,
            "grants": grants or (self.grants if shared is None else None),
            "state": state or before["state"],
            "extensions": tuple(
                one for one in before["extensions"] if others.get(getattr(one, "key", "")) is not False
            ),
        }
        changed: dict[str, Any] = {"name": name, "client_prefix": client_prefix, "shared": shared, **others}
        given.update((key, one) for key, one in changed.items() if one is not None)
        return ToolsetServer(toolset or self.toolset, **given)

    def _list_timeout(self) -> float:
        """Seconds that a list waits for servers that have never listed their tools."""
        if (given := self._own.get("list_timeout")) is not None:
            return given
        configured = None if self.configured is None else self.configured.config.list_timeout
        return mounts.LIST_TIMEOUT if configured is None else configured

    def _catalog(self) -> DeferredCatalog:
        # Search loads tables, which a server without deferred tools does not need.
        from mcp_toolset.catalog.deferred.catalog import DeferredCatalog

        indexes = self._indexes
        catalog = DeferredCatalog(
            self.grants,
            self.registry.sources,
            access=self._own.get("access"),
            visible=self._visibility,
            scorer=self._own.get("scorer", "built-in"),
            listener=self.extensions.listener,
            beside=self.extensions.findable,
            look=indexes and indexes.look,
            arrive=self._unlisted.arrive,
            deferring=self.registry.deferring,
            listed_to=lambda context: {each["name"] for each in self._served.listed_to(context)},
            lists_all=self._served.lists_all if self._served.varies_by_client else None,
        )
        if indexes is not None:
            indexes.rest(catalog.index, catalog.is_private)
        return catalog

    def _offers(self) -> dict[str, Offers]:
        """The prompts and resources of each mounted server, by its name."""
        return {
            name: source.offers
            for name, source in self.registry.sources().items()
            if isinstance(source, MountedSource)
        }

    async def __aenter__(self) -> Self:
        """Open all mounted servers concurrently, wait for them, and compile the first list of tools.

        For programs that use the server from Python. It returns when each mounted server is ready or has
        failed, or some seconds after the first tools can be used. `run_stdio`, `run_http` and `http_app` do
        not wait for mounted servers: they open a server by `opened()`.

        Raises:
            StateError: it is open already.
            InvalidStateError: the state file is corrupt or foreign.
        """
        if self._stack is not None:
            raise StateError(f"server {self.name!r} is already open")
        try:
            await self._open(OpeningWait(rest_timeout=opening.TIMEOUT))
        except BaseExceptionGroup as group:
            raise sole(group) from None
        return self

    async def _open(self, waiting: OpeningWait) -> None:
        """Open stores, mounted servers and background work, in this order; `__aexit__` closes them."""
        async with AsyncExitStack() as stack:
            await self._open_stores(stack)
            self._news.attach()
            if self._keeper is not None:
                await stack.enter_async_context(self._keeper.state)
                await self._keeper.restore()
                stack.callback(self.registry.on_change(self._keeper.changed.set))
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
                reloads = self.configured.reloads(
                    sources=self.registry.sources, changed=self._news.changed.set, rebuild=self._rebuild
                )
                self._reload = await stack.enter_async_context(reloads)
            await stack.enter_async_context(self.work)
            await self.extensions.run(stack)
            self._manual.open()
            stack.callback(self._manual.close)
            self._stack = stack.pop_all()

    async def _open_stores(self, stack: AsyncExitStack) -> None:
        """Open the stores that calls and changes are written to."""
        if self._shared is not None:
            await stack.enter_async_context(self._shared.running())
            self._share(self._shared)
        await stack.enter_async_context(self.grants.store)
        await self.extensions.open(stack)
        self.extensions.declare(self.registry.sources().values())

    def _share(self, shared: SharedState) -> None:
        """Give the mounts the state that replicas share; some mounts may be open in one replica only."""
        if self.configured is not None:
            self.configured.share(shared)
        for source in self.toolset.sources():
            if isinstance(source, MountedSource):
                source.share(shared)

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all mounted servers and their child processes."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await unwind(stack, kind, fault, trace)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Open for the length of a block, unless it is open already; mounted servers are not waited for.

        Transports open a server this way. A mounted server joins when it is ready; until then its lists are
        those of the last run; see docs/starting.md.
        """
        if self._stack is not None:
            yield
            return
        try:
            await self._open(OpeningWait(timeout=0))
        except BaseExceptionGroup as group:
            raise sole(group) from None
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self.__aexit__)
            yield

    def use_nothing_kept(self) -> None:
        """Ignore the kept lists of earlier runs; call it before the server is opened. New lists are kept."""
        self._kept.is_used = False

    async def _save_last(self) -> None:
        if self._keeper is not None:
            with anyio.CancelScope(shield=True):
                await self._keeper.save()

    @property
    def auth(self) -> Authenticator | None:
        """The authenticator of HTTP callers, by the argument or the configuration; `None` lets any client in.

        Raises:
            ConfigError: `auth` in the configuration cannot be used.
        """
        configured = self.configured if self._auth is None else None
        return self._auth if configured is None else configured.authenticator()

    def rely_on_callers(self, auth: Auth | None = None, *, stdio: bool = False) -> None:
        """Refuse a configuration with rules about some callers, if no authentication tells callers apart.

        Such rules of the program cause a warning only: the program may call its tools for known callers.

        Args:
            auth: The authentication of callers over HTTP.
            stdio: True if the client is on standard input, without any authentication.

        Raises:
            ConfigError: the configuration has such rules.
        """
        if self.configured is not None:
            self.configured.rely_on_callers(bool(auth or self._auth))
        known, warnings = None if stdio else authenticator(auth or self.auth), list[str]()
        if known is None and self._visibility.is_for_some():
            mend = "serve over HTTP" if stdio else "give auth=…"
            warnings = [f"rules for callers by name, role or scope match nobody here: {mend}"]
        elif known is not None and (holders := known.holders):
            of_program = self.configured is not None and self._auth is None
            warnings = self._visibility.unreached(holders, of_program=of_program)
        for line in warnings:
            if line not in self._warned_about_callers:
                self._warned_about_callers.add(line)
                _log.warning("%s", line)

    def tools(self) -> list[dict[str, Any]]:
        """The entries of `tools/list` for a client without grants, in wire form."""
        return list(self._served.wire)

    @property
    def offering(self) -> Offering:
        """The prompts and resources that are served, under their public names."""
        return self._offering

    def bindings(self) -> list[ToolBinding]:
        """All tools that can be called, listed and deferred, under their public names."""
        return list(self._served.table.values())

    @property
    def policy(self) -> Policy | None:
        """The policy that applies now: the program's and the configuration's together; `None` for none."""
        return self._visibility.policy

    def limits_of(self, binding: ToolBinding, identity: Identity | None = None) -> list[Any]:
        """The limits of a caller for a tool, each with its place; without a caller those for everyone."""
        return self._visibility.limits_of(binding, identity)

    def records(self, binding: ToolBinding) -> bool:
        """True if calls of a tool are recorded, so that a repeat under the same key has no second effect."""
        return self._visibility.records(binding)

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
        """Wait for the next manual call; each call is handed out once, even to several readers.

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
            drain: Seconds that requests in flight may take after the client has closed its output: the client
                may still read the answers.
        """
        from mcp_toolset.transports.stdio_server import serve_stdio

        self.extensions.alone()
        self.rely_on_callers(stdio=True)
        async with self.opened():
            view = await self.extensions.entered()
            if view is None:
                return await serve_stdio(self.answers, drain=drain)
            async with anyio.create_task_group() as group:

                async def end() -> None:
                    await view.closed.wait()
                    group.cancel_scope.cancel()

                # A view that is removed from the configuration has no client any more.
                group.start_soon(end)
                await serve_stdio(view.answers, drain=drain)
                group.cancel_scope.cancel()

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
        from mcp_toolset.transports.http.budgets import HttpLimits

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
            views=self.extensions.views(),
        )

    @cached_property
    def monitor(self) -> Monitor:
        """The state of the server, for the pages of monitoring."""
        # A server on standard input has no such pages, and does not load this.
        from mcp_toolset.transports.http.monitor import Monitor

        return Monitor(self._required, self.statuses, self._visibility.hides_server, self._shared)

    def _required(self) -> Ready:
        """The conditions of readiness, by the argument or the configuration."""
        if (given := self._own.get("ready")) is not None:
            return given
        from mcp_toolset.transports.http.monitor import Ready

        stated = None if self.configured is None else self.configured.config.ready
        return Ready(**(stated or {}))

    def _login_of(self, ticket: str) -> PendingLogin | None:
        """The pending login with this ticket, at the mounted server that has it."""
        sources = [one for one in self.registry.sources().values() if isinstance(one, MountedSource)]
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
        from mcp_toolset.transports.http.app import bound_socket, run_app
        from mcp_toolset.transports.http.arrival import check_address

        check_address(host, authenticated=self.auth is not None, insecure=insecure)
        with bound_socket(host, port) as listening:
            await run_app(self.http_app(request_timeout=request_timeout), listening)

    async def attach(self, toolset: Toolset | Tool[..., Any] | Callable[..., Any]) -> SourceHandle:
        """Serve one more toolset from now on; clients are told once that the list has changed.

        It returns when each mounted server of the toolset is connected, or has failed once.

        Raises:
            DefinitionError: a configuration in it has settings for the whole server, such as `audit`.
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
            handle: The handle that `attach` returned.
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
        self, config: HubConfig | None = None, *, drain: float = DRAIN, timeout: float = TIMEOUT
    ) -> ReloadReport:
        """Read the configuration file again and serve it, without ending any call in flight.

        A server keeps running if its entry has not changed, or only in names, choices of tools or pins. New
        and changed servers are started beside the running ones; then all changes take effect at once, and
        clients are told once. If a changed server does not answer in time, its old connection serves calls
        until the new one answers or fails. `reload` returns when the new configuration is served; removed
        servers are closed when their calls have ended.

        Args:
            config: The configuration; by default its file is read again.
            drain: Seconds that calls in flight on removed servers may take.
            timeout: Seconds to wait for servers that are starting.

        Raises:
            StateError: the server is not open, or serves no configuration.
            ConfigError: the file cannot be used. The server keeps its configuration, as for the errors below.
            DefinitionError: an entry cannot be served as written.
            NameConflictError: a name is taken.
        """
        if self.configured is None:
            raise StateError(
                "this server serves no configuration; mount one with load_toolset, or use attach()"
            )
        if self._reload is None:
            raise StateError("a configuration is reloaded while the server is open; enter it first")
        report = await self._reload(config, drain=drain, timeout=timeout)
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


_RULES = frozenset(("rules", "hooks", "middleware", "tool_middleware", "access", *homes("key"))) - {"auth"}
"""Arguments that decide about calls; a server has no attributes of these names."""

_GIVEN = frozenset({"grants", "toolset"})
"""Arguments that are attributes too; a server reads them only while it is made."""

_FOR_PROGRAMS = frozenset(
    {"bindings", "call_as_host", "call_tool", "definition", "limits_of", "policy", "search", "tools"}
)
"""Members for the program alone; a subclass that replaces one would change nothing for clients."""


def _keeper(state: StorePlace | StoredState, name: str, registry: ToolRegistry) -> StateKeeper:
    # File locks take long to import, and few servers have a state file.
    from mcp_toolset.catalog.registry.state_store import StoredState
    from mcp_toolset.server.state_keeper import StateKeeper

    return StateKeeper(state if isinstance(state, StoredState) else StoredState(state, name), registry)


def _offers(
    toolset: Toolset, resources: ResourceProvider | None, prompts: PromptProvider | None
) -> tuple[list[ResourceProvider], list[PromptProvider]]:
    """The providers of resources and of prompts: those of the program, then those of the toolset."""
    nested_resources, nested_prompts = offered_by(toolset)
    return (
        nested_resources if resources is None else [resources, *nested_resources],
        nested_prompts if prompts is None else [prompts, *nested_prompts],
    )


def _check_kinds(toolset: object, policy: object, own: OwnKeywords) -> None:
    """Refuse arguments of a wrong type now, since a later error would not show the cause."""
    if isinstance(toolset, type) and issubclass(toolset, Toolset):
        raise DefinitionError(f"ToolsetServer({toolset.__name__}) takes an instance: {toolset.__name__}()")
    if not isinstance(toolset, Toolset):
        raise DefinitionError(
            f"ToolsetServer takes a toolset, not {toolset!r}; write Toolset(…) around tools"
        )
    if policy is not None:
        from mcp_toolset.security.policy import Policy

        if not isinstance(policy, Policy):
            raise DefinitionError(f"policy takes Policy(allow=[…], ask=[…], deny=[…]), not {policy!r}")
    if (access := own.get("access")) is not None:
        AccessPolicy(access)
    if (scorer := own.get("scorer", "built-in")) != "built-in":
        from mcp_toolset.catalog.search.ranking import require_scorer

        require_scorer(scorer)


def _toolset_of(value: Toolset | Tool[..., Any] | Callable[..., Any]) -> Toolset:
    return cast("Toolset", value) if isinstance(value, Toolset) else Toolset(value)
