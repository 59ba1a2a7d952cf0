"""`Reloadable`: the type of a toolset whose configuration can be replaced, without the code that does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.source import ToolSource
from mcp_toolset.tools.toolsets.toolset import Toolset

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_toolset.config import HubConfig
    from mcp_toolset.context.shared import Shared
    from mcp_toolset.security.authenticator import Authenticator

PATIENCE: Final = 10.0
"""Seconds that a reload waits for servers that are starting; what is not there by then joins later."""


@dataclass(frozen=True, slots=True)
class ReloadReport:
    """The outcome of a reload, by names of servers.

    Attributes:
        added: Mounted for the first time.
        removed: Mounted no longer.
        restarted: Started again, because they are reached in another way.
        altered: Named, chosen or judged in another way, over the connection that they had.
        starting: Of those added or restarted, the ones that have not answered yet. One that is started
            again is called as it was until then.
        at_restart: Settings that apply from the next start of the server on.
        settings: Settings of the file, such as `permissions`, that have changed and apply now.
        misconfigured: Those whose entries cannot be used, where that was otherwise before; each has its
            reason as its status.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    starting: tuple[str, ...] = ()
    at_restart: tuple[str, ...] = ()
    misconfigured: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything was different."""
        differs = (self.added, self.removed, self.restarted, self.altered, self.at_restart)
        return any((*differs, self.misconfigured, self.settings))

    def __str__(self) -> str:
        """One line for people."""
        parts = (
            ("added", self.added),
            ("removed", self.removed),
            ("started again", self.restarted),
            ("altered", self.altered),
            ("still starting", self.starting),
            ("to hold from the next start", self.at_restart),
            ("misconfigured", self.misconfigured),
            ("changed", self.settings),
        )
        return "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names) or "nothing differs"


class Reloading(Protocol):
    """What reloads a configuration within a server; see `Reloads`."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Configurations can be reloaded while this is open; then what they started is closed."""
        ...

    async def reload(self, config: HubConfig | None, *, drain: float, patience: float) -> ReloadReport: ...


@runtime_checkable
class Reloadable(Protocol):
    """A toolset of configured servers."""

    @property
    def config(self) -> HubConfig:
        """The configuration that holds now."""
        ...

    @property
    def read(self) -> Callable[[], HubConfig]:
        """Reads the configuration file as it is now."""
        ...

    def authenticator(self) -> Authenticator | None:
        """Who may call, as the configuration says; `None` if it does not say."""
        ...

    def rely_on_callers(self, known: bool) -> None:
        """Refuse rules for some callers, now and at each reload, if nothing but `auth` says who calls.

        Args:
            known: Whether somebody else says who calls.

        Raises:
            ConfigError: the configuration has such rules, and no `auth`.
        """
        ...

    def share(self, shared: Shared) -> None:
        """Take what the replicas of the server share."""
        ...

    def watched(self) -> list[Path]:
        """The files that the configuration came from, and what it refers to."""
        ...

    def reloads(
        self,
        *,
        sources: Callable[[], Mapping[str, ToolSource]],
        changed: Callable[[], None],
        rebuild: Callable[[], Awaitable[None]],
    ) -> Reloading:
        """What reloads it within a server."""
        ...


def reloadable_in(toolset: Toolset) -> Reloadable | None:
    """What can be reloaded in a toolset, or is it; the first, if there are several.

    Raises:
        DefinitionError: another one says what the first one would say for the whole server.
    """
    found = [each for each in toolsets_in(toolset) if isinstance(each, Reloadable)]
    for other in found[1:]:
        for key, stated in other.config.extensions.items():
            # A field of this name is none of ours.
            adds: object = getattr(cast("Any", type(stated)), "adds", False)
            if found[0] is not other and stated is not None and adds is not True:
                raise DefinitionError(
                    f"{other.config.path}: toolset.{key} would have no effect beside {found[0].config.path}, "
                    "whose settings are for the whole server; move it there, or serve the files apart"
                )
    return found[0] if found else None


def toolsets_in(toolset: Toolset) -> Iterator[Toolset]:
    """A toolset, then each that is nested in it."""
    yield toolset
    for member in toolset.members():
        if isinstance(member, Toolset):
            yield from toolsets_in(member)
