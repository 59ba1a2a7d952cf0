"""Tools in the form of OpenAI's chat completions and of its Responses.

Names and the field for deferral follow the types of the client library and the guides ("Function calling",
"Structured outputs: supported schemas", "Tool search").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from mcp_toolset._records import replace
from mcp_toolset.extensions.model_loop.forms.form import Offer, ProviderForm
from mcp_toolset.extensions.model_loop.forms.schema import Schema, portable
from mcp_toolset.extensions.model_loop.forms.strict import StrictDialect, sizes_of
from mcp_toolset.tools.export.requirement import ToolRequirement

MAX_DESCRIPTION: Final = 1024
"""The largest length of a function's description; the rest continues in that of its parameters."""

TOOL_SEARCH: Final = "tool_search"
"""The type of the search tool; in an export and a turn also the name of one that the client runs."""

MAX_NAMESPACE: Final = 60
"""The characters of a namespace's name that come from the server's."""

MAX_NAMES: Final = 300
"""Characters of the names of tools in the description of a namespace."""

MAX_PROPERTIES: Final = 5000
MAX_NESTING: Final = 10
MAX_ENUM_VALUES: Final = 1000

_CONTINUED: Final = " (Continued in the description of the parameters.)"


def _fits(schema: Schema) -> bool:
    properties, nesting, values = sizes_of(schema)
    return properties <= MAX_PROPERTIES and nesting <= MAX_NESTING and values <= MAX_ENUM_VALUES


_DIALECT: Final = StrictDialect(
    kept=frozenset(
        {
            "const",
            "description",
            "enum",
            "exclusiveMaximum",
            "exclusiveMinimum",
            "format",
            "maxItems",
            "maximum",
            "minItems",
            "minimum",
            "multipleOf",
            "pattern",
            "title",
            "type",
        }
    ),
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}),
    all_required=True,
    recursion=True,
    keeps=lambda key, value: key != "pattern" or "(?" not in value,
    fits=_fits,
)


def _described(offer: Offer) -> Offer:
    """The offer with a shortened description, and the rest of it at its parameters."""
    text = offer.description
    if text is None or len(text) <= MAX_DESCRIPTION:
        return offer
    room = MAX_DESCRIPTION - len(_CONTINUED)
    cut = max(text.rfind(mark, 0, room) for mark in ("\n", ". ", " ")) + 1 or room
    rest = " ".join(filter(None, [text[cut:].strip(), offer.parameters.get("description", "")]))
    return replace(
        offer,
        description=text[:cut].rstrip() + _CONTINUED,
        parameters={**offer.parameters, "description": rest},
    )


def _function(offer: Offer) -> dict[str, Any]:
    offer = _described(offer)
    function: dict[str, Any] = {"name": offer.name}
    if offer.description is not None:
        function["description"] = offer.description
    function["parameters"] = offer.parameters
    return function


def _chat_tool(offer: Offer) -> dict[str, Any]:
    strict = {} if offer.strict is None else {"strict": offer.strict}
    return {"type": "function", "function": {**_function(offer), **strict}}


def _responses_tool(offer: Offer) -> dict[str, Any]:
    """`strict` is always given: without it, the API tries to make a schema strict itself."""
    tool = {"type": "function", **_function(offer), "strict": bool(offer.strict)}
    return {**tool, "defer_loading": True} if offer.deferred else tool


def _responses_tools(offers: Sequence[Offer], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The deferred tools of each mounted server in a namespace, whose name and text the model sees."""
    plain: list[dict[str, Any]] = []
    servers: dict[str, list[dict[str, Any]]] = {}
    for offer, tool in zip(offers, tools, strict=True):
        (servers.setdefault(offer.server, []) if offer.deferred and offer.server else plain).append(tool)
    taken = {tool["name"] for tool in tools}
    spaces = [_namespace(name, inside, taken) for name, inside in servers.items()]
    searching = [{"type": TOOL_SEARCH}] if any(offer.deferred for offer in offers) else []
    return [*plain, *spaces, *searching]


def _namespace(server: str, tools: list[dict[str, Any]], taken: set[str]) -> dict[str, Any]:
    """A namespace; the model calls a tool in it by the name of the tool."""
    name = base = re.sub(r"[^A-Za-z0-9_-]", "_", server)[:MAX_NAMESPACE]
    number = 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    names = ", ".join(tool["name"] for tool in tools)
    text = names if len(names) <= MAX_NAMES else f"{names[:MAX_NAMES].rpartition(', ')[0]}, …"
    told = f"{len(tools)} tool{'s' if len(tools) > 1 else ''} of the server {server}: {text}"
    return {"type": "namespace", "name": name, "description": told, "tools": tools}


def _chat_choice(requirement: ToolRequirement, name: str | None, strict: bool) -> Any:
    if name is not None:
        return {"type": "function", "function": {"name": name}}
    return "required" if requirement.kind == "at_least_one" else "auto"


def _responses_choice(requirement: ToolRequirement, name: str | None, strict: bool) -> Any:
    return {"type": "function", "name": name} if name is not None else _chat_choice(requirement, None, strict)


CHAT: Final = ProviderForm(
    title="OpenAI",
    names=re.compile(r"[A-Za-z0-9_-]{1,64}"),
    dialect=_DIALECT,
    parameters=portable,
    tool=_chat_tool,
    tools=lambda offers, tools: tools,
    choice=_chat_choice,
)

RESPONSES: Final = replace(
    CHAT,
    title="OpenAI Responses",
    defers=True,
    tool=_responses_tool,
    tools=_responses_tools,
    choice=_responses_choice,
)
