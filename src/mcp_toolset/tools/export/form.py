"""What a provider's requests look like: its limits, and the shapes that tools and choices take."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mcp_toolset.tools.export.requirement import ToolRequirement
from mcp_toolset.tools.export.schema import Schema
from mcp_toolset.tools.export.strict import StrictDialect

Provider = Literal["openai", "openai_responses", "anthropic", "gemini"]
"""Whose request is made; `openai` is chat completions."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool on its way into a request.

    Attributes:
        name: The name that the provider accepts.
        description: What the tool does, if it says so.
        parameters: The input schema in the provider's form, for this request alone.
        strict: Whether the schema is enforced; `None` where strict mode was not asked for.
        deferred: Whether the provider's own search finds the tool.
    """

    name: str
    description: str | None
    parameters: dict[str, Any]
    strict: bool | None = None
    deferred: bool = False


def within_any_budget(schemas: Sequence[Schema | None]) -> list[bool]:
    """Every tool with a strict schema may be strict."""
    return [schema is not None for schema in schemas]


@dataclass(frozen=True, slots=True)
class ProviderForm:
    """What one provider accepts.

    Attributes:
        title: The provider's name, for messages.
        names: The tool names it accepts.
        reserved: Names that its own tools take in the same request.
        properties: The argument names it accepts, where it limits them.
        defers: Whether it has a search of its own for deferred tools.
        dialect: What it can enforce in strict mode, where that takes another schema.
        budget: Which of a request's strict schemas it takes together.
        parameters: Shapes an object schema without a union at its root.
        tool: One tool.
        tools: All tools, and what stands beside them.
        choice: The tool choice for a requirement, given the required tool's exported name and whether
            strict mode was asked for.
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
