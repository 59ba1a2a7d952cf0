"""`ToolsetServer`: one toolset behind one MCP server, for every transport and both protocol eras."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from mcp_toolset._records import replace
from mcp_toolset.calls.background import BackgroundWork
from mcp_toolset.calls.events import EventLog
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.middleware import ToolMiddleware
from mcp_toolset.calls.pipeline.rules import Rules, rules_from
from mcp_toolset.catalog.deferred.index_keeper import IndexKeeper
from mcp_toolset.catalog.deferred.tool_names import CODE_TOOLS, FIXED_TOOLS
from mcp_toolset.catalog.grants.access import Access, AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.catalog.instructions import BUDGET
from mcp_toolset.catalog.registry.registry import ToolRegistry
from mcp_toolset.context.offer_kinds import OfferingSource, Offers
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
    audit_trail,
    authenticator,
    long_results,
    observed_by,
    usage_of,
)
from mcp_toolset.server.kept_catalogs import Keeping, KeptCatalogs, folder_for
from mcp_toolset.server.manual_calls import MANUAL_TIMEOUT, ManualCalls
from mcp_toolset.server.mcp_server import MCPServer
from mcp_toolset.server.offers.local_offers import LocalOffers
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.server.reloadable import reloadable_in
from mcp_toolset.server.tool_table import ServedTools
from mcp_toolset.server.unlisted_mounts import UnlistedMounts
from mcp_toolset.server.visibility import Visibility
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.capability import ALWAYS, Sessions, granted
from mcp_toolset.tools.core.source import fits
from mcp_toolset.tools.declare.prompts import CompletionProvider, PromptProvider, ResourceProvider
from mcp_toolset.tools.toolsets.toolset import Toolset

if TYPE_CHECKING:
    from mcp_toolset.calls.code.code_mode import CodeMode
    from mcp_toolset.calls.results.large_results import LargeResults
    from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
    from mcp_toolset.catalog.registry.state_store import StateStore
    from mcp_toolset.catalog.search.index import Scorer
    from mcp_toolset.catalog.search.learning import SearchLearning
    from mcp_toolset.security.authentication.authenticator import Auth
    from mcp_toolset.security.policy.approvals import Approvals
    from mcp_toolset.security.policy.policy import Policy
    from mcp_toolset.server.audit_trail import Audit
    from mcp_toolset.server.call_guards import LimitsByPattern
    from mcp_toolset.server.code.code_tools import CodeTools
    from mcp_toolset.server.lowlevel.server import LowlevelServer
    from mcp_toolset.server.state_keeper import StateKeeper


class ToolsetServer(HostCalls, LiveChanges, Lifecycle):
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
        policy: Policy | None = None,
        limits: LimitsByPattern | None = None,
        approvals: Approvals | str | PathLike[str] | Literal[False] | None = None,
        client_prefix: str = "",
        state: str | PathLike[str] | StateStore | None = None,
        scorer: Scorer | Literal["built-in"] | None = "built-in",
        learn: SearchLearning | None = None,
        list_hint: CacheHint = STRICTEST,
        list_patience: float | None = None,
        keep: Keeping = None,
        instructions_budget: int = BUDGET,
        auth: Auth | None = None,
        audit: Audit | Literal[False] | None = None,
        large_results: LargeResults | int | bool | None = None,
        code: CodeMode | bool | None = None,
        stats: bool | str | PathLike[str] = False,
        sessions: Sessions | None = None,
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
            policy: Which tools exist for which caller, and which need an approval; with a policy in the
                configuration that is served, the strictest of both counts. See docs/policies.md.
            limits: How much each caller may use, by pattern of tools; those of the configuration hold
                besides. See docs/limits.md.
            approvals: Where calls wait for an approval whose client shows no questions: the file that
                `mcp-toolset approvals` shows, unless given; `False` for nowhere. See docs/approvals.md.
            client_prefix: What clients put before every name, such as `mcp__tools__`; with it, names
                stay within 64 characters.
            state: A file or a `StateStore` that keeps names and membership from one run to the next.
            scorer: Joined with the words in the search of deferred tools, as for `SearchIndex`; give an
                `EmbeddingScorer` of this server's own to search with a sentence model.
            learn: What the search of deferred tools learns from use; the configuration's unless given, else
                nothing. See docs/search.md.
            list_hint: How long, and for whom, clients of 2026-07-28 may keep the lists of what is this
                server's own; what is mounted has hints of its own, and the strictest of all counts.
            list_patience: Seconds from the opening on in which lists and searches wait for mounted servers
                of which nothing is known; 5 unless given here or in the configuration that is served.
            keep: The folder that keeps what mounted servers list, and the index of the search, from one run
                to the next; `False` keeps nothing. Unless given: `MCP_TOOLSET_CACHE`, else beside `state`,
                else the user's cache.
            instructions_budget: Tokens that the instructions of mounted servers take at most; 0 leaves
                them out.
            auth: Who may call over HTTP: a verifier of tokens, several, or an `Authenticator`; the
                configuration's unless given, else everybody. See docs/authentication.md.
            audit: The audit log, or the path of its file: a chained line for each call, decision, grant and
                login; the configuration's unless given, `False` for none. See docs/audit.md.
            large_results: How many characters a result may have, or `True` for 20,000: a longer one is kept
                here, and the model gets its beginning and ways to read and search the rest; the
                configuration's unless given, else results are passed on. See docs/large-results.md.
            code: Whether models may run code that calls granted tools, and its limits; by default as the
                toolset or the configuration says. See docs/code-mode.md.
            stats: Whether calls and tokens are summed for `mcp-toolset stats`, in the user's file or in this
                one; never if the configuration says so. See docs/statistics.md.
            sessions: Tells a tool with the capability `sessions` of another session, by the id and the
                context of the call; `None` for one that the tool may not know of.

        Raises:
            DefinitionError: there is no such capability, the time is not positive, the prefix is too
                long, `access` is asynchronous, or the extra `code` is needed and not installed.
            NameConflictError: two mounts or two local tools have one name, or one has a name of the
                deferred catalog's.
        """
        self.configured = reloadable_in(toolset)
        if self.configured is not None:
            audit = self.configured.audit() if audit is None else audit
            learn = self.configured.learning() if learn is None else learn
        self._trail = audit_trail(audit)
        self.audit = None if self._trail is None else self._trail.log
        options = self._options = ServerOptions(
            name=name,
            version=version,
            instructions=instructions,
            rules=rules_from(rules, hooks, middleware, tool_middleware),
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
            learn=learn,
            list_hint=list_hint,
            list_patience=list_patience,
            keep=keep,
            instructions_budget=instructions_budget,
            auth=auth,
            audit=audit if self.audit is None else self.audit,
            large_results=large_results,
            code=code,
            stats=stats,
            sessions=sessions,
        )
        self._usage = usage_of(stats, self.configured, lambda: self._visibility)
        self._rules = observed_by(self.audit, self._usage, options.rules)
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
        large = long_results(large_results, self.configured)
        toolsets = [toolset] if large is None else [toolset, Toolset(large.tool)]
        self._code = self._code_tools(toolset, large)
        reserved = FIXED_TOOLS if self._code is None else (*FIXED_TOOLS, *CODE_TOOLS)
        self.registry = ToolRegistry(*toolsets, client_prefix=client_prefix, reserved=reserved)
        self._introductions = {}
        guards = CallGuards(
            limits,
            self.registry.toolsets,
            served=self._identified,
            approvals=approvals,
            record=None if self.audit is None else self.audit.record,
        )
        self._visibility = Visibility(policy, self.registry.toolsets, self._rules, guards)
        self.members = self.registry.membership
        self._auth = authenticator(auth)
        self._stack = None
        self._reloads = None
        self._manual = ManualCalls(manual_timeout)
        self._local = LocalTools(self, self._manual, options.capabilities | ALWAYS)
        self._keeper = None if state is None else _keeper(state, self.registry)
        self._kept = KeptCatalogs(partial(folder_for, keep, state))
        self._indexes = IndexKeeper(partial(folder_for, keep, state))
        self._unlisted = UnlistedMounts(self._patience(), self._current)
        self._offering = Offering(
            LocalOffers(resources, prompts, completions, lambda: self._served.has_own, list_hint, large),
            self._offers,
            self._unlisted,
            self._visibility,
        )
        self._served = ServedTools(
            self.registry,
            self._catalog,
            lambda binding: self._offering.bound(self._local.bound(binding)),
            self._offering,
            self._visibility,
            rules=self._rules,
            own_hint=list_hint,
            promises=large is None,
            code=() if self._code is None else self._code.bindings(),
        )
        self.answers = MCPServer(
            self, name=name, version=version, instructions=instructions, offering=self._offering, large=large
        )
        if self._usage is not None:
            self.answers.counted(self._usage, self._served)
        self._news = News(self._served, self._offering, self.answers)
        self._attachments = Attachments(self.registry, self._news.changed.set)

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
        audit: Audit | Literal[False] | None = None,
        code: CodeMode | bool | None = None,
    ) -> ToolsetServer:
        """A server like this one, hooks and all, with some other arguments."""
        before = self._options
        options = replace(
            before,
            name=name or before.name,
            grants=grants or before.grants,
            client_prefix=before.client_prefix if client_prefix is None else client_prefix,
            state=state or before.state,
            audit=before.audit if audit is None else audit,
            code=before.code if code is None else code,
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
            learn=self._options.learn,
            keeper=self._indexes,
            arrive=self._unlisted.arrive,
            deferring=self.registry.deferring,
            listed_to=lambda context: {each["name"] for each in self._served.listed_to(context)},
        )

    def _code_tools(self, toolset: Toolset, large: LargeResults | None) -> CodeTools | None:
        """What runs code; `None` if models may not. Its values may be kept results, and its arguments too."""
        code = self._options.code
        stated = None if self.configured is None else self.configured.code
        if code is None:
            code = stated or toolset.runs_code
        if not code:
            return None
        if code is True and stated is not None:
            code = stated
        # Few servers run code.
        from mcp_toolset.calls.code.code_mode import CodeMode
        from mcp_toolset.server.code.code_tools import MAX_VALUE, code_tools

        mode = CodeMode() if code is True else code
        if large is None:
            return code_tools(mode, self._in_scope, lambda call, context: self._served.call(call, context))
        mode, filled = replace(mode, value=max(mode.value, MAX_VALUE)), large.with_references
        return code_tools(
            mode, self._in_scope, lambda call, context: self._served.call(filled(call, context), context)
        )

    async def _in_scope(self, references: Sequence[str] | None, context: ToolContext) -> Mapping[str, str]:
        """The tools that code of a caller may call."""
        return await self._served.catalog.in_scope(references, context)

    def _identified(self) -> str:
        """What tells this server from others that share a file of approvals."""
        return self.name if self.configured is None else f"{self.name} {self.configured.config.path}"

    def _offers(self) -> dict[str, Offers]:
        """What each mounted source offers beside its tools, if it is of a kind that offers any."""
        return {
            name: source.offers
            for name, source in self.registry.sources().items()
            if fits(source, OfferingSource)
        }


def _keeper(state: str | PathLike[str] | StateStore, registry: ToolRegistry) -> StateKeeper:
    # Locks take as long to import as the catalog, and few servers have a state file.
    from mcp_toolset.server.state_keeper import StateKeeper

    return StateKeeper(state, registry)
