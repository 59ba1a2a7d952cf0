"""`NamedStep`: the step of a verb that applies to some tools only, by name, pattern or tool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mcp_toolset._records import replace
from mcp_toolset.tools.view.tool_names import NameUse, ToolNames, use_of
from mcp_toolset.tools.view.unbound import KnownTools, UnboundName, unbound

if TYPE_CHECKING:
    from mcp_toolset.tools.binding.binding import ToolBinding
    from mcp_toolset.tools.binding.selector import ToolSelector
    from mcp_toolset.tools.declare.tool import Tool

V = TypeVar("V")
if TYPE_CHECKING:
    BySelector = Mapping[str, V] | Mapping[Tool[..., Any], V] | Mapping[ToolSelector, V]
    """A value for each of some tools; mappings do not widen their keys, so all three types are named."""


class NamedStep(Generic[V]):
    """What a verb does to each tool, given its value for that tool, if any."""

    def __init__(
        self,
        verb: str,
        by: Mapping[ToolSelector, V],
        act: Callable[[ToolBinding, V | None], ToolBinding | None],
    ) -> None:
        """Apply `act` to every tool, with the value that `by` has for it by name, pattern or tool."""
        uses = ((use_of(selector, verb), value) for selector, value in by.items())
        self._by = [(use, value) for use, value in uses if use is not None]
        self._act = act
        self.is_bound = False
        """Whether each name matched a tool when this was last used."""

    @property
    def names_only(self) -> bool:
        """Whether it depends on the tools only: the members of a group of tools may change."""
        return all(use.tool is None for use, _ in self._by)

    def among(self, bindings: Iterable[ToolBinding]) -> Callable[[ToolBinding], ToolBinding | None]:
        table = self._told(ToolNames(bindings))
        return lambda binding: self._act(binding, table.get(binding.name))

    def unbound(self, bindings: Iterable[ToolBinding], known: KnownTools) -> list[UnboundName]:
        bindings = list(bindings)
        found = unbound((use for use, _ in self._by), ToolNames(bindings), known)
        if len(known.sources) != 1 or not all(one.source for one in bindings):
            return found
        return [replace(one, server=known.sources[0].source_name) for one in found]

    def told(self, bindings: Iterable[ToolBinding]) -> Mapping[str, V]:
        """The value for each tool, by public name; a name wins over a tool, and a tool over a pattern."""
        return self._told(ToolNames(bindings))

    def _told(self, names: ToolNames) -> Mapping[str, V]:
        found: dict[str, tuple[int, V]] = {}
        self.is_bound = all(names.reached(use) and not names.is_ambiguous(use) for use, _ in self._by)
        for use, value in self._by:
            for name in names.reached(use):
                rank = _rank(use, name)
                if name not in found or rank < found[name][0]:
                    found[name] = (rank, value)
        return {name: value for name, (_, value) in found.items()}


def _rank(use: NameUse, name: str) -> int:
    if use.tool is not None:
        return 1
    return 3 if use.is_pattern else 0 if use.name == name else 2
