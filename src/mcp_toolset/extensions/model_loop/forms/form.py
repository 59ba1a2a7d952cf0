"""`ProviderForm`: the rules of one provider, and `Offer`: a tool on its way into a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.extensions.model_loop.forms.schema import Schema
from mcp_toolset.extensions.model_loop.forms.strict import StrictDialect
from mcp_toolset.tools.export.requirement import ToolRequirement

FOUND_META_KEY: Final = "mcp-toolset/found"
"""In the `_meta` of a result: the tools that a search has found, as the request's provider knows them."""


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
