"""`ServerParts`: the parts of a server, and the compilation of its tools after a change.

What mounted servers say about themselves, instructions and `serverInfo`, is passed on to clients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from mcp_toolset._records import replace
from mcp_toolset.calls.pipeline.rules import Rules
from mcp_toolset.calls.suspended.store import Patient
from mcp_toolset.catalog.deferred.index_keeper import IndexKeeper
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.catalog.instructions import BUDGET, instructions_of
from mcp_toolset.catalog.registry.registry import ToolRegistry
from mcp_toolset.server.changes import News
from mcp_toolset.server.interface.keywords import OwnKeywords
from mcp_toolset.server.kept_catalogs import KeptCatalogs
from mcp_toolset.server.list_variants import MAX_LISTS
from mcp_toolset.server.mcp_server import MCPServer
from mcp_toolset.server.reloadable import Reloadable, Reloading, toolsets_in
from mcp_toolset.server.tool_table import ServedTools
from mcp_toolset.server.unlisted_mounts import UnlistedMounts
from mcp_toolset.server.visibility import Visibility
from mcp_toolset.tools.core.identity import Identity
from mcp_toolset.tools.core.source import ToolSource, fits
from mcp_toolset.tools.toolsets.toolset import Toolset

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from mcp_toolset.calls.pipeline.observers import CallObserver
    from mcp_toolset.calls.suspended.store import SuspendedStore
    from mcp_toolset.context.shared import Shared
    from mcp_toolset.extending.joined import Extensions
    from mcp_toolset.security.authentication.authenticator import Auth, Authenticator
    from mcp_toolset.server.answers.task_handles import TaskHandles

    Suspending = SuspendedStore | str | PathLike[str] | bool


def turned_on(toolset: Toolset, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    """The extensions by keyword, with those that a toolset turns on unless a keyword says otherwise."""
    said = {key: True for key in toolset.extension_keys if keywords.get(key) is None}
    return {**keywords, **said} if said else keywords


def authenticator(auth: Auth | None) -> Authenticator | None:
    """What an `auth=` argument stands for; `None` if there is none."""
    if auth is None:
        return None
    # Few servers have callers to authenticate.
    from mcp_toolset.security.authentication.authenticator import Authenticator

    return auth if isinstance(auth, Authenticator) else Authenticator(auth)


def task_handles(said: float | None, configured: Reloadable | None) -> TaskHandles | None:
    """What a `handle_after=` argument or else the configuration stands for; `None` without either."""
    after = configured.config.handle_after if said is None and configured is not None else said
    if after is None:
        return None
    # Few servers answer with handles.
    from mcp_toolset.server.answers.task_handles import TaskHandles

    return TaskHandles(after)


def suspended_store(
    said: Suspending | None, configured: Reloadable | None, shared: Shared | None
) -> SuspendedStore | None:
    """What a `suspended=` argument, the replicas or else the configuration stand for; `None` without any."""
    table = None if configured is None else configured.config.suspended
    if said is None and shared is not None:
        return shared if table is None else Patient(shared, table["patience"])
    if said is False or (said is None and table is None):
        return None
    if not isinstance(said, bool | str | PathLike | None):
        return said
    # Few servers keep what waits.
    from mcp_toolset.calls.suspended.suspended_file import SuspendedFile

    if isinstance(said, str | PathLike):
        return SuspendedFile(said)
    stated = table or {}
    return SuspendedFile(stated["path"], patience=stated["patience"]) if stated else SuspendedFile()


def observed_by(others: Iterable[CallObserver], rules: Rules) -> Rules:
    """The rules with those of the extensions among their observers, each once."""
    known = {id(one) for one in rules.observers}
    added = [one for one in others if id(one) not in known]
    return replace(rules, observers=(*rules.observers, *added)) if added else rules


SERVERS_META_KEY: Final = "mcp-toolset/servers"
"""Where the answers to `initialize` and `server/discover` have the servers behind this one, in `_meta`."""


@runtime_checkable
class Introduced(Protocol):
    """A source that says something about itself."""

    @property
    def instructions(self) -> str:
        """What it tells models; empty for nothing."""
        ...

    def server_info(self) -> dict[str, Any]:
        """Its `serverInfo` in wire form; empty while it is unknown."""
        ...


def servers_meta(sources: Mapping[str, ToolSource], withheld: Collection[str]) -> dict[str, Any]:
    """The `_meta` of a handshake: each mounted server with its state and its `serverInfo`."""
    servers = [
        {"name": name, "state": source.status.state, **({"serverInfo": info} if info else {})}
        for name, source in sources.items()
        if name not in withheld and fits(source, Introduced)
        for info in (source.server_info(),)
    ]
    return {SERVERS_META_KEY: servers} if servers else {}


def joint_instructions(sources: Mapping[str, ToolSource], withheld: Collection[str], budget: int) -> str:
    """The instructions of the mounted servers, each under its name."""
    return instructions_of(
        (
            (name, source.instructions)
            for name, source in sources.items()
            if name not in withheld and fits(source, Introduced)
        ),
        budget,
    )


def _instructed(toolsets: Iterable[Toolset]) -> Iterator[Toolset]:
    """The application's toolsets with instructions, each once; mounted servers speak for themselves."""
    every = (each for toolset in toolsets for each in toolsets_in(toolset))
    found = {id(each): each for each in every if not fits(each, Introduced) and each.instructions}
    yield from found.values()


class ServerParts:
    """The parts of a server that its program and its clients reach.

    Attributes:
        name: The server's name.
        toolset: What it serves.
        answers: What answers the requests of clients.
        configured: The configuration among what it serves, or `None`.
        registry: Which tools there are, and which of them can be called.
        grants: Issues and judges the grants of deferred tools.
    """

    name: str
    toolset: Toolset
    answers: MCPServer
    configured: Reloadable | None
    registry: ToolRegistry
    extensions: Extensions
    grants: GrantLedger
    _stack: AsyncExitStack | None
    _is_told: bool
    _said: str | None
    _own: OwnKeywords
    _shared: Shared | None
    _kept: KeptCatalogs
    _indexes: IndexKeeper
    _news: News
    _served: ServedTools
    _unlisted: UnlistedMounts
    _visibility: Visibility
    _introductions: dict[object, str | None]
    _reloads: Reloading | None
    _rules: Rules
    _suspended: SuspendedStore | None

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
        text = self.answers.handshake.instructions = self._introduction(None)
        self._introductions = {self._visibility.group(None): text}

    def instructions_to(self, identity: Identity | None) -> str | None:
        """The instructions for a caller, of this server and of its mounted servers."""
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
            said = joint_instructions(sources, withheld, self._own.get("instructions_budget", BUDGET))
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
