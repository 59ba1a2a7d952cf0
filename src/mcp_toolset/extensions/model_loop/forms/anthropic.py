"""Tools in the form of Anthropic's Messages API.

The limits are from its documentation ("Define tools", "Tool search tool", "Structured outputs: JSON Schema
limitations") and from the messages with which the API refuses a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from mcp_toolset.extensions.model_loop.forms.form import Offer, ProviderForm
from mcp_toolset.extensions.model_loop.forms.schema import Schema, kinds_of, mapped, portable
from mcp_toolset.extensions.model_loop.forms.strict import StrictDialect
from mcp_toolset.tools.export.requirement import ToolRequirement

SEARCH_TOOL: Final = "tool_search_tool_bm25"
"""The name of the provider's own search for deferred tools."""

MAX_STRICT_TOOLS: Final = 20
MAX_OPTIONAL: Final = 24
MAX_UNIONS: Final = 16

_DIALECT: Final = StrictDialect(
    kept=frozenset({"const", "default", "description", "enum", "format", "minItems", "title", "type"}),
    formats=frozenset(
        {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
    ),
    all_required=False,
    recursion=False,
    keeps=lambda key, value: key != "minItems" or value in (0, 1),
)


def _budget(schemas: Sequence[Schema | None]) -> list[bool]:
    """The first strict schemas, as many as one request may have."""
    left = [MAX_STRICT_TOOLS, MAX_OPTIONAL, MAX_UNIONS]
    chosen: list[bool] = []
    for schema in schemas:
        costs = None if schema is None else [1, *_costs(schema)]
        fits = costs is not None and all(cost <= room for cost, room in zip(costs, left, strict=True))
        if costs is not None and fits:
            left = [room - cost for cost, room in zip(costs, left, strict=True)]
        chosen.append(fits)
    return chosen


def _costs(schema: Any) -> tuple[int, int]:
    """The numbers of optional properties and of unions in a strict schema."""
    if not isinstance(schema, Mapping):
        return 0, 0
    keywords = cast("Schema", schema)
    inside: list[tuple[int, int]] = []
    mapped(keywords, lambda inner: inside.append(_costs(inner)))
    optional = len(keywords.get("properties", ())) - len(keywords.get("required", ()))
    union = "anyOf" in keywords or len(kinds_of(keywords)) > 1
    return optional + sum(cost[0] for cost in inside), union + sum(cost[1] for cost in inside)


def _tool(offer: Offer) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": offer.name}
    if offer.description is not None:
        tool["description"] = offer.description
    tool["input_schema"] = offer.parameters
    if offer.strict:
        tool["strict"] = True
    if offer.deferred:
        tool["defer_loading"] = True
    return tool


def _tools(offers: Sequence[Offer], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    search = {"type": "tool_search_tool_bm25_20251119", "name": SEARCH_TOOL}
    return [search, *tools] if any(offer.deferred for offer in offers) else tools


def _choice(requirement: ToolRequirement, name: str | None, strict: bool) -> Any:
    if name is not None:
        return {"type": "tool", "name": name}
    return {"type": "any" if requirement.kind == "at_least_one" else "auto"}


MESSAGES: Final = ProviderForm(
    title="Anthropic",
    names=re.compile(r"[A-Za-z0-9_-]{1,128}"),
    reserved=frozenset({SEARCH_TOOL}),
    properties=re.compile(r"[A-Za-z0-9_.-]{1,64}"),
    defers=True,
    dialect=_DIALECT,
    budget=_budget,
    parameters=portable,
    tool=_tool,
    tools=_tools,
    choice=_choice,
)
