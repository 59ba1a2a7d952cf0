"""`ToolsetServer`: one toolset behind one MCP server, for every transport and both protocol eras."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Unpack

from mcp_toolset._index import index
from mcp_toolset._records import replace
from mcp_toolset._rule import refuse_replaced, refuse_rules_in, rules_among, take
from mcp_toolset.calls.background import BackgroundWork
from mcp_toolset.calls.events import EventLog
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.middleware import ToolMiddleware
from mcp_toolset.calls.pipeline.observers import sampler_of
from mcp_toolset.calls.pipeline.rules import AnyRule, rules_from
from mcp_toolset.calls.suspended.store import SuspendedStore
from mcp_toolset.catalog.deferred.index_keeper import IndexKeeper
from mcp_toolset.catalog.grants.access import Access, AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.catalog.instructions import BUDGET
from mcp_toolset.catalog.registry.registry import ToolRegistry
from mcp_toolset.context.offer_kinds import OfferingSource, Offers
from mcp_toolset.context.shared import Shared
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.joined import extensions_of
from mcp_toolset.protocol.cache_hints import STRICTEST, CacheHint
from mcp_toolset.server import unlisted_mounts as unlisted
from mcp_toolset.server.attachments import Attachments
from mcp_toolset.server.call_guards import CallGuards
from mcp_toolset.server.changes import News
from mcp_toolset.server.handler_context import LocalTools
from mcp_toolset.server.interface.host_calls import HostCalls
from mcp_toolset.server.interface.lifecycle import Lifecycle
from mcp_toolset.server.interface.live_changes import LiveChanges
from mcp_toolset.server.interface.parts import (
    ServerOptions,
    authenticator,
    observed_by,
    suspended_store,
    task_handles,
    turned_on,
)
from mcp_toolset.server.kept_catalogs import Keeping, KeptCatalogs, SharedIndexes, folder_for
from mcp_toolset.server.manual_calls import MANUAL_TIMEOUT, ManualCalls
from mcp_toolset.server.mcp_server import MCPServer
from mcp_toolset.server.offers.local_offers import LocalOffers
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.server.reloadable import reloadable_in
from mcp_toolset.server.server_host import ServerHost
from mcp_toolset.server.tool_table import ServedTools
from mcp_toolset.server.unlisted_mounts import UnlistedMounts
from mcp_toolset.server.visibility import Visibility
from mcp_toolset.tools.core.capability import ALWAYS, Sessions, granted
from mcp_toolset.tools.core.source import fits
from mcp_toolset.tools.declare.prompts import CompletionProvider, PromptProvider, ResourceProvider
from mcp_toolset.tools.toolsets.toolset import Toolset, offered_by

if TYPE_CHECKING:
    from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
    from mcp_toolset.catalog.registry.state_store import StateStore
    from mcp_toolset.catalog.search.index import Scorer
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.context.shared import Shared
    from mcp_toolset.extensions.keywords import Keywords
    from mcp_toolset.security.authentication.authenticator import Auth
    from mcp_toolset.security.policy.approvals import Approvals
    from mcp_toolset.security.policy.policy import Policy
    from mcp_toolset.server.call_guards import LimitsByPattern
    from mcp_toolset.server.interface.monitor import Ready
    from mcp_toolset.server.interface.parts import Suspending
    from mcp_toolset.server.lowlevel.server import LowlevelServer
    from mcp_toolset.server.state_keeper import StateKeeper


class ToolsetServer(HostCalls, LiveChanges, Lifecycle):
    """Serves a toolset to MCP clients. `async with server:` connects to its mounted servers.

    `lowlevel` is an SDK `Server`, so `mcp.Client(server.lowlevel)` talks to it in process. `registry`
    says which tools there are and which of them can be called; toolsets join and leave with `attach`
    and `detach` while clients are connected. `configured` is the configuration among what it serves,
    which `reload` reads again, or `None`.

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
        events: EventLog | None = None,
        manual_timeout: float = MANUAL_TIMEOUT,
        grants: GrantLedger | None = None,
        access: Access | None = None,
        policy: Policy | None = None,
        limits: LimitsByPattern | None = None,
        approvals: Approvals | str | PathLike[str] | Literal[False] | None = None,
        client_prefix: str = "",
        state: str | PathLike[str] | StateStore | None = None,
        scorer: Scorer | Literal["built-in"] | None = "built-in",
        list_hint: CacheHint = STRICTEST,
        list_patience: float | None = None,
        keep: Keeping = None,
        instructions_budget: int = BUDGET,
        auth: Auth | None = None,
        sessions: Sessions | None = None,
        shared: Shared | None = None,
        suspended: Suspending | None = None,
        handle_after: float | None = None,
        ready: Ready | None = None,
        extensions: Sequence[Any] = (),
        **others: Unpack[Keywords],
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
            rules: `Rules`, or a rule of any other form (see `Rules.of`), instead of the three above. A name
                in a rule or a verb that matches no tool is reported at the opening: see docs/names.md.
            resources: Resources that clients can read, such as `Resources`, before those of the toolset.
            prompts: Prompts that users can pick, such as `Prompts`.
            completions: Proposes values for arguments of prompts and resource templates.
            capabilities: What every local tool is granted: `ask`, `sample`, `session`, `catalog`,
                `membership`, `background`, `processes`, `events`; `progress` and `log` are always.
            events: Where tools note events; a log in memory unless given.
            manual_timeout: Seconds that a manual call waits for the application, unless the tool says
                otherwise.
            grants: Issues and checks the grants of deferred tools; by default in memory, with the default
                lifetimes.
            access: A function that says who may use which deferred tool, at each search, resolve and call.
            policy: Which tools exist for which caller, and which need an approval; with a policy in the
                configuration that is served, the strictest of both counts. See docs/policies.md.
            limits: How much each caller may use, by pattern of tools; those of the configuration hold
                besides. See docs/limits.md.
            approvals: The file of calls that wait for an approval because their client shows no questions; by
                default the file that `mcp-toolset approvals` shows. `False` for none. See docs/approvals.md.
            client_prefix: What clients put before every name, such as `mcp__tools__`; with it, names
                stay within 64 characters.
            state: A file or a `StateStore` that keeps names and membership from one run to the next.
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
            auth: Who may call over HTTP: a verifier of tokens, several, or an `Authenticator`; the
                configuration's unless given, otherwise any client. See docs/authentication.md.
            sessions: Returns another session for a tool with the capability `sessions`, from its id and the
                context of the call; `None` if the tool may not read that session.
            shared: What the replicas of this server share, such as `SharedState("redis://…")`: grants, names
                and members, limits, sessions and questions, unless these are given. See docs/replicas.md.
            suspended: Where calls that wait for answers are kept, so that they go on after the server is
                started again: the path of a file, `True` for the user's file, or a `SuspendedStore`; `shared`
                or else the configuration's unless given, `False` for none. See docs/suspended.md.
            handle_after: Seconds after which a call of a client that takes no tasks is answered with a handle
                for the tools `get_task` and `cancel_task`; the configuration's unless given, and else the
                client waits. See docs/tasks.md.
            ready: What must work for `/ready` to say so; the configuration's unless given, otherwise a server
                that listens is ready. See docs/health.md.
            extensions: Opt-in parts, the outermost first: of this package, of others, and of the MCP SDK. See
                docs/extensions.md.
            others: Extensions by their keys, such as `journal=True`; the toolset's and the configuration's
                unless given.

        Raises:
            DefinitionError: there is no such capability, the time is not positive, the prefix is too
                long, `access` is asynchronous, or an extension cannot be used as it is.
            NameConflictError: two mounts or two local tools have one name, or one has a name of the
                deferred catalog's.
        """
        _check_kinds(toolset, policy, limits)
        take(policy, auth, *others.values(), *extensions)
        self.configured = reloadable_in(toolset)
        if shared is not None:
            grants = grants or GrantLedger(shared.grants())
            state = state or shared.registry_state(name)
        options = self._options = ServerOptions(
            name=name,
            version=version,
            instructions=instructions,
            rules=rules_from(rules, hooks, middleware, tool_middleware).taken(),
            resources=resources,
            prompts=prompts,
            completions=completions,
            capabilities=granted(capabilities, f"server {name!r}"),
            events=EventLog() if events is None else events,
            manual_timeout=manual_timeout,
            grants=grants or GrantLedger(),
            access=access,
            policy=policy,
            limits=limits,
            approvals=approvals,
            client_prefix=client_prefix,
            state=state,
            scorer=scorer,
            list_hint=list_hint,
            list_patience=list_patience,
            keep=keep,
            instructions_budget=instructions_budget,
            auth=auth,
            sessions=sessions,
            shared=shared,
            suspended=suspended,
            handle_after=handle_after,
            ready=ready,
            extensions=extensions,
            others=others,
        )
        file: Mapping[str, Settings | None] = (
            {} if self.configured is None else self.configured.config.extensions
        )
        self._suspended = suspended_store(suspended, self.configured, shared)
        services: dict[type, object] = {Shared: shared, SuspendedStore: self._suspended}
        host = ServerHost(
            name,
            version,
            self.configured,
            services,
            options.grants,
            extensions=lambda: self.extensions,
            served=lambda: self._served,
            visibility=lambda: self._visibility,
        )
        self.extensions = extensions_of(extensions, turned_on(toolset, others), file, host)
        services.update({**self.extensions.services(), **services})
        self.need = host.need
        self._rules = observed_by(self.extensions.observers(), options.rules)
        AccessPolicy(access)
        if scorer != "built-in":
            from mcp_toolset.catalog.search.ranking import require_scorer

            require_scorer(scorer)
        self.toolset = toolset
        self.name = name
        self.work = BackgroundWork()
        self.events = options.events
        self.grants = options.grants
        self.sessions = sessions
        added = self.extensions.tools()
        toolsets = [toolset, Toolset(*added)] if added else [toolset]
        if (handles := task_handles(handle_after, self.configured)) is not None:
            toolsets.append(handles.tools)
        if self.configured is not None and (stated := self.configured.config.suspended) is not None:
            options.grants.lengthen(stated["grants"] or 0)
        self.registry = ToolRegistry(*toolsets, client_prefix=client_prefix, reserved=host.catalog_names)
        if access is not None and not self.registry.defers and not toolset.sources():
            raise DefinitionError("access decides about deferred tools, and none is: use toolset.deferred()")
        self._introductions = {}
        guards = CallGuards(
            limits,
            self.registry.toolsets,
            served=lambda: host.identified,
            approvals=approvals,
            record=self.extensions.record,
            store=None if shared is None else shared.limits,
            others=self.extensions.guards,
        )
        self._visibility = Visibility(policy, self.registry.toolsets, self._rules, guards)
        self.members = self.registry.membership
        self._auth = authenticator(auth)
        self._stack = None
        self._is_told = False
        self._reloads = None
        self._manual = ManualCalls(manual_timeout)
        self._local = LocalTools(self, self._manual, options.capabilities | ALWAYS)
        self._keeper = None if state is None else _keeper(state, self.registry)
        self._kept = KeptCatalogs(partial(folder_for, keep, state), shared)
        self._indexes = IndexKeeper(
            partial(folder_for, keep, state), None if shared is None else SharedIndexes(shared)
        )
        self._unlisted = UnlistedMounts(self._patience(), self._current)
        self._offering = Offering(
            LocalOffers(
                *_offers(toolset, resources, prompts),
                completions,
                lambda: self._served.has_own,
                list_hint,
                self.extensions.readers,
            ),
            self._offers,
            self._unlisted,
            self._visibility,
            lambda: self._served.passing.source(),
        )
        self._served = ServedTools(
            self.registry,
            self._catalog,
            lambda binding: self._offering.bound(self._local.bound(binding)),
            self._offering,
            self._visibility,
            rules=self._rules,
            own_hint=list_hint,
            promises=not self.extensions.reshapes,
            beside=self.extensions.catalog_tools,
        )
        self.answers = MCPServer(
            self,
            name=name,
            version=version,
            instructions=instructions,
            offering=self._offering,
            extensions=self.extensions,
            shared=shared,
            suspended=self._suspended,
            traces=sampler_of(self._rules.observers),
        )
        self.answers.handshake.extensions = self.extensions.advertised()
        self.answers.handshake.has_tasks = lambda: self._local.has_tasks
        self.answers.tasks.run_beside(self.work, handles)
        self._news = News(self._served, self._offering, self.answers)
        self._attachments = Attachments(self.registry, self._news.changed.set)

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Refuse rules as attributes of a class of servers, where nothing would apply them."""
        super().__init_subclass__(**keywords)
        refuse_rules_in(cls, "give it to super().__init__(…)")
        refuse_replaced(cls, _ASKED_BY_NOBODY, "give hooks=… or policy=… to super().__init__(…)")
        for name in _RULES & vars(cls).keys() if cls.__init__ is ToolsetServer.__init__ else ():
            raise DefinitionError(f"{cls.__qualname__}.{name} applies to nothing: give {name}=… to super()")

    if not TYPE_CHECKING:  # so that a type checker reports a name that is none

        def __setattr__(self, name: str, value: Any) -> None:
            """Refuse a rule that is set later, which nothing would apply."""
            is_rule = name in _RULES or (not name.startswith("_") and any(rules_among(value)))
            if is_rule if name not in _GIVEN else "_attachments" in vars(self):
                raise DefinitionError(
                    f"server.{name} = … applies to no call: write ToolsetServer(…, {name}=…)"
                )
            if name in _ASKED_BY_NOBODY:
                raise DefinitionError(
                    f"server.{name} = … applies to no call of a client: give hooks=… or middleware=…"
                )
            object.__setattr__(self, name, value)

    @cached_property
    def lowlevel(self) -> LowlevelServer:
        """An SDK `Server` in front of this one, made on first use."""
        from mcp_toolset.server.lowlevel.server import LowlevelServer

        return LowlevelServer(self.answers)

    def derived(
        self,
        *,
        toolset: Toolset | None = None,
        name: str | None = None,
        grants: GrantLedger | None = None,
        client_prefix: str | None = None,
        state: str | PathLike[str] | StateStore | None = None,
        shared: Shared | None = None,
        **others: Unpack[Keywords],
    ) -> ToolsetServer:
        """A server with the same arguments as this one, hooks included, except for those given here."""
        before = self._options
        options = replace(
            before,
            name=name or before.name,
            grants=grants or (before.grants if shared is None else GrantLedger(shared.grants())),
            client_prefix=before.client_prefix if client_prefix is None else client_prefix,
            state=state or before.state or (shared and shared.registry_state(name or before.name)),
            shared=shared or before.shared,
            extensions=tuple(
                one for one in before.extensions if others.get(getattr(one, "key", "")) is not False
            ),
            others={**before.others, **{key: one for key, one in others.items() if one is not None}},
        )
        return ToolsetServer(toolset or self.toolset, **options.arguments())

    def _patience(self) -> float:
        """How long lists wait for what was never listed: as told here, or in the configuration."""
        if self._options.list_patience is not None:
            return self._options.list_patience
        configured = None if self.configured is None else self.configured.config.list_patience
        return unlisted.LIST_PATIENCE if configured is None else configured

    def _catalog(self) -> DeferredCatalog:
        # Search has tables to load, which a server without deferred tools does without.
        from mcp_toolset.catalog.deferred.catalog import DeferredCatalog

        return DeferredCatalog(
            self.grants,
            self.registry.sources,
            access=self._options.access,
            visible=self._visibility,
            scorer=self._options.scorer,
            listener=self.extensions.listener,
            keeper=self._indexes,
            arrive=self._unlisted.arrive,
            deferring=self.registry.deferring,
            listed_to=lambda context: {each["name"] for each in self._served.listed_to(context)},
        )

    def _offers(self) -> dict[str, Offers]:
        """What each mounted source offers beside its tools, if it is of a kind that offers any."""
        return {
            name: source.offers
            for name, source in self.registry.sources().items()
            if fits(source, OfferingSource)
        }


_RULES = frozenset(
    ("rules", "hooks", "middleware", "tool_middleware", "limits", "approvals", "access", *index().KEYS)
)
"""Arguments of a server that decide about calls, and that it has no attributes for."""

_GIVEN = frozenset({"grants", "toolset"})
"""Arguments of a server that it has attributes for, which are read only while it is made."""

_ASKED_BY_NOBODY = frozenset(
    {"bindings", "call_as_host", "call_tool", "definition", "limits_of", "policy", "search", "tools"}
)
"""What a server answers to its program; clients are answered without it."""


def _keeper(state: str | PathLike[str] | StateStore, registry: ToolRegistry) -> StateKeeper:
    # Locks take as long to import as the catalog, and few servers have a state file.
    from mcp_toolset.server.state_keeper import StateKeeper

    return StateKeeper(state, registry)


def _offers(
    toolset: Toolset, resources: ResourceProvider | None, prompts: PromptProvider | None
) -> tuple[list[ResourceProvider], list[PromptProvider]]:
    """The providers of a server, then those of its toolset and of the toolsets nested in it."""
    nested_resources, nested_prompts = offered_by(toolset)
    return (
        nested_resources if resources is None else [resources, *nested_resources],
        nested_prompts if prompts is None else [prompts, *nested_prompts],
    )


def _check_kinds(toolset: object, policy: object, limits: Any) -> None:
    """Refuse arguments that would fail later, where nobody sees the cause.

    Raises:
        DefinitionError: the toolset is a tool, a function or a class; or policy or limits are other data.
    """
    if isinstance(toolset, type) and issubclass(toolset, Toolset):
        raise DefinitionError(f"ToolsetServer({toolset.__name__}) takes an instance: {toolset.__name__}()")
    if not isinstance(toolset, Toolset):
        raise DefinitionError(
            f"ToolsetServer takes a toolset, not {toolset!r}; write Toolset(…) around tools"
        )
    if policy is not None or limits is not None:
        from mcp_toolset.security.policy.limits import LimitTable
        from mcp_toolset.security.policy.policy import Policy

        if policy is not None and not isinstance(policy, Policy):
            raise DefinitionError(f"policy takes Policy(allow=[…], ask=[…], deny=[…]), not {policy!r}")
        if limits is not None:
            LimitTable(limits)
