"""`FindableTools`: the tools that a caller may find, and why a tool cannot be called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from time import gmtime, strftime
from typing import Final, Protocol

from mcp_toolset.catalog.deferred.answers import HitState, Unavailable
from mcp_toolset.catalog.deferred.hit_ids import HitIds
from mcp_toolset.catalog.deferred.next_call import mended, next_call, query_of, signature_of
from mcp_toolset.catalog.grants.access import AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger, ToolGrant
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.source import SourceStatus
from mcp_toolset.tools.view.view import ToolBinding

MAX_GROUPS: Final = 64
"""Groups of callers whose hidden tools are remembered."""


class Reporting(Protocol):
    """What tells how it is doing, as a `ToolSource` does."""

    @property
    def status(self) -> SourceStatus: ...


class FindableTools:
    """The deferred tools, those held back included, and what stands in the way of each.

    Attributes:
        tools: What can be resolved and called, by public name.
        held: What is found and cannot be had, with the reason.
        listed: What is found and needs no grant, since it is listed.
        ids: The ids by which tools are found.
        policy: Who may have what.
    """

    def __init__(
        self,
        ledger: GrantLedger,
        policy: AccessPolicy,
        sources: Callable[[], Mapping[str, Reporting]],
        listed_to: Callable[[ToolContext], Collection[str]] = lambda context: (),
    ) -> None:
        """Start empty.

        Args:
            ledger: Knows what has changed since it was granted.
            policy: Who may have what.
            sources: All servers by name, those without a tool so far too.
            listed_to: The names of the tools that a caller is listed.
        """
        self.tools: dict[str, ToolBinding] = {}
        self.held: dict[str, tuple[ToolBinding, str]] = {}
        self.listed: dict[str, ToolBinding] = {}
        self.ids = HitIds()
        self.policy = policy
        self._ledger = ledger
        self._sources = sources
        self._listed_to = listed_to
        self._held_since: dict[str, str] = {}
        self._hidden: dict[Hashable, frozenset[str]] = {}
        self._is_personal = False

    def changed(
        self,
        tools: dict[str, ToolBinding],
        held: dict[str, tuple[ToolBinding, str]],
        listed: dict[str, ToolBinding],
    ) -> None:
        now = strftime("%Y-%m-%d %H:%M UTC", gmtime())
        self._held_since = {name: self._held_since.get(name, now) for name in held}
        self.tools, self.listed = tools, listed
        self.held = {
            name: (tool, f"held since {self._held_since[name]}: {reason}; a person must accept it")
            for name, (tool, reason) in held.items()
        }
        self._hidden = {}
        self._is_personal = any(tool.personal is not None for tool in self.every().values())

    def every(self) -> dict[str, ToolBinding]:
        """Every deferred tool that a search can find, those held back too."""
        return self.tools | {name: binding for name, (binding, _) in self.held.items()}

    def findable(self) -> dict[str, ToolBinding]:
        """Every tool that a search can find."""
        return self.every() | self.listed

    def hidden(self, context: ToolContext) -> frozenset[str]:
        """The names of the tools that the caller is not to know of."""
        hidden = self._hidden_deferred(context)
        return hidden | (self.listed.keys() - set(self._listed_to(context))) if self.listed else hidden

    def may_hide(self, context: ToolContext) -> bool:
        """Whether there is anything that could hide a tool from the caller."""
        return self._hides_by_caller or self.policy.visible.group(context.identity) is not None

    @property
    def _hides_by_caller(self) -> bool:
        return bool(self.policy) or self._is_personal

    def _hidden_deferred(self, context: ToolContext) -> frozenset[str]:
        if self._hides_by_caller:
            return self.policy.hidden(self.every(), context)
        group = self.policy.visible.group(context.identity)
        if group is None:
            return frozenset()
        if group not in self._hidden:
            if len(self._hidden) >= MAX_GROUPS:
                self._hidden = {}
            self._hidden[group] = self.policy.hidden(self.every(), context)
        return self._hidden[group]

    def found(self, name: str) -> ToolBinding:
        """A tool that a search has found, by its public name."""
        return self.held[name][0] if name in self.held else self.tools.get(name) or self.listed[name]

    def key_of(self, name: str) -> str:
        """What stays with a tool when its public name changes: its source and its own id."""
        return key_of(self.found(name))

    def id_of(self, name: str) -> str:
        """The id of a tool that a search has found: its name, if it is listed."""
        return name if name in self.listed else self.ids.id_of(name)

    def knows(self, id: str, context: ToolContext) -> bool:
        return bool(self.named(id, context)) or self.is_listed(id, context)

    def is_listed(self, name: str, context: ToolContext) -> bool:
        """Whether a tool is listed to the caller, and is no fixed tool."""
        return name in self.listed and name in self._listed_to(context)

    def direct(self, name: str) -> str:
        """How a listed tool is called, in place of a grant."""
        tool = self.listed[name]
        _, arguments = mended(tool.definition.input_schema, tool.arguments, {})
        said = f"{name} is listed and needs no grant; call it by its name"
        return f"{said}\n{signature_of(tool.definition, name)}\n{next_call(name, arguments)}"

    def why_held(self, grant: ToolGrant, context: ToolContext) -> str:
        """Why a granted tool is held back by now; empty if it is not, or the caller may not know of it."""
        for tool, reason in self.held.values():
            same = (tool.source, tool.own_id) == (grant.source, grant.tool)
            if same and not self.policy.hides(tool, context):
                return _told_held(grant.name, reason)
        return ""

    def why_held_now(self, id: str, context: ToolContext) -> str:
        """The same for a tool that the caller asks for by id, and holds no grant for."""
        held = [self.held[name][1] for name in self.named(id, context) if name in self.held]
        return _told_held(id, held[0]) if len(held) == 1 else ""

    def servers(self, hidden: frozenset[str], context: ToolContext) -> list[str]:
        """The servers that a caller may know of, in the order in which they were mounted."""
        seen = {tool.source for name, tool in self.findable().items() if name not in hidden}
        away = {one.server for one in self.unavailable(None, hidden, context)}
        mounted = [name for name in self._sources() if name in seen or name in away]
        return [*mounted, *sorted(seen - {"", *mounted})]

    def named(self, id: str, context: ToolContext) -> list[str]:
        """The public names of the tools that an id may stand for, of those that the caller may know of."""
        return self.ids.named(id, lambda name: not self.policy.hides(self.found(name), context))

    def standing(
        self, binding: ToolBinding, grant: ToolGrant | None, context: ToolContext
    ) -> tuple[HitState, str | None, float | None]:
        """Whether a tool can be had now, why not, and after how many seconds to ask again."""
        if binding.name in self.listed:
            return "listed", "call it by its name", None
        withheld = self.policy.withheld(binding, context)
        if withheld is not None:
            return withheld.state, withheld.reason, withheld.retry_in
        state = self.state(binding)
        moved = "" if grant is None or state[1] else self._ledger.moved(grant, binding)
        return ("changed", f"{moved}; resolve it again", None) if moved else state

    def state(self, binding: ToolBinding) -> tuple[HitState, str | None, float | None]:
        """The same without regard to the caller: its policy and its grants."""
        if binding.name in self.held:
            return "changed", self.held[binding.name][1], None
        source = self._sources().get(binding.source)
        # A call of a tool that the last run knew waits for a server that is starting.
        if source is not None and not ((status := source.status).is_up or status.state == "starting"):
            return "offline", _offline(binding.source, status), status.retry_in
        return "available", None, None

    def unavailable(
        self, server: str | None, hidden: frozenset[str], context: ToolContext
    ) -> list[Unavailable]:
        """The servers that a search could not see into; never the same as finding nothing.

        One whose every known tool is hidden from the caller is hidden with them.
        """
        hides = self.policy.visible.hides_server
        asked = None if server is None else server.casefold()
        secret = {self.found(name).source for name in hidden}
        if secret:
            secret -= {tool.source for name, tool in self.findable().items() if name not in hidden}
        return [
            Unavailable.of(name, status)
            for name, source in self._sources().items()
            if not (status := source.status).is_up
            and asked in (None, name.casefold())
            and name not in secret
            and not hides(name, context.identity)
        ]


def key_of(tool: ToolBinding) -> str:
    return f"{tool.source}\n{tool.own_id}"


def _told_held(name: str, reason: str) -> str:
    following = next_call("search_tools", {"query": query_of(name)})
    return f"{name} is {reason}. Use another tool until then.\n{following}"


def _offline(source: str, status: SourceStatus) -> str:
    return f"{source} is {status.state}: {status.reason}" if status.reason else f"{source} is {status.state}"
