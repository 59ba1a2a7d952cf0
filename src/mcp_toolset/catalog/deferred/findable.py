"""`FindableTools`: the deferred tools as callers may find them: which, by which ids, and in which state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from mcp_toolset.catalog.deferred.hit_ids import HitIds
from mcp_toolset.catalog.deferred.tools import HitState, Unavailable
from mcp_toolset.catalog.grants.access import AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger, ToolGrant
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.source import SourceStatus
from mcp_toolset.tools.view.view import ToolBinding


class Reporting(Protocol):
    """What tells how it is doing, as a `ToolSource` does."""

    @property
    def status(self) -> SourceStatus:
        """How it is doing."""
        ...


class FindableTools:
    """The deferred tools, those held back included, and what stands in the way of each.

    Attributes:
        tools: What can be resolved and called, by public name.
        held: What is found and cannot be had, with the reason.
        ids: The ids by which tools are found.
        policy: Who may have what.
    """

    def __init__(
        self, ledger: GrantLedger, policy: AccessPolicy, sources: Callable[[], Mapping[str, Reporting]]
    ) -> None:
        """Start empty; `sources` are all servers by name, those without a tool so far too."""
        self.tools: dict[str, ToolBinding] = {}
        self.held: dict[str, tuple[ToolBinding, str]] = {}
        self.ids = HitIds()
        self.policy = policy
        self._ledger = ledger
        self._sources = sources

    def every(self) -> dict[str, ToolBinding]:
        """Every tool that a search can find, those held back too."""
        return self.tools | {name: binding for name, (binding, _) in self.held.items()}

    def hidden(self, context: ToolContext) -> frozenset[str]:
        """The names of the tools that the caller is not to know of."""
        return self.policy.hidden(self.every(), context)

    def found(self, name: str) -> ToolBinding:
        """A tool that a search has found, by its public name."""
        return self.held[name][0] if name in self.held else self.tools[name]

    def named(self, id: str, context: ToolContext) -> list[str]:
        """The public names of the tools that an id may stand for, of those that the caller may know of."""
        return self.ids.named(id, lambda name: not self.policy.hides(self.found(name), context))

    def standing(
        self, binding: ToolBinding, grant: ToolGrant | None, context: ToolContext
    ) -> tuple[HitState, str | None, float | None]:
        """Whether a tool can be had now, why not, and after how many seconds to ask again."""
        withheld = self.policy.withheld(binding, context)
        if withheld is not None:
            return withheld.state, withheld.reason, withheld.retry_in
        state = self.state(binding)
        moved = "" if grant is None or state[1] else self._ledger.moved(grant, binding)
        return ("changed", f"{moved}; resolve it again", None) if moved else state

    def state(self, binding: ToolBinding) -> tuple[HitState, str | None, float | None]:
        """The same, whoever asks."""
        if binding.name in self.held:
            return "changed", self.held[binding.name][1], None
        source = self._sources().get(binding.source)
        # A call of a tool that the last run knew waits for a server that is starting.
        if source is not None and (status := source.status).state not in ("ready", "starting"):
            return "offline", _offline(binding.source, status), status.retry_in
        return "available", None, None

    def unavailable(self, server: str | None, hidden: frozenset[str]) -> list[Unavailable]:
        """The servers that a search could not see into; never the same as finding nothing.

        One whose every known tool is hidden from the caller is hidden with them.
        """
        asked = None if server is None else server.casefold()
        secret = {self.found(name).source for name in hidden}
        if secret:
            secret -= {tool.source for name, tool in self.every().items() if name not in hidden}
        return [
            Unavailable(server=name, state=status.state, reason=status.reason, retry_in=status.retry_in)
            for name, source in self._sources().items()
            if (status := source.status).state != "ready"
            and asked in (None, name.casefold())
            and name not in secret
        ]


def _offline(source: str, status: SourceStatus) -> str:
    return f"{source} is {status.state}: {status.reason}" if status.reason else f"{source} is {status.state}"
