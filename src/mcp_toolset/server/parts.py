"""`ServerKeywords`: what a `ToolsetServer` takes by keyword; `ServerHost`: what extensions see of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar, cast

from mcp_toolset._records import replace
from mcp_toolset.calls.background import EventLog
from mcp_toolset.calls.middleware import ToolMiddleware
from mcp_toolset.calls.observers import CallObserver
from mcp_toolset.calls.rules import Rules
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.offer_kinds import Offers
from mcp_toolset.extending.joined import Extensions
from mcp_toolset.server.mounts import Reloadable, Visibility, toolsets_in
from mcp_toolset.server.offering import Addresses, Offering
from mcp_toolset.server.tool_table import ServedTools
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.definition import FIXED_TOOLS
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import CompletionProvider, PromptProvider, ResourceProvider, SourceStatus
from mcp_toolset.tools.toolset import Toolset

if TYPE_CHECKING:
    from mcp_toolset.catalog.grants.access import Access
    from mcp_toolset.catalog.search.ranking import Scorer
    from mcp_toolset.config.extensions import ServerSettings, Settings
    from mcp_toolset.config.models import HubConfig
    from mcp_toolset.extending.host import ViewOptions
    from mcp_toolset.extensions.keywords import Keywords
    from mcp_toolset.protocol.eras import CacheHint
    from mcp_toolset.security.authenticator import Auth, Authenticator
    from mcp_toolset.security.patterns import ToolFacts
    from mcp_toolset.security.policy import Policy
    from mcp_toolset.server.mounts import Keeping
    from mcp_toolset.server.view import ServerView
    from mcp_toolset.shared.state import SharedState
    from mcp_toolset.stores.store import StorePlace
    from mcp_toolset.tools.call import Sessions
    from mcp_toolset.transports.http.monitor import Ready


class OwnKeywords(TypedDict, total=False):
    """Keywords that few servers need.

    Attributes:
        events: The log of events that tools note; a log in memory unless given.
        manual_timeout: Seconds that a manual call waits for the application, unless the tool says
            otherwise.
        grants: Issues and checks the grants of deferred tools, or where they are kept: the path of a file, a
            URL, or a `Store`; by default in memory, with the default lifetimes.
        access: A function that says who may use which deferred tool, at each search, resolve and call.
        client_prefix: The text that clients put before every name, such as `mcp__tools__`; with it, names
            stay within 64 characters.
        state: The store of names and membership between runs: the path of a file, the URL
            of a store, or a `Store`.
        scorer: The second ranking beside the words in the search of deferred tools, as for `SearchIndex`;
            for a sentence model give an `EmbeddingScorer` that no other server uses.
        list_hint: The cache hint of this server's own entries of lists, for clients of 2026-07-28. Mounted
            servers send their own hints, and the strictest hint of a list counts.
        list_timeout: Seconds from the opening on in which lists and searches wait for mounted servers
            of which nothing is known; 5 unless given here or in the configuration that is served.
        keep: The folder that keeps what mounted servers list, and the index of the search, from one run
            to the next; `False` keeps nothing. Unless given: `MCP_TOOLSET_CACHE`, else beside `state`,
            else the user's cache.
        max_instruction_tokens: Tokens that the instructions of mounted servers take at most; 0 leaves
            them out.
        sessions: Returns another session for a tool with the capability `sessions`, from its id and the
            context of the call; `None` if the tool may not read that session.
        shared: The state that all replicas share, such as `SharedState("redis://…")`: grants, names
            and members, limits, sessions and questions, unless these are given. See docs/replicas.md.
        ready: The conditions of `/ready`; the configuration's unless given, otherwise a server
            that listens is ready. See docs/starting.md.
    """

    events: EventLog | None
    manual_timeout: float
    grants: GrantLedger | StorePlace | None
    access: Access | None
    client_prefix: str
    state: StorePlace | None
    scorer: Scorer | Literal["built-in"] | None
    list_hint: CacheHint
    list_timeout: float | None
    keep: Keeping
    max_instruction_tokens: int
    sessions: Sessions | None
    shared: SharedState | None
    ready: Ready | None


OWN: Final = frozenset(OwnKeywords.__annotations__)
"""Their names; the other keywords are keys of extensions."""

if TYPE_CHECKING:

    class ServerKeywords(OwnKeywords, Keywords, total=False):
        """Keywords that few servers need, and the extensions of this package by their keys."""

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


_S = TypeVar("_S")
Relay = Callable[
    [RequestContext, Callable[[Mapping[str, Any], ToolContext], Awaitable[Mapping[str, Any]]]],
    Awaitable[dict[str, Any]],
]


class ServerHost:
    """The server as its extensions see it, before its parts are made and after."""

    def __init__(
        self,
        name: str,
        version: str,
        configured: Reloadable | None,
        services: Mapping[type, Callable[[], object]],
        shared: SharedState | None,
        *,
        grants: Callable[[], GrantLedger],
        toolsets: Callable[[], Iterable[Toolset]],
        extensions: Callable[[], Extensions],
        served: Callable[[], ServedTools],
        visibility: Callable[[], Visibility],
        offering: Callable[[], Offering],
        relay: Callable[[], Relay],
        lowlevel: Callable[[], Any],
        viewed: Callable[[ViewOptions], ServerView],
    ) -> None:
        self._viewed = viewed
        self.name = name
        self.version = version
        self._grants = grants
        self.shared = shared
        self._configured = configured
        self._services = services
        self._toolsets = toolsets
        self._extensions = extensions
        self._served = served
        self._visibility = visibility
        self._offering = offering
        self._relay = relay
        self._lowlevel = lowlevel

    @property
    def grants(self) -> GrantLedger:
        return self._grants()

    def includes(self, thing: ToolFacts) -> bool:
        return True

    def judge_again(self) -> None:
        self._served().check_again()

    def viewed(self, options: ViewOptions) -> ServerView:
        return self._viewed(options)

    @property
    def view(self) -> str:
        return ""

    def outer(self, key: str) -> Any:
        return None

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

    @property
    def policy(self) -> Policy | None:
        return self._visibility().policy

    @property
    def identifiers(self) -> Collection[str]:
        return [one.identifier for one in self._extensions() if one.identifier]

    def hides(self, binding: ToolBinding, identity: Identity | None) -> bool:
        return self._visibility().hides(binding, identity)

    def statuses(self) -> Mapping[str, SourceStatus]:
        return self._served().statuses()

    def servers(self, identity: Identity | None) -> Mapping[str, Offers]:
        return {name: one for name, one in self._offering().seen(identity).items() if name}

    async def arrived(self) -> None:
        await self._offering().arrive()

    async def addresses(self) -> Addresses:
        await self._offering().settle()
        return self._offering().addresses

    async def relayed(
        self,
        request: RequestContext,
        ask: Callable[[Mapping[str, Any], ToolContext], Awaitable[Mapping[str, Any]]],
    ) -> dict[str, Any]:
        return await self._relay()(request, ask)

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
        make = self._services.get(kind)
        return None if make is None else cast("Any", make())

    @property
    def _config(self) -> HubConfig | None:
        return None if self._configured is None else self._configured.config


def _by_server(file: HubConfig, key: str) -> Mapping[str, ServerSettings]:
    enabled = (one for one in file.servers if not one.disabled)
    return {one.name: one.extensions[key] for one in enabled if key in one.extensions}
