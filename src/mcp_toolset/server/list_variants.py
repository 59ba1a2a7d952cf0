"""`ListVariants`: the answers of `tools/list` for each kind of caller, from one compiled table of tools."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.context.offer_kinds import VaryingSource
from mcp_toolset.tools.binding.binding import DEFERRED_CATALOG
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.identity import Identity
from mcp_toolset.tools.view.view import ToolBinding

if TYPE_CHECKING:
    from mcp_toolset.security.policy.policy import Policy

Hidden = tuple[tuple[str, frozenset[str]], ...]
"""Which tools of which sources a client does not see, by the sources' own names for them."""

Texts = dict[str, ToolDefinition | None]
"""What one caller is listed in place of shared definitions, by public name; `None` for nothing as yet."""

_NO_TEXTS: Final[Texts] = {}
_SHARED: Final = object()

MAX_LISTS: Final = 256
"""Lists that are kept at once."""

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Shown:
    """A tool that is listed, and its wire form."""

    binding: ToolBinding
    wire: dict[str, Any]


class ListVariants:
    """The lists of one table: one object for all callers who see the same, made when it is first asked for.

    Attributes:
        policy: Hides tools from callers.
    """

    def __init__(
        self,
        shown: Sequence[Shown] = (),
        varying: Mapping[str, VaryingSource] | None = None,
        policy: Policy | None = None,
        searching: Callable[[Identity | None], ToolBinding] | None = None,
    ) -> None:
        """List `shown`.

        Args:
            shown: All tools that are listed.
            varying: The sources that do not list the same to every client.
            policy: Hides tools from callers.
            searching: `search_tools` with the preview for a caller, where there is a policy and a catalog.
        """
        self.policy = policy
        self._shown = shown
        self._varying = varying or {}
        self._searching = searching
        self._found: dict[Hashable, dict[str, Any]] = {}
        self._lists: dict[Hashable, list[dict[str, Any]]] = {}
        # What is listed to single clients alone is told to these alone.
        self._common = self._hidden_from(LOCAL_CONTEXT)
        self.personal = [each for each in shown if each.binding.personal is not None]

    def renewed(self) -> ListVariants:
        """The same tools, after the status of a source has changed; previews stay as they were."""
        renewed = ListVariants(self._shown, self._varying, self.policy, self._searching)
        renewed._found = self._found
        return renewed

    def of(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that a caller sees without grants."""
        hidden = self._hidden_from(context)
        return self._list(hidden, context.identity, self._texts(context) if self.personal else _NO_TEXTS)

    def _hidden_from(self, context: ToolContext) -> Hidden:
        return tuple(
            (name, names) for name, source in self._varying.items() if (names := source.hidden_from(context))
        )

    def _texts(self, context: ToolContext) -> Texts:
        """The definitions of tools that a caller is listed otherwise than they are shared."""
        found: Texts = {}
        for each in self.personal:
            personal = each.binding.personal
            own = None if personal is None else personal.own(context)
            if personal is not None and own is not None and own.digest != personal.shared.digest:
                found[each.binding.name] = own if personal.exists(context) else None
        return found

    def unknown_to(self, context: ToolContext) -> list[VaryingSource]:
        """The sources of which it has still to be found out what they list to a caller."""
        return [source for source in self._varying.values() if source.unknown_to(context)]

    def may_differ(self, before: ListVariants) -> bool:
        """Whether some caller may see another list than before."""
        if self.policy is None and before.policy is None:
            return self.differs(before, None)
        return self.policy is not before.policy or self._shown is not before._shown

    def differs(self, before: ListVariants, identity: Identity | None) -> bool:
        """Whether a caller without sessions of its own with the sources sees another list than before."""
        return self._list(self._common, identity) != before._list(before._common, identity)

    def _list(
        self, hidden: Hidden, identity: Identity | None, texts: Texts = _NO_TEXTS
    ) -> list[dict[str, Any]]:
        said = tuple((name, own and own.digest) for name, own in texts.items())
        key = (hidden, None if self.policy is None else self.policy.group(identity), said)
        known = self._lists.get(key)
        if known is None:
            if len(self._lists) >= MAX_LISTS:
                self._lists.clear()
            aside = dict(hidden)
            known = self._lists[key] = [
                self._wire(each, identity, texts)
                for each in self._shown
                if texts.get(each.binding.name, _SHARED) is not None
                and each.binding.definition.name not in aside.get(each.binding.source, _NONE)
                and (self.policy is None or self.policy.decide(each.binding, identity).kind != "deny")
            ]
        return known

    def _wire(self, each: Shown, identity: Identity | None, texts: Texts) -> dict[str, Any]:
        own = texts.get(each.binding.name)
        if own is not None and each.binding.personal is not None:
            return each.binding.personal.wire(each.wire, own)
        if self.policy is None or self._searching is None or each.binding.place != DEFERRED_CATALOG:
            return each.wire
        group = self.policy.group(identity)
        if group not in self._found:
            self._found[group] = self._searching(identity).to_wire()
        found = self._found[group]
        return found if found["name"] == each.wire["name"] else each.wire
