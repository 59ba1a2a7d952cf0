"""`ToolRequirement`: the tools that a model must call; `Export`: tools in a provider's form."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any, Final, Literal

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError, UnknownToolError
from mcp_toolset.tools.binding import ToolBinding, ToolSelector, names_of, public_name_of
from mcp_toolset.tools.call import ToolCall

MAX_NAMED: Final = 10  # The number of names that one message lists.


@dataclass(frozen=True, slots=True)
class ToolRequirement:
    """The tools of which a model must call one; checked against the available tools before a request."""

    kind: Literal["optional", "at_least_one", "specific"] = "optional"
    selector: ToolSelector | None = None

    def __post_init__(self) -> None:
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
        """The public names of a table that satisfy the requirement; `DefinitionError` if no tool does."""
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


Provider = Literal["openai", "openai_responses", "anthropic", "gemini"]
"""The provider of the request; `openai` is chat completions."""


WayBack = Callable[[dict[str, Any]], dict[str, Any]]  # Converts arguments of the model to the tool's.


@dataclass(frozen=True, slots=True)
class ToolMark:
    """Identifies a tool and its version."""

    source: str
    id: str
    digest: str

    @classmethod
    def of(cls, binding: ToolBinding) -> ToolMark:
        return cls(binding.source, binding.tool_id, binding.definition.digest)


OwnSearch = tuple[str, Callable[[], Mapping[str, ToolBinding]]]
"""The application's search over deferred tools: its name in the request, and the present tools."""


@dataclass(frozen=True)
class Export:
    """The content of one request, and the decoder of its answer."""

    provider: Provider  # The provider that gets the request.
    tools: list[dict[str, Any]]  # The tools, and the provider's own search if some are deferred.
    tool_choice: Any  # The requirement in the provider's words.
    # From each name in the request to the tool's public name, in the order of the request.
    names: Mapping[str, str]
    # The names in the request of the tools whose arguments the provider enforces.
    strict: frozenset[str] = frozenset()
    # The deferred tools that the provider's search may show to the model, by public name, in the version of
    # the export: a call of one runs only while the tool is unchanged.
    deferred: Mapping[str, ToolMark] = field(default_factory=dict[str, "ToolMark"])
    # The tools that were exported.
    view: Mapping[str, ToolBinding] | None = field(default=None, repr=False, compare=False)
    # The search of the application, if it offers one; a tool that has changed since the request is not run
    # then.
    search: OwnSearch | None = field(default=None, repr=False, compare=False)
    _request: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    _ways_back: Mapping[str, WayBack] = field(default_factory=dict[str, WayBack], repr=False)

    def request(self) -> dict[str, Any]:
        """The part of a request that offers the tools, to be passed with `**`; empty without tools."""
        return dict(self._request) if self.tools else {}

    def decode(self, name: str) -> str:
        """The public name of the called tool; `UnknownToolError` if the request had none of this name."""
        public = self.names.get(name)
        if public is None:
            raise UnknownToolError(name)
        return public

    def decode_arguments(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the tool declares them, unchecked, and without `null` for absent ones."""
        self.decode(name)
        way_back = self._ways_back.get(name)
        return dict(arguments) if way_back is None else way_back(dict(arguments))

    def renames(self, name: str) -> bool:
        return name in self._ways_back

    def call(self, name: str, arguments: Mapping[str, Any], id: str = "") -> ToolCall:
        """The model's call, ready for a round or for dispatch; `UnknownToolError` as for `decode`."""
        return ToolCall(self.decode(name), self.decode_arguments(name, arguments), id)
