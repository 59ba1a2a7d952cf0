"""From a `ToolView` to an `Export`: names, schemas and requirement within a provider's limits.

Everything is copied: an export never changes a definition or the view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.model_loop.forms.providers import (
    CHAT,
    FUNCTIONS,
    MESSAGES,
    RESPONSES,
    Offer,
    ProviderForm,
)
from mcp_toolset.extensions.model_loop.forms.schema import Schema, rooted, with_definitions
from mcp_toolset.extensions.model_loop.forms.strict import (
    NullsLeftOut,
    WayBack,
    provider_names,
    strict_schema,
    with_legal_properties,
)
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.core.definition import thawed
from mcp_toolset.tools.view.export import Export, Provider, ToolMark, ToolRequirement

_SHOWN: Final = 5  # Names in a message.

FORMS: Final[Mapping[Provider, ProviderForm]] = MappingProxyType(
    {"openai": CHAT, "openai_responses": RESPONSES, "anthropic": MESSAGES, "gemini": FUNCTIONS}
)


@dataclass(frozen=True, slots=True)
class _Shaped:
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


def _shaped(binding: ToolBinding, name: str, form: ProviderForm, strict: bool) -> _Shaped:
    schema = rooted(with_definitions(thawed(binding.definition.input_schema)))
    way_back = None
    if form.properties is not None:
        schema, way_back = with_legal_properties(schema, form.properties)
    made = strict_schema(schema, form.dialect) if strict and form.dialect is not None else None
    return _Shaped(binding, name, schema, made, way_back)


def _offer(tool: _Shaped, form: ProviderForm, strict: bool, enforced: bool, *, resident: bool) -> Offer:
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


def _ways_back(shaped: list[_Shaped], enforced: list[bool], form: ProviderForm) -> dict[str, WayBack]:
    found: dict[str, WayBack] = {}
    nullable = form.dialect is not None and form.dialect.all_required
    for tool, is_strict in zip(shaped, enforced, strict=True):
        if tool.way_back is not None:
            found[tool.name] = tool.way_back
        elif is_strict and nullable:
            found[tool.name] = NullsLeftOut(tool.schema)
    return found
