"""From a `ToolView` to an `Export`: names, schemas and requirement within a provider's limits.

Everything is copied: an export never changes a definition or the view.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.model_loop.schema import (
    NullsLeftOut,
    Schema,
    StrictDialect,
    WayBack,
    both,
    kinds_of,
    lost,
    mapped,
    portable,
    provider_names,
    recursive_references,
    resolved,
    rooted,
    sizes_of,
    strict_schema,
    with_definitions,
    with_legal_properties,
    with_note,
)
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.definition import thawed
from mcp_toolset.tools.export import Export, Provider, ToolMark, ToolRequirement

FOUND_META_KEY: Final = "mcp-toolset/found"  # In the `_meta` of a result: the tools that a search found.


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool on its way into a request, under the name that the provider accepts."""

    name: str
    description: str | None
    parameters: dict[str, Any]  # The input schema in the provider's form, for this request only.
    strict: bool | None = None  # True if the schema is enforced; `None` if strict mode was not requested.
    server: str = ""  # The mounted server that it is from; empty for a tool of the application.
    deferred: bool = False  # True if the provider's own search finds the tool.


def within_any_budget(schemas: Sequence[Schema | None]) -> list[bool]:
    return [schema is not None for schema in schemas]


@dataclass(frozen=True, slots=True)
class ProviderForm:
    """The rules of one provider."""

    title: str  # The provider's name, for messages.
    names: re.Pattern[str]  # The tool names it accepts.
    tool: Callable[[Offer], dict[str, Any]]  # Shapes one tool.
    # Shapes the list of all tools.
    tools: Callable[[Sequence[Offer], list[dict[str, Any]]], list[dict[str, Any]]]
    # The tool choice for a requirement, the required tool's exported name, and strict mode or not.
    choice: Callable[[ToolRequirement, str | None, bool], Any]
    parameters: Callable[[Schema], dict[str, Any]]  # Shapes an object schema without a union at its root.
    reserved: frozenset[str] = frozenset()  # Names of its own tools in the same request.
    properties: re.Pattern[str] | None = None  # The argument names it accepts, if it limits them.
    defers: bool = False  # True if it has its own search for deferred tools.
    # The part of JSON Schema that it enforces in strict mode, if that is smaller.
    dialect: StrictDialect | None = None
    # Selects the strict schemas that one request may have.
    budget: Callable[[Sequence[Schema | None]], list[bool]] = within_any_budget
    # The part of a request that offers the tools.
    request: Callable[[list[dict[str, Any]], Any], Mapping[str, Any]] = lambda tools, choice: {
        "tools": tools,
        "tool_choice": choice,
    }


MAX_DESCRIPTION: Final = 1024  # The rest continues in the description of the parameters.
TOOL_SEARCH: Final = "tool_search"  # The type of the search tool, also of one that the client runs.
MAX_NAMESPACE: Final = 60  # The characters of a namespace's name that come from the server's.
MAX_NAMES: Final = 300  # Characters of the names of tools in the description of a namespace.

MAX_PROPERTIES: Final = 5000
MAX_NESTING: Final = 10
MAX_ENUM_VALUES: Final = 1000

_CONTINUED: Final = " (Continued in the description of the parameters.)"


def _fits_openai(schema: Schema) -> bool:
    properties, nesting, values = sizes_of(schema)
    return properties <= MAX_PROPERTIES and nesting <= MAX_NESTING and values <= MAX_ENUM_VALUES


_OPENAI_STRICT: Final = StrictDialect(
    kept=frozenset(
        {
            *("const", "description", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems"),
            *("maximum", "minItems", "minimum", "multipleOf", "pattern", "title", "type"),
        }
    ),
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}),
    all_required=True,
    recursion=True,
    keeps=lambda key, value: key != "pattern" or "(?" not in value,
    fits=_fits_openai,
)


def _described(offer: Offer) -> Offer:
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
    description = f"{len(tools)} tool{'s' if len(tools) > 1 else ''} of the server {server}: {text}"
    return {"type": "namespace", "name": name, "description": description, "tools": tools}


def _chat_choice(requirement: ToolRequirement, name: str | None, strict: bool) -> Any:
    if name is not None:
        return {"type": "function", "function": {"name": name}}
    return "required" if requirement.kind == "at_least_one" else "auto"


def _responses_choice(requirement: ToolRequirement, name: str | None, strict: bool) -> Any:
    return {"type": "function", "name": name} if name is not None else _chat_choice(requirement, None, strict)


CHAT: Final = ProviderForm(
    title="OpenAI",
    names=re.compile(r"[A-Za-z0-9_-]{1,64}"),
    dialect=_OPENAI_STRICT,
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


SEARCH_TOOL: Final = "tool_search_tool_bm25"  # The name of the provider's own search for deferred tools.

MAX_STRICT_TOOLS: Final = 20
MAX_OPTIONAL: Final = 24
MAX_UNIONS: Final = 16

_ANTHROPIC_STRICT: Final = StrictDialect(
    kept=frozenset({"const", "default", "description", "enum", "format", "minItems", "title", "type"}),
    formats=frozenset(
        {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
    ),
    all_required=False,
    recursion=False,
    keeps=lambda key, value: key != "minItems" or value in (0, 1),
)


def _anthropic_budget(schemas: Sequence[Schema | None]) -> list[bool]:
    left = [MAX_STRICT_TOOLS, MAX_OPTIONAL, MAX_UNIONS]
    chosen: list[bool] = []
    for schema in schemas:
        costs = None if schema is None else [1, *_anthropic_costs(schema)]
        fits = costs is not None and all(cost <= room for cost, room in zip(costs, left, strict=True))
        if costs is not None and fits:
            left = [room - cost for cost, room in zip(costs, left, strict=True)]
        chosen.append(fits)
    return chosen


def _anthropic_costs(schema: Any) -> tuple[int, int]:
    if not isinstance(schema, Mapping):
        return 0, 0
    keywords = cast("Schema", schema)
    inside: list[tuple[int, int]] = []
    mapped(keywords, lambda inner: inside.append(_anthropic_costs(inner)))
    optional = len(keywords.get("properties", ())) - len(keywords.get("required", ()))
    union = "anyOf" in keywords or len(kinds_of(keywords)) > 1
    return optional + sum(cost[0] for cost in inside), union + sum(cost[1] for cost in inside)


def _anthropic_tool(offer: Offer) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": offer.name}
    if offer.description is not None:
        tool["description"] = offer.description
    tool["input_schema"] = offer.parameters
    if offer.strict:
        tool["strict"] = True
    if offer.deferred:
        tool["defer_loading"] = True
    return tool


def _anthropic_tools(offers: Sequence[Offer], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    search = {"type": "tool_search_tool_bm25_20251119", "name": SEARCH_TOOL}
    return [search, *tools] if any(offer.deferred for offer in offers) else tools


def _anthropic_choice(requirement: ToolRequirement, name: str | None, strict: bool) -> Any:
    if name is not None:
        return {"type": "tool", "name": name}
    return {"type": "any" if requirement.kind == "at_least_one" else "auto"}


MESSAGES: Final = ProviderForm(
    title="Anthropic",
    names=re.compile(r"[A-Za-z0-9_-]{1,128}"),
    reserved=frozenset({SEARCH_TOOL}),
    properties=re.compile(r"[A-Za-z0-9_.-]{1,64}"),
    defers=True,
    dialect=_ANTHROPIC_STRICT,
    budget=_anthropic_budget,
    parameters=portable,
    tool=_anthropic_tool,
    tools=_anthropic_tools,
    choice=_anthropic_choice,
)


MAX_INLINED: Final = 500  # References that are replaced by their targets; the others stay.

_GEMINI_KEPT: Final = frozenset(
    {
        *("additionalProperties", "anyOf", "description", "enum", "format", "items", "maxItems", "maximum"),
        *("minItems", "minimum", "prefixItems", "properties", "required", "title", "type"),
    }
)
_GEMINI_FORMATS: Final = frozenset({"date-time", "date", "time", "duration"})


def _gemini_parameters(schema: Schema) -> dict[str, Any]:
    """The schema in the part of JSON Schema that the field accepts, references replaced where possible."""
    shaping = _GeminiSchema(schema)
    made = shaping.shaped(schema)
    definitions = shaping.definitions()
    return {**made, "$defs": definitions} if definitions else made


class _GeminiSchema:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._recursive = recursive_references(root)
        self._inlined = 0
        self._kept: dict[str, str] = {}

    def definitions(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        while missing := [reference for reference in self._kept if self._kept[reference] not in made]:
            for reference in missing:
                made[self._kept[reference]] = self.shaped(resolved(self._root, reference))
        return made

    def shaped(self, schema: Any) -> Any:
        if not isinstance(schema, Mapping):
            return {} if schema is not False else {"description": "No value is valid here."}
        given = _gemini_plain(cast("Schema", schema), self._root)
        if isinstance(given.get("$ref"), str):
            return self._referenced(given["$ref"], given)
        made = mapped({key: value for key, value in given.items() if _gemini_keeps(key, value)}, self.shaped)
        if isinstance(given.get("additionalProperties"), bool):
            made["additionalProperties"] = given["additionalProperties"]
        if "object" in kinds_of(made):
            made.setdefault("properties", {})
        return with_note(made, lost(given, made))

    def _referenced(self, reference: str, given: Schema) -> Any:
        if reference in self._recursive or self._inlined >= MAX_INLINED:
            return {"$ref": f"#/$defs/{self._name(reference)}"}
        self._inlined += 1
        target = resolved(self._root, reference)
        beside = {key: value for key, value in given.items() if key != "$ref"}
        return self.shaped({**cast("Schema", target), **beside} if isinstance(target, Mapping) else beside)

    def _name(self, reference: str) -> str:
        name = reference.rsplit("/", 1)[1]
        if reference not in self._kept and name in self._kept.values():
            name = f"{name}_{len(self._kept)}"
        return self._kept.setdefault(reference, name)


def _gemini_keeps(key: str, value: Any) -> bool:
    if key == "format":
        return value in _GEMINI_FORMATS
    if key == "enum":
        return all(type(item) in (str, int, float) for item in value)
    return key in _GEMINI_KEPT and (key != "items" or not isinstance(value, list))


def _gemini_plain(schema: Schema, root: Schema) -> Schema:
    """The schema with `const`, `oneOf` and `allOf` in forms that the field accepts."""
    plain = dict(schema)
    if type(plain.get("const")) in (str, int, float):
        plain.setdefault("enum", [plain.pop("const")])
    if "oneOf" in plain and "anyOf" not in plain:
        plain["anyOf"] = plain.pop("oneOf")
    for part in plain.pop("allOf", ()):
        if isinstance(part, Mapping):
            plain = both(plain, dict(_gemini_plain(_gemini_target(cast("Schema", part), root), root)))
    return plain


def _gemini_target(schema: Schema, root: Schema) -> Schema:
    target = resolved(root, schema["$ref"]) if "$ref" in schema else None
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**cast("Schema", target), **beside} if isinstance(target, Mapping) else schema


def _gemini_tool(offer: Offer) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": offer.name}
    if offer.description is not None:
        tool["description"] = offer.description
    return {**tool, "parametersJsonSchema": offer.parameters}


def _gemini_choice(requirement: ToolRequirement, name: str | None, strict: bool) -> Any:
    """`VALIDATED` lets the model answer without a call, and makes a call follow its schema."""
    if name is not None:
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [name]}}
    optional = "VALIDATED" if strict else "AUTO"
    return {"functionCallingConfig": {"mode": "ANY" if requirement.kind == "at_least_one" else optional}}


FUNCTIONS: Final = ProviderForm(
    title="Gemini",
    names=re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}"),
    properties=re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}"),
    parameters=_gemini_parameters,
    tool=_gemini_tool,
    tools=lambda offers, tools: [{"functionDeclarations": tools}] if tools else [],
    choice=_gemini_choice,
    request=lambda tools, choice: {"tools": tools, "toolConfig": choice},
)


_SHOWN: Final = 5  # Names in a message.

FORMS: Final[Mapping[Provider, ProviderForm]] = MappingProxyType(
    {"openai": CHAT, "openai_responses": RESPONSES, "anthropic": MESSAGES, "gemini": FUNCTIONS}
)


@dataclass(frozen=True, slots=True)
class _ToolForm:
    """A tool with its schema as a plain object, with argument names that the provider accepts."""

    binding: ToolBinding
    name: str
    schema: Schema
    strict: dict[str, Any] | None
    way_back: WayBack | None


def export(
    view: Mapping[str, ToolBinding],
    provider: Provider,
    *,
    requirement: ToolRequirement | None = None,
    strict: bool = False,
    deferred: bool | None = None,
    left_out: Sequence[str] = (),
) -> Export:
    """A view's tools for one request, without the deferred tools `left_out`; see `ToolView.export`."""
    form = _form(provider)
    if deferred is None:
        _check_reach(view, form, provider, left_out)
    required = requirement or ToolRequirement.optional()
    bindings = _chosen(view, form, deferred is not False)
    met_by = required.resolve({binding.name: binding for binding in bindings})
    named = met_by[0] if required.kind == "specific" else None
    table = provider_names((binding.name for binding in bindings), form.names, form.reserved)
    shaped = [_shaped(binding, table[binding.name], form, strict) for binding in bindings]
    enforced = form.budget([tool.strict for tool in shaped])
    offers = [
        _offer(tool, form, strict, is_strict, resident=tool.binding.name == named)
        for tool, is_strict in zip(shaped, enforced, strict=True)
    ]
    tools = form.tools(offers, [form.tool(offer) for offer in offers])
    choice = form.choice(required, None if named is None else table[named], strict)
    return Export(
        provider=provider,
        tools=tools,
        tool_choice=choice,
        names=MappingProxyType({name: public for public, name in table.items()}),
        strict=frozenset(offer.name for offer in offers if offer.strict),
        deferred={binding.name: ToolMark.of(binding) for binding in bindings if binding.deferred},
        view=view,
        _request=form.request(tools, choice),
        _ways_back=_ways_back(shaped, enforced, form),
    )


def _check_reach(
    view: Mapping[str, ToolBinding], form: ProviderForm, provider: Provider, left_out: Sequence[str]
) -> None:
    """Refuse to leave out deferred tools when nothing says that this is meant."""
    lost = [*left_out, *(name for name, one in view.items() if one.deferred and not form.defers)]
    if not lost:
        return
    some = ", ".join(lost[:_SHOWN]) + (", …" if len(lost) > _SHOWN else "")
    native = ".view(deferred=True) offers them through its own search; " if form.defers else ""
    count = "1 deferred tool" if len(lost) == 1 else f"{len(lost)} deferred tools"
    raise DefinitionError(
        f"{form.title} would not see {count} ({some}): {native}"
        f"ToolSearch(toolset).export({provider!r}) lets the model search for them here; "
        f"export({provider!r}, deferred=False) leaves them out"
    )


def plain_tools(
    view: Mapping[str, ToolBinding], provider: Provider, left_out: Sequence[str] = ()
) -> list[dict[str, Any]]:
    form = _form(provider)
    exported = export(view, provider, left_out=left_out)
    for name, public in exported.names.items():
        if name != public:
            raise DefinitionError(
                f"tool {public!r} cannot be offered to {form.title} under this name; use "
                f".renamed({{{public!r}: {name!r}}}) on its toolset, or export({provider!r}), which keeps "
                "a table of names"
            )
        if exported.renames(name):
            raise DefinitionError(
                f"tool {public!r} has an argument whose name {form.title} refuses; use "
                f"export({provider!r}), which keeps the way back"
            )
    return exported.tools


def _form(provider: Provider) -> ProviderForm:
    form = FORMS.get(provider)
    if form is None:
        raise DefinitionError(f"there is no provider {provider!r}; use one of {', '.join(FORMS)}")
    return form


def _chosen(view: Mapping[str, ToolBinding], form: ProviderForm, deferred: bool) -> list[ToolBinding]:
    searchable = deferred and form.defers
    chosen = [binding for binding in view.values() if searchable or not binding.deferred]
    unseen = [binding.name for binding in chosen if binding.contract is not None]
    if unseen:
        raise DefinitionError(
            f"{len(unseen)} tools are listed by manifests, such as {unseen[0]!r}; a provider must be sent "
            "schemas; leave them out with view() or export(…, deferred=False), or let the model find them "
            "with the search_tools of ToolsetServer"
        )
    return chosen


def _shaped(binding: ToolBinding, name: str, form: ProviderForm, strict: bool) -> _ToolForm:
    schema = rooted(with_definitions(thawed(binding.definition.input_schema)))
    way_back = None
    if form.properties is not None:
        schema, way_back = with_legal_properties(schema, form.properties)
    made = strict_schema(schema, form.dialect) if strict and form.dialect is not None else None
    return _ToolForm(binding, name, schema, made, way_back)


def _offer(tool: _ToolForm, form: ProviderForm, strict: bool, enforced: bool, *, resident: bool) -> Offer:
    """One tool; a required tool is not deferred, for there is nothing to search for."""
    binding = tool.binding
    return Offer(
        name=tool.name,
        description=binding.definition.description,
        parameters=tool.strict if enforced and tool.strict is not None else form.parameters(tool.schema),
        strict=enforced if strict and form.dialect is not None else None,
        server=binding.source,
        deferred=binding.deferred and not resident,
    )


def _ways_back(shaped: list[_ToolForm], enforced: list[bool], form: ProviderForm) -> dict[str, WayBack]:
    ways: dict[str, WayBack] = {}
    nullable = form.dialect is not None and form.dialect.all_required
    for tool, is_strict in zip(shaped, enforced, strict=True):
        if tool.way_back is not None:
            ways[tool.name] = tool.way_back
        elif is_strict and nullable:
            ways[tool.name] = NullsLeftOut(tool.schema)
    return ways


NAME, PART = "forms", sys.modules[__name__]
