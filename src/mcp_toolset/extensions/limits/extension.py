"""`LimitedCalls`: the limits that a server's program and its configuration files set."""

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

    LimitSet = tuple[Mapping[str, Limits], Mapping[str, Mapping[str, Limits]]]
    """The limits for all tools by pattern, and the limits of each mounted server by pattern."""


class LimitedCalls(Extension):
    """Limits for each caller, by pattern of tools."""

    key: ClassVar = "limits"
    _store: Store | None

    def __init__(self, limits: Mapping[str, Limits] | None = None) -> None:
        """Set the limits of the program; the limits of configurations apply in addition.

        Raises:
            DefinitionError: `limits` does not map patterns to limits.
        """
        if limits is not None:
            LimitTable(limits)  # checks the patterns
        self._of_program: list[LimitSet] = [(limits, {})] if limits else []
        self._guards: list[tuple[LimitSet, CallLimits]] = []

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """Build the extension from its keyword; `guard` reads the configuration."""
        return cls(said)

    @classmethod
    def at_restart(cls, before: Settings | None, now: Settings | None) -> bool:
        """Always false: a change of limits needs no restart."""
        return False

    def bind(self, host: Host) -> Self:
        """A copy for one server, with counters that its replicas share."""
        bound = copy(self)
        bound.host, bound._guards = host, []
        shared = host.shared
        bound._store = None if shared is None else shared.store()
        return bound

    def guard(self) -> tuple[CallLimits, ...]:
        """The limits in force; a limit that has not changed keeps its counters."""
        # A view shares the counters of its server, and counts its additional limits itself.
        outer: LimitedCalls | None = self.host.outer(self.key)
        if outer is None:
            return self._guards_of([*self._of_program, *self._of_files()])
        shared = len(outer.host.stated_by_file(self.key))
        return (*outer.guard(), *self._guards_of([*self._of_files()][shared:]))

    def _guards_of(self, sets: Sequence[LimitSet]) -> tuple[CallLimits, ...]:
        present = [limits for limits in sets if limits[0] or any(limits[1].values())]
        if present != [limits for limits, _ in self._guards]:
            self._guards = [(limits, self._guard_of(limits)) for limits in present]
        return tuple(guard for _, guard in self._guards)

    def _guard_of(self, limits: LimitSet) -> CallLimits:
        known = (guard for previous, guard in self._guards if previous == limits)
        return next(known, None) or CallLimits(*limits, store=self._store)

    def _of_files(self) -> Iterator[LimitSet]:
        for settings, servers in self.host.stated_by_file(self.key):
            by_server = {name: cast("LimitsOfServer", entry).limits for name, entry in servers.items()}
            yield cast("LimitsSettings", settings).limits if settings else {}, by_server


EXTENSION = LimitedCalls
