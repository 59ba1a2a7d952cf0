"""`ToolsetServer`: one toolset behind one MCP server, for every transport and both protocol eras."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from mcp_toolset._index import homes, marked, needed, part
from mcp_toolset._rule import refuse_replaced, refuse_rules_in, rules_among, take
from mcp_toolset.calls.background import BackgroundWork, EventLog
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.middleware import ToolMiddleware
from mcp_toolset.calls.observers import sampler_of
from mcp_toolset.calls.rules import AnyRule, rules_from
from mcp_toolset.calls.suspended import SuspendedStore
from mcp_toolset.catalog.grants.access import AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.catalog.registry.registry import ToolRegistry
from mcp_toolset.context.offer_kinds import MountedSource, Offers
from mcp_toolset.context.shared import Shared
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.joined import Extensions, extensions_of
from mcp_toolset.protocol.eras import STRICTEST
from mcp_toolset.server import mounts
from mcp_toolset.server.handler_context import MANUAL_TIMEOUT, LocalTools, ManualCalls
from mcp_toolset.server.mcp_server import MCPServer, News, ToolAnswers
from mcp_toolset.server.mounts import (
    Attachments,
    CallGuards,
    KeptCatalogs,
    Reloadable,
    UnlistedMounts,
    Visibility,
    folder_for,
    reloadable_in,
    toolsets_in,
)
from mcp_toolset.server.offering import LocalOffers, Offering
from mcp_toolset.server.parts import (
    OWN,
    HostCalls,
    Lifecycle,
    LiveChanges,
    OwnKeywords,
    authenticator,
    observed_by,
    turned_on,
)
from mcp_toolset.server.tool_table import ServedTools
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.call import ALWAYS, Identity, ToolCall, ToolContext, granted
from mcp_toolset.tools.definition import FIXED_TOOLS
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import CompletionProvider, PromptProvider, ResourceProvider, SourceStatus, fits
from mcp_toolset.tools.toolset import Toolset, offered_by

if TYPE_CHECKING:
    from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
    from mcp_toolset.catalog.registry.state_store import StoredState
    from mcp_toolset.config import HubConfig
    from mcp_toolset.config.extensions import ServerSettings, Settings
    from mcp_toolset.extensions.keywords import Keywords
    from mcp_toolset.sdk import Server
    from mcp_toolset.security.authenticator import Auth
    from mcp_toolset.security.policy import Policy
    from mcp_toolset.server.parts import ServerKeywords
    from mcp_toolset.server.state_keeper import StateKeeper
    from mcp_toolset.stores.store import StorePlace


_S = TypeVar("_S")


class ServerHost:
    """The server as its extensions see it, before its parts are made and after."""

    def __init__(
        self,
        name: str,
        version: str,
        configured: Reloadable | None,
        services: Mapping[type, object],
        grants: GrantLedger,
        *,
        toolsets: Callable[[], Iterable[Toolset]],
        extensions: Callable[[], Extensions],
        served: Callable[[], ServedTools],
        visibility: Callable[[], Visibility],
        lowlevel: Callable[[], Any],
    ) -> None:
        self.name = name
        self.version = version
        self.grants = grants
        self._configured = configured
        self._services = services
        self._toolsets = toolsets
        self._extensions = extensions
        self._served = served
        self._visibility = visibility
        self._lowlevel = lowlevel

    @property
    def configuration(self) -> Path | None:
        return None if (config := self._config) is None else config.path

    @property
    def served_as(self) -> str:
        return self.name if (config := self._config) is None else str(config.path)

    @property
    def identified(self) -> str:
        return self.name if (config := self._config) is None else f"{self.name} {config.path}"

    @property
    def table(self) -> Mapping[str, ToolBinding]:
        return self._served().table

    def stated(self, key: str) -> Settings | None:
        return None if (config := self._config) is None else config.extensions.get(key)

    def stated_by_server(self, key: str) -> Mapping[str, ServerSettings]:
        return {} if (config := self._config) is None else _by_server(config, key)

    def stated_by_file(self, key: str) -> Sequence[tuple[Settings | None, Mapping[str, ServerSettings]]]:
        every = (each for one in self._toolsets() for each in toolsets_in(one))
        files = [each.config for each in every if isinstance(each, Reloadable)]
        return [(file.extensions.get(key), _by_server(file, key)) for file in files]

    def preview(self, identity: Identity | None) -> str | None:
        return self._served().preview(identity)

    def hides(self, binding: ToolBinding, identity: Identity | None) -> bool:
        return self._visibility().hides(binding, identity)

    def statuses(self) -> Mapping[str, SourceStatus]:
        return self._served().statuses()

    def seen_by(self, identity: Identity | None) -> Callable[[str, str], bool]:
        visible, seen = self._visibility(), set[tuple[str, str]]()
        for name, binding in self.table.items():
            if not visible.hides(binding, identity):
                seen |= {(binding.source, name), (binding.source, binding.definition.name)}

        def sees(server: str, tool: str) -> bool:
            if visible.policy is None:
                return True
            return not visible.hides_server(server, identity) and (not tool or (server, tool) in seen)

        return sees

    @property
    def catalog_names(self) -> Collection[str]:
        return (*FIXED_TOOLS, *(one.name for one in self._extensions().catalog_tools))

    @property
    def reshapes(self) -> bool:
        return self._extensions().reshapes

    @property
    def lowlevel(self) -> Any:
        return self._lowlevel()

    async def in_scope(self, references: Sequence[str] | None, context: ToolContext) -> Mapping[str, str]:
        return await self._served().catalog.in_scope(references, context)

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        sent = self._extensions().sent
        return await self._served().call(call if sent is None else sent(call, context), context)

    def need(self, kind: type[_S]) -> _S | None:
        return cast("Any", self._services.get(kind))

    @property
    def _config(self) -> HubConfig | None:
        return None if self._configured is None else self._configured.config


def _by_server(file: HubConfig, key: str) -> Mapping[str, ServerSettings]:
    enabled = (one for one in file.servers if not one.disabled)
    return {one.name: one.extensions[key] for one in enabled if key in one.extensions}


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
            rules: `Rules`, or a rule of any other form (see `Rules.of`), instead of the three above. A name
                in a rule or a verb that matches no tool is reported at the opening: see docs/names.md.
            resources: Resources that clients can read, such as `Resources`, before those of the toolset.
            prompts: Prompts that users can pick, such as `Prompts`.
            completions: Proposes values for arguments of prompts and resource templates.
            capabilities: What every local tool is granted: `ask`, `sample`, `session`, `catalog`,
                `membership`, `background`, `processes`, `events`; `progress` and `log` are always.
            policy: Which tools exist for which caller, and which need an approval; with a policy in the
                configuration that is served, the strictest of both counts. See docs/policies.md.
            auth: Who may call over HTTP: a verifier of tokens, several, or an `Authenticator`; the
                configuration's unless given, otherwise any client. See docs/authentication.md.
            extensions: Opt-in parts, the outermost first: of this package, of others, and of the MCP SDK. See
                docs/extensions.md.
            others: What `OwnKeywords` names, and extensions by their keys, such as `journal=True`; the
                toolset's and the configuration's unless given.

        Raises:
            DefinitionError: there is no such capability, the time is not positive, the prefix is too
                long, `access` is asynchronous, or an extension cannot be used as it is.
            NameConflictError: two mounts or two local tools have one name, or one has a name of the
                deferred catalog's.
        """
        own = cast("OwnKeywords", {key: one for key, one in others.items() if key in OWN})
        keywords = {key: one for key, one in others.items() if key not in OWN}
        get = own.get
        shared, access = get("shared"), get("access")
        _check_kinds(toolset, policy)
        take(policy, auth, *keywords.values(), *extensions)
        self.configured = reloadable_in(toolset)
        events = get("events")
        self.events = EventLog() if events is None else events
        self.grants = get("grants") or (GrantLedger() if shared is None else GrantLedger(shared.grants()))
        state = get("state") or (None if shared is None else shared.registry_state(name))
        self._said = instructions
        self._shared = shared
        self._own = own
        self._given: dict[str, Any] = {
            **others,
            "name": name,
            "version": version,
            "instructions": instructions,
            "rules": rules_from(rules, hooks, middleware, tool_middleware).taken(),
            "policy": policy,
            "auth": auth,
            "resources": resources,
            "prompts": prompts,
            "completions": completions,
            "capabilities": granted(capabilities, f"server {name!r}"),
            "extensions": extensions,
            "events": self.events,
            "grants": self.grants,
            "state": state,
        }
        file: Mapping[str, Settings | None] = (
            {} if self.configured is None else self.configured.config.extensions
        )
        self.work = BackgroundWork()
        services: dict[type, object] = {Shared: shared, BackgroundWork: self.work}
        host = ServerHost(
            name,
            version,
            self.configured,
            services,
            self.grants,
            toolsets=lambda: self.registry.toolsets(),
            extensions=lambda: self.extensions,
            served=lambda: self._served,
            visibility=lambda: self._visibility,
            lowlevel=lambda: self.lowlevel,
        )
        self.extensions = extensions_of(extensions, turned_on(toolset, keywords), file, host)
        keeps = not any(keywords.get(key) is False for key in marked("keeps_calls"))
        waiting = {SuspendedStore: shared if keeps else None}
        services.update({**waiting, **self.extensions.services(), **services})
        self.need = host.need
        self._rules = observed_by(self.extensions.observers(), self._given["rules"])
        AccessPolicy(access)
        scorer = get("scorer", "built-in")
        if scorer != "built-in":
            from mcp_toolset.catalog.search.ranking import require_scorer

            require_scorer(scorer)
        self.toolset = toolset
        self.name = name
        self.sessions = get("sessions")
        added = self.extensions.tools()
        toolsets = [toolset, Toolset(*added)] if added else [toolset]
        prefix, hint = get("client_prefix", ""), get("list_hint", STRICTEST)
        self.registry = ToolRegistry(*toolsets, client_prefix=prefix, reserved=host.catalog_names)
        if access is not None and not self.registry.defers and not toolset.sources():
            raise DefinitionError("access decides about deferred tools, and none is: use toolset.deferred()")
        self._introductions = {}
        guards = CallGuards(lambda: host.identified, self.extensions)
        self._visibility = Visibility(policy, self.registry.toolsets, self._rules, guards)
        self.members = self.registry.membership
        self._auth = authenticator(auth)
        self._stack = None
        self._is_told = False
        self._reloads = None
        self._manual = ManualCalls(get("manual_timeout", MANUAL_TIMEOUT))
        self._local = LocalTools(self, self._manual, self._given["capabilities"] | ALWAYS)
        self._keeper = None if state is None else _keeper(state, name, self.registry)
        kept_in = partial(folder_for, get("keep"), state)
        self._kept = KeptCatalogs(kept_in, shared)
        keeping = part("indexes")
        self._indexes = keeping and keeping(kept_in, shared)
        self._unlisted = UnlistedMounts(self._patience(), self._current)
        self._offering = Offering(
            LocalOffers(
                *_offers(toolset, resources, prompts),
                completions,
                lambda: self._served.has_own,
                hint,
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
            own_hint=hint,
            promises=not self.extensions.reshapes,
            beside=self.extensions.catalog_tools,
        )
        self.answers = MCPServer(
            self,
            self._served,
            name=name,
            version=version,
            instructions=instructions,
            offering=self._offering,
            extensions=self.extensions,
            shared=shared,
            suspended=self.need(SuspendedStore),
            traces=sampler_of(self._rules.observers),
        )
        self.answers.handshake.extensions = self.extensions.advertised()
        self.answers.handshake.has_tasks = lambda: self._local.has_tasks
        services[ToolAnswers] = self.answers.tools
        self.answers.compose()
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
    def lowlevel(self) -> Server[Any]:
        """An SDK `Server` in front of this one, made on first use."""
        return needed("lowlevel", "`lowlevel` is")(self.answers)

    def derived(
        self,
        *,
        toolset: Toolset | None = None,
        name: str | None = None,
        grants: GrantLedger | None = None,
        client_prefix: str | None = None,
        state: StorePlace | None = None,
        shared: Shared | None = None,
        **others: Unpack[Keywords],
    ) -> ToolsetServer:
        """A server with the same arguments as this one, hooks included, except for those given here."""
        before = self._given
        given: dict[str, Any] = {
            **before,
            "grants": grants or (self.grants if shared is None else None),
            "state": state or before["state"],
            "extensions": tuple(
                one for one in before["extensions"] if others.get(getattr(one, "key", "")) is not False
            ),
        }
        changed: dict[str, Any] = {"name": name, "client_prefix": client_prefix, "shared": shared, **others}
        given.update((key, one) for key, one in changed.items() if one is not None)
        return ToolsetServer(toolset or self.toolset, **given)

    def _patience(self) -> float:
        """How long lists wait for what was never listed: as told here, or in the configuration."""
        if (told := self._own.get("list_patience")) is not None:
            return told
        configured = None if self.configured is None else self.configured.config.list_patience
        return mounts.LIST_PATIENCE if configured is None else configured

    def _catalog(self) -> DeferredCatalog:
        # Search has tables to load, which a server without deferred tools does without.
        from mcp_toolset.catalog.deferred.catalog import DeferredCatalog

        return DeferredCatalog(
            self.grants,
            self.registry.sources,
            access=self._own.get("access"),
            visible=self._visibility,
            scorer=self._own.get("scorer", "built-in"),
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
            if fits(source, MountedSource)
        }


_RULES = frozenset(("rules", "hooks", "middleware", "tool_middleware", "access", *homes("key"))) - {"auth"}
"""Arguments of a server that decide about calls, and that it has no attributes for."""

_GIVEN = frozenset({"grants", "toolset"})
"""Arguments of a server that it has attributes for, which are read only while it is made."""

_ASKED_BY_NOBODY = frozenset(
    {"bindings", "call_as_host", "call_tool", "definition", "limits_of", "policy", "search", "tools"}
)
"""What a server answers to its program; clients are answered without it."""


def _keeper(state: StorePlace | StoredState, name: str, registry: ToolRegistry) -> StateKeeper:
    # Locks take as long to import as the catalog, and few servers have a state file.
    from mcp_toolset.catalog.registry.state_store import StoredState
    from mcp_toolset.server.state_keeper import StateKeeper

    return StateKeeper(state if isinstance(state, StoredState) else StoredState(state, name), registry)


def _offers(
    toolset: Toolset, resources: ResourceProvider | None, prompts: PromptProvider | None
) -> tuple[list[ResourceProvider], list[PromptProvider]]:
    nested_resources, nested_prompts = offered_by(toolset)
    return (
        nested_resources if resources is None else [resources, *nested_resources],
        nested_prompts if prompts is None else [prompts, *nested_prompts],
    )


def _check_kinds(toolset: object, policy: object) -> None:
    """Refuse arguments that would fail later, where nobody sees the cause."""
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
