"""`ToolRequirement`: whether a model must call a tool in one turn, and which."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, Literal

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding.selector import ToolSelector, names_of, public_name_of

if TYPE_CHECKING:
    from mcp_toolset.tools.binding.binding import ToolBinding

MAX_NAMED: Final = 10
"""The number of names that one message lists."""


@dataclass(frozen=True, slots=True)
class ToolRequirement:
    """Whether the model must call a tool, and which; checked against the available tools before a request."""

    kind: Literal["optional", "at_least_one", "specific"] = "optional"
    selector: ToolSelector | None = None

    def __post_init__(self) -> None:
        """Refuse a kind without the selector that it needs, and a selector that its kind does not use."""
        if (self.kind == "specific") != (self.selector is not None):
            raise DefinitionError(
                f"a requirement of kind {self.kind!r} cannot have the selector {self.selector!r}; "
                "use ToolRequirement.optional(), .at_least_one() or .specific(name)"
            )

    @classmethod
    def optional(cls) -> ToolRequirement:
        """The model may call tools or answer without."""
        return cls()

    @classmethod
    def at_least_one(cls) -> ToolRequirement:
        """The model must call at least one tool."""
        return cls("at_least_one")

    @classmethod
    def specific(cls, selector: ToolSelector) -> ToolRequirement:
        """The model must call this tool, named by its public name or by the `Tool` itself."""
        return cls("specific", selector)

    def resolve(self, table: Mapping[str, ToolBinding]) -> list[str]:
        """The public names that satisfy the requirement: all available ones, or the required one.

        Args:
            table: The available tools by public name, such as a view.

        Raises:
            DefinitionError: the required tool is unavailable or ambiguous, or no tool is available where one
                is required.
        """
        if self.kind == "at_least_one" and not table:
            raise DefinitionError(
                "at least one tool call is required, but no tool is available; widen the availability "
                "or use ToolRequirement.optional()"
            )
        if self.selector is None:
            return list(table)
        if not names_of(self.selector, table):
            raise DefinitionError(
                f"the required tool {self.selector!r} is not available ({_listed(table)}); add it with "
                f"ToolAvailability.default_plus({self.selector!r}) or require another"
            )
        return [public_name_of(self.selector, table)]


def _listed(names: Collection[str]) -> str:
    if not names:
        return "no tool is"
    shown = ", ".join(sorted(names)[:MAX_NAMED])
    more = len(names) - MAX_NAMED
    return f"available: {shown} and {more} more" if more > 0 else f"available: {shown}"
