"""`Export`: tools in a `ProviderForm`, with the table that decodes what the model sends."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal

from mcp_toolset._records import dataclass
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.core.call import ToolCall
from mcp_toolset.tools.export.arguments import WayBack
from mcp_toolset.tools.export.requirement import ToolRequirement
from mcp_toolset.tools.export.schema import Schema
from mcp_toolset.tools.export.strict import StrictDialect

FOUND_META_KEY: Final = "mcp-toolset/found"
"""In the `_meta` of a result: the tools that a search has found, as the request's provider knows them."""

Provider = Literal["openai", "openai_responses", "anthropic", "gemini"]
"""The provider of the request; `openai` is chat completions."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool on its way into a request.

    Attributes:
        name: The name that the provider accepts.
        description: What the tool does, if it says so.
        parameters: The input schema in the provider's form, for this request only.
        strict: Whether the schema is enforced; `None` if strict mode was not requested.
        server: The mounted server that it is from; empty for a tool of the application.
        deferred: Whether the provider's own search finds the tool.
    """

    name: str
    description: str | None
    parameters: dict[str, Any]
    strict: bool | None = None
    server: str = ""
    deferred: bool = False


def within_any_budget(schemas: Sequence[Schema | None]) -> list[bool]:
    """Every tool with a strict schema may be strict."""
    return [schema is not None for schema in schemas]


@dataclass(frozen=True, slots=True)
class ProviderForm:
    """The rules of one provider.

    Attributes:
        title: The provider's name, for messages.
        names: The tool names it accepts.
        reserved: Names of its own tools in the same request.
        properties: The argument names it accepts, if it limits them.
        defers: Whether it has its own search for deferred tools.
        dialect: The part of JSON Schema that it enforces in strict mode, if that is smaller.
        budget: Selects the strict schemas that one request may have.
        parameters: Shapes an object schema without a union at its root.
        tool: Shapes one tool.
        tools: Shapes the list of all tools.
        choice: The tool choice for a requirement, given the required tool's exported name and whether
            strict mode was requested.
        request: The part of a request that offers the tools.
    """

    title: str
    names: re.Pattern[str]
    tool: Callable[[Offer], dict[str, Any]]
    tools: Callable[[Sequence[Offer], list[dict[str, Any]]], list[dict[str, Any]]]
    choice: Callable[[ToolRequirement, str | None, bool], Any]
    parameters: Callable[[Schema], dict[str, Any]]
    reserved: frozenset[str] = frozenset()
    properties: re.Pattern[str] | None = None
    defers: bool = False
    dialect: StrictDialect | None = None
    budget: Callable[[Sequence[Schema | None]], list[bool]] = within_any_budget
    request: Callable[[list[dict[str, Any]], Any], Mapping[str, Any]] = lambda tools, choice: {
        "tools": tools,
        "tool_choice": choice,
    }


@dataclass(frozen=True, slots=True)
class ToolMark:
    """Identifies a tool and its version."""

    source: str
    id: str
    digest: str

    @classmethod
    def of(cls, binding: ToolBinding) -> ToolMark:
        return cls(binding.source, binding.tool_id, binding.definition.digest)


@dataclass(frozen=True, slots=True)
class OwnSearch:
    """The search of the application over the deferred tools of a request, as `ToolSearch` makes it.

    Attributes:
        name: The name of the search tool in the request.
        present: Returns the tools as they are now, by public name.
    """

    name: str
    present: Callable[[], Mapping[str, ToolBinding]]


@dataclass(frozen=True)
class Export:
    """The content of one request, and the decoder of its answer.

    Attributes:
        provider: The provider of the request.
        tools: The tools, and the provider's own search if some are deferred.
        tool_choice: The requirement in the provider's words.
        names: From each name in the request to the tool's public name, in the order of the request.
        strict: The names in the request of the tools whose arguments the provider enforces.
        deferred: The deferred tools that the provider's search may show to the model, by public name, in
            the version of the export: a call of one runs only while the tool is unchanged.
        view: The tools that were exported.
        search: The search of the application, if it offers one; a tool that has changed since the request is
            not run then.
    """

    provider: Provider
    tools: list[dict[str, Any]]
    tool_choice: Any
    names: Mapping[str, str]
    strict: frozenset[str] = frozenset()
    deferred: Mapping[str, ToolMark] = field(default_factory=dict[str, "ToolMark"])
    view: Mapping[str, ToolBinding] | None = field(default=None, repr=False, compare=False)
    search: OwnSearch | None = field(default=None, repr=False, compare=False)
    _request: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    _ways_back: Mapping[str, WayBack] = field(default_factory=dict[str, WayBack], repr=False)

    def request(self) -> dict[str, Any]:
        """The part of a request that offers the tools, by field; empty without tools.

        Pass it with `**` to `chat.completions.create`, `responses.create`, `messages.create`, or Gemini's
        `GenerateContentConfig`.
        """
        return dict(self._request) if self.tools else {}

    def decode(self, name: str) -> str:
        """The public name of the called tool; `UnknownToolError` if the request had none of this name."""
        public = self.names.get(name)
        if public is None:
            raise UnknownToolError(name)
        return public

    def decode_arguments(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the tool declares them: under their own names, absent where `null` means that.

        They are not checked; invalid arguments stay as the model sent them.
        """
        self.decode(name)
        way_back = self._ways_back.get(name)
        return dict(arguments) if way_back is None else way_back(dict(arguments))

    def renames(self, name: str) -> bool:
        """Whether the arguments of a tool must be decoded."""
        return name in self._ways_back

    def call(self, name: str, arguments: Mapping[str, Any], id: str = "") -> ToolCall:
        """The model's call, ready for a round or for dispatch; `UnknownToolError` as for `decode`."""
        return ToolCall(self.decode(name), self.decode_arguments(name, arguments), id)
