"""`Host`: the server of an extension, as far as extensions may know it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import anyio

from mcp_toolset._records import dataclass

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from mcp_toolset.catalog.grants.ledger import GrantLedger
    from mcp_toolset.config.extensions import ServerSettings, Settings
    from mcp_toolset.context.connection import Answers, RequestContext
    from mcp_toolset.context.offer_kinds import Offers
    from mcp_toolset.security.patterns import Permissions, ToolFacts
    from mcp_toolset.security.policy import Policy
    from mcp_toolset.shared.state import SharedState
    from mcp_toolset.tools.binding import ToolBinding
    from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
    from mcp_toolset.tools.result import ToolResult
    from mcp_toolset.tools.source import SourceStatus

_S = TypeVar("_S")
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """The differences between a view and its server.

    Patterns here are for the names that tools have at the server, as those of its own rules are.

    Attributes:
        name: Its name, which reports of calls and the log have.
        place: The place of its definition, for messages, such as `toolset.profiles.work`.
        tools: Patterns of the tools that it has; all others do not exist in it.
        names: Other names of tools, by the names that they have at the server.
        permissions: Rules besides those of the server; of several verdicts, the strictest counts.
        settings: Settings of extensions besides those of the configuration, by key.
        instructions: Text for the model in place of the server's; `None` for the server's.
        defers: True if all of its tools are behind search; `None` as at the server.
        extensions: Extensions that it has, or has not, otherwise than the server, by key.
    """

    name: str
    place: str = ""
    tools: tuple[str, ...] = ("*",)
    names: Mapping[str, str] = field(default_factory=lambda: _NONE)
    permissions: Permissions | None = None
    settings: Mapping[str, Settings] = field(default_factory=lambda: _NONE)
    instructions: str | None = None
    defers: bool | None = None
    extensions: Mapping[str, bool] = field(default_factory=lambda: _NONE)


class ServedView(Protocol):
    """A view of a server, as extensions know it: it answers clients as a server of its own does."""

    @property
    def answers(self) -> Answers:
        """Its answers to the requests of clients."""
        ...

    @property
    def leaving(self) -> anyio.Event:
        """Set when it takes no more requests."""
        ...

    @property
    def closed(self) -> anyio.Event:
        """Set when its last call has ended."""
        ...

    def become(self, options: ViewOptions) -> bool:
        """Take other options from the next compilation on, which comes at once; `False` needs a new view."""
        ...

    async def leave(self, drain: float) -> None:
        """End its streams, and wait for its calls in flight, at most `drain` seconds."""
        ...


FindView = Callable[[str, "Identity | None"], Awaitable["ServedView | None"]]
"""Finds the view of a name for a caller."""


class ResourceAddresses(ABC):
    """The addresses that clients have for resources of mounted servers."""

    __slots__ = ()

    @abstractmethod
    def uri(self, source: str, native: str) -> str:
        """The address that clients have for an address of a mounted server."""

    @abstractmethod
    def origins(self, uri: str, seen: Collection[str] | None = None) -> Sequence[tuple[str, str]]:
        """The servers to ask for an address of clients, of those `seen`, each with its own address.

        The likeliest is first; the name of what the program has itself is empty.
        """


class Host(Protocol):
    """The server of an extension, as far as extensions may know it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def version(self) -> str:
        """Its version."""
        ...

    @property
    def view(self) -> str:
        """The name of the view of a server that this is; empty for a server itself."""
        ...

    def outer(self, key: str) -> Any:
        """In a view, the extension with a key of the server itself; `None` if it has none."""
        ...

    @property
    def grants(self) -> GrantLedger:
        """The grants of its deferred tools."""
        ...

    @property
    def shared(self) -> SharedState | None:
        """The state that replicas of the server share; `None` without replicas."""
        ...

    @property
    def configuration(self) -> Path | None:
        """The file that is served, if there is one."""
        ...

    @property
    def served_as(self) -> str:
        """The path of the configuration that is served, else the name: for files about this server."""
        ...

    @property
    def identified(self) -> str:
        """The identity of this server among others that share a store."""
        ...

    @property
    def table(self) -> Mapping[str, ToolBinding]:
        """Everything that can be called, by public name; replaced when it changes, never altered."""
        ...

    def stated(self, key: str) -> Settings | None:
        """The settings of an extension now; `None` if the configuration has none, or turns it off."""
        ...

    def stated_by_server(self, key: str) -> Mapping[str, ServerSettings]:
        """The settings of an extension in the entries of enabled servers now, by name."""
        ...

    def stated_by_file(self, key: str) -> Sequence[tuple[Settings | None, Mapping[str, ServerSettings]]]:
        """The settings of an extension in each file that is served now: for all, and by enabled server.

        Several files can be served together, and more can be attached; see `Settings.adds`.
        """
        ...

    def preview(self, identity: Identity | None) -> str | None:
        """The text on deferred tools that a caller gets at the beginning."""
        ...

    @property
    def policy(self) -> Policy | None:
        """The policy that applies now, of the program and of files together."""
        ...

    @property
    def identifiers(self) -> Collection[str]:
        """The identifiers under which its own extensions are advertised; known after `bind`."""
        ...

    def hides(self, binding: ToolBinding, identity: Identity | None) -> bool:
        """True if a tool does not exist for a caller. Ask it about every tool that you show."""
        ...

    def includes(self, thing: ToolFacts) -> bool:
        """True if something of the server, judged as a tool, is in this view of it; `True` in no view.

        Ask it about what the program itself has beside tools.
        """
        ...

    def judge_again(self) -> None:
        """Look for rules that fit nothing once more, as `Extension.unjudged` says less."""
        ...

    def statuses(self) -> Mapping[str, SourceStatus]:
        """The status of each mounted server, by name."""
        ...

    def seen_by(self, identity: Identity | None) -> Callable[[str, str], bool]:
        """True if a mounted server, and a tool by its public name or the server's own, exist for a caller.

        For what was noted by name: tools may be gone by now. Names are empty for none.
        """
        ...

    @property
    def catalog_names(self) -> Collection[str]:
        """The names of the tools that search and grant, and of those beside them; known after `bind`."""
        ...

    @property
    def reshapes(self) -> bool:
        """True if results may differ from output schemas, as some extension says; known after `bind`."""
        ...

    @property
    def lowlevel(self) -> Any:
        """The SDK's `Server` before this one, for handlers and middleware of the SDK; known after `bind`."""
        ...

    def servers(self, identity: Identity | None) -> Mapping[str, Offers]:
        """Each mounted server that exists for a caller, by name: its resources, prompts and other answers."""
        ...

    async def arrived(self) -> None:
        """Wait a little for mounted servers of which nothing is known yet."""
        ...

    async def addresses(self) -> ResourceAddresses:
        """The public addresses of resources of mounted servers, as they are now."""
        ...

    async def relayed(
        self,
        request: RequestContext,
        ask: Callable[[Mapping[str, Any], ToolContext], Awaitable[Mapping[str, Any]]],
    ) -> dict[str, Any]:
        """Answer a request of a method of an extension, with the errors and round trips of the client's era.

        Args:
            request: The request.
            ask: Gets its parameters without `_meta`, and the caller; returns the result.
        """
        ...

    async def in_scope(self, references: Sequence[str] | None, context: ToolContext) -> Mapping[str, str]:
        """The tools of some grants of a caller: their public names, each with what its grant is found by.

        Args:
            references: The handles of the grants; all that the caller holds if `None`.
            context: The caller.
        """
        ...

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a call for a caller, as one part of a call of that caller: it is `sent`, and not `answered`."""
        ...

    def viewed(self, options: ViewOptions) -> AbstractAsyncContextManager[ServedView]:
        """A view of the server, open for the length of a block: some of its tools, under a name.

        Raises:
            DefinitionError: the server cannot have views, or has one of this name.
        """
        ...

    def need(self, kind: type[_S]) -> _S | None:
        """A service of the program or of an extension, such as the store of suspended calls.

        Services of extensions are found when all are bound, such as by `Extension.tools`.
        """
        ...
