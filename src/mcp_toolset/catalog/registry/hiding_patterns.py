"""`HidingPatterns`: report patterns of `ToolRegistry.hide` that match no tool, such as a mistyped name."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from mcp_toolset.catalog.registry.state import RegistryEntry
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.tools.view.tool_names import NameUse, ToolNames
from mcp_toolset.tools.view.unbound import KnownTools, UnboundName
from mcp_toolset.tools.view.view import ToolBinding


class HidingPatterns:
    """Remembers which patterns have matched a tool; such a pattern is never reported again."""

    def __init__(self) -> None:
        """Start with no pattern that has matched."""
        self._fitted: set[str] = set()

    def missing(
        self,
        patterns: Collection[str],
        entries: Iterable[RegistryEntry],
        tools: Iterable[ToolBinding],
        known: KnownTools,
    ) -> list[UnboundName]:
        """The patterns that have matched no tool: remembered, present or filtered out.

        A pattern that matches only the name of a tool before a prefix or a rename hides nothing.
        """
        left = self._left(patterns, entries)
        if not left:
            return []
        names = ToolNames(tools)
        uses = [NameUse(one, "registry.hide") for one in left]
        before = {use.name: sorted(names.reached(use)) or names.moved(use) for use in uses}
        left = self._left([one for one in left if not before[one]], known.everything())
        return [
            known.missing(use, before[use.name] or names.near(use))
            for use in uses
            if before[use.name] or use.name in left
        ]

    def require(self, missing: Iterable[UnboundName], known: KnownTools, strict: bool | None) -> None:
        """Refuse names that match no tool, if all tools are known.

        Raises:
            UnknownToolError: one of them matches no tool; the message has close matches.
        """
        for one in missing:
            is_error = strict is True or (strict is None and not known.sources and one.kind == "unknown")
            if is_error and not one.waiting:
                near = f"; did you mean {' or '.join(one.near)}?" if one.near else ""
                raise UnknownToolError(one.name, f" (in hide){near}")

    def _left(self, patterns: Collection[str], tools: Iterable[RegistryEntry | ToolBinding]) -> list[str]:
        """The patterns that have matched no tool so far, including the given tools."""
        left = [one for one in patterns if one not in self._fitted]
        names = {name for tool in tools for name in (tool.name, tool.asked) if name} if left else ()
        self._fitted.update(one for one in left if any(fnmatchcase(name, one) for name in names))
        return [one for one in left if one not in self._fitted]
