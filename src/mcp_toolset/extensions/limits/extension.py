"""`LimitedCalls`: the limits of a server: those of its program, and of each file that it serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.limits.call_limits import CallLimits
from mcp_toolset.extensions.limits.limits import Limits, LimitTable
from mcp_toolset.extensions.limits.settings import LimitsOfServer, LimitsSettings

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host
    from mcp_toolset.stores.store import Store

    Stated = tuple[Mapping[str, Limits], Mapping[str, Mapping[str, Limits]]]
    """The limits for all tools, and those for the tools of mounted servers, by server."""


class LimitedCalls(Extension):
    """Limits for each caller, by pattern of tools."""

    key: ClassVar = "limits"
    _store: Store | None

    def __init__(self, limits: Mapping[str, Limits] | None = None) -> None:
        """Take the limits of the program; those of configurations hold besides.

        Raises:
            DefinitionError: they are no limits by pattern.
        """
        if limits is not None:
            LimitTable(limits)
        self._own: list[Stated] = [(limits, {})] if limits else []
        self._limits: list[tuple[Stated, CallLimits]] = []

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """Build the extension from its keyword; later changes of the configuration hold, too."""
        return cls(said)

    @classmethod
    def at_restart(cls, before: Settings | None, now: Settings | None) -> bool:
        """False: every change holds at once."""
        return False

    def bind(self, host: Host) -> Self:
        """Count with the replicas of a server; each server has counters of its own."""
        bound = copy(self)
        bound.host, bound._limits = host, []
        shared = host.shared
        bound._store = None if shared is None else shared.store()
        return bound

    def guard(self) -> tuple[CallLimits, ...]:
        """The limits in force; counters of limits that have not changed go on."""
        # A view counts together with its server, and its own limits by itself.
        outer: LimitedCalls | None = self.host.outer(self.key)
        if outer is None:
            return self._guards([*self._own, *self._stated()])
        files = len(outer.host.stated_by_file(self.key))
        return (*outer.guard(), *self._guards([*self._stated()][files:]))

    def _guards(self, every: Sequence[Stated]) -> tuple[CallLimits, ...]:
        wanted = [one for one in every if one[0] or any(one[1].values())]
        if wanted != [stated for stated, _ in self._limits]:
            known = self._limits
            self._limits = [
                (
                    stated,
                    next((made for one, made in known if one == stated), None)
                    or CallLimits(*stated, store=self._store),
                )
                for stated in wanted
            ]
        return tuple(made for _, made in self._limits)

    def _stated(self) -> Iterator[Stated]:
        for every, servers in self.host.stated_by_file("limits"):
            own = {name: cast("LimitsOfServer", one).limits for name, one in servers.items()}
            yield cast("LimitsSettings", every).limits if every else {}, own


EXTENSION = LimitedCalls
