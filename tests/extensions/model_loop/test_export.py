import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionFunctionToolParam
from pydantic import BaseModel, TypeAdapter

from mcp_toolset import (
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolResult,
    Toolset,
    ToolView,
    tool,
)
from mcp_toolset.errors import DefinitionError
from mcp_toolset.rounds import ToolAvailability
from mcp_toolset.tools.validation import checks_of


async def nothing(call: ToolCall, context: ToolContext) -> ToolResult:
    return ToolResult.of_text("")


def binding(schema: dict[str, Any], *, name: str = "probe", description: str | None = None) -> ToolBinding:
    definition = ToolDefinition(name, description, schema)
    return ToolBinding(name, definition, nothing, checks_of(definition)[0])


def parameters(schema: dict[str, Any]) -> dict[str, Any]:
    (exported,) = ToolView([binding(schema)]).to_openai()
    return exported["function"]["parameters"]


def add(a: int, b: int = 0) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def erp_delete(id: str) -> None:
    """Delete a record."""


def test_o7_export_is_what_the_openai_library_takes():
    exported = Toolset(add).view().to_openai()
    TypeAdapter(list[ChatCompletionFunctionToolParam]).validate_python(exported, strict=True)
    function = exported[0]["function"]
    assert exported[0]["type"] == "function"
    assert (function["name"], function["description"]) == ("add", "Add two numbers.")
    assert function["parameters"]["properties"]["a"] == {"description": "The first.", "type": "integer"}
    assert function["parameters"]["required"] == ["a"]


def test_o7_export_keeps_the_order_and_the_choice_of_the_view():
    tools = Toolset(erp_delete, add).off("erp_delete")
    view = tools.view(ToolAvailability.default_plus("erp_delete"))
    assert [entry["function"]["name"] for entry in view.to_openai()] == ["add", "erp_delete"]
    assert [entry["function"]["name"] for entry in tools.view().to_openai()] == ["add"]


def test_x1_u59_deferred_tools_are_not_exported_and_not_lost_unseen():
    resident, hidden = binding({"type": "object"}), binding({"type": "object"}, name="hidden")
    view = ToolView([resident, replace(hidden, deferred=True)])
    with pytest.raises(DefinitionError, match=r"1 deferred tool \(hidden\).*deferred=False"):
        view.to_openai()
    exported = view.export("openai", deferred=False).tools
    assert [entry["function"]["name"] for entry in exported] == ["probe"]


@pytest.mark.parametrize("provider", ["openai", "openai_responses", "anthropic", "gemini"])
def test_u59_a_view_without_deferred_tools_says_so_when_it_is_exported(provider: Any):
    tools = Toolset(add, Toolset(erp_delete).deferred())
    view = tools.view()
    for made in (view, view.describe("add", "Add."), view.select(ToolAvailability.default())):
        with pytest.raises(DefinitionError, match=r"1 deferred tool \(erp_delete\)"):
            made.export(provider)
        assert list(made.export(provider, deferred=False).names) == ["add"]
        assert list(made.export(provider, deferred=True).names) == ["add"]
    chosen = view.select(ToolAvailability.only("add"))
    assert list(chosen.export(provider).names) == ["add"], "a choice is no loss"
    assert list(Toolset(add).view().export(provider).names) == ["add"]
    assert list(Toolset(add, Toolset(erp_delete).deferred().off()).view().export(provider).names) == ["add"]


def test_o7_a_tool_without_a_description_is_exported_without_one():
    (exported,) = ToolView([binding({"type": "object"})]).to_openai()
    assert "description" not in exported["function"]


def test_l13_an_object_schema_without_properties_gets_an_empty_one():
    assert parameters({"type": "object"}) == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("outer", "path"),
    [
        ({"properties": {"x": {"type": "object"}}}, ["properties", "x"]),
        ({"properties": {"x": {"type": ["object", "null"]}}}, ["properties", "x"]),
        ({"properties": {}, "additionalProperties": {"type": "object"}}, ["additionalProperties"]),
        ({"properties": {}, "$defs": {"X": {"type": "object"}}}, ["$defs", "X"]),
        ({"properties": {"x": {"type": "array", "items": {"type": "object"}}}}, ["properties", "x", "items"]),
        ({"properties": {"x": {"anyOf": [{"type": "object"}]}}}, ["properties", "x", "anyOf", 0]),
    ],
)
def test_l13_nested_object_schemas_get_properties_too(outer: dict[str, Any], path: list[Any]):
    found: Any = parameters({"type": "object", **outer})
    for step in path:
        found = found[step]
    assert found["properties"] == {}


def test_l13_data_inside_a_schema_is_left_as_it_is():
    data = {"type": "object", "$schema": "kept"}
    schema = {"type": "object", "properties": {"x": {"default": data, "enum": [data], "const": data}}}
    assert parameters(schema) == schema


def test_o7_schema_keyword_is_dropped_but_a_property_of_that_name_is_kept():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"$schema": {"type": "string"}},
    }
    assert parameters(schema) == {"type": "object", "properties": {"$schema": {"type": "string"}}}


def test_o7_a_model_parameter_keeps_its_definitions():
    class Place(BaseModel):
        city: str

    def weather(place: Place) -> str:
        return place.city

    (exported,) = Toolset(tool(weather)).view().to_openai()
    assert exported["function"]["parameters"]["$defs"]["Place"]["required"] == ["city"]


@pytest.mark.parametrize("name", ["with.dot", "x" * 65])
def test_o7_a_name_that_the_provider_refuses_is_an_error_with_a_mend_that_works(name: str):
    view = ToolView([binding({"type": "object"}, name=name)])
    with pytest.raises(DefinitionError, match="renamed") as refused:
        view.to_openai()
    mended = str(refused.value).split("': '")[1].split("'")[0]
    assert Toolset(tool(name=name)(add)).renamed({name: mended}).view().to_openai()


schemas = st.recursive(
    st.sampled_from(
        [{"type": "object"}, {"type": "string"}, {"type": ["object", "null"]}, {"$schema": "x"}, True]
    ),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["a", "properties", "$schema"]), inner).map(
            lambda properties: {"type": "object", "properties": properties}
        ),
        inner.map(lambda schema: {"type": "array", "items": schema, "default": [{"type": "object"}]}),
        st.lists(inner, min_size=1).map(lambda schemas: {"anyOf": schemas}),
    ),
    max_leaves=12,
)


@given(schemas)
def test_o7_definitions_are_untouched_and_share_nothing_with_the_export(inner: Any):
    schema = {"type": "object", "additionalProperties": inner, "examples": [{"a": [1]}]}
    bound = _unchecked(schema)
    before = deepcopy(schema)
    (exported,) = ToolView([bound]).to_openai()
    assert schema == before
    _spoil(exported)
    assert schema == before
    assert json.loads(json.dumps(schema)) == before


def _unchecked(schema: dict[str, Any]) -> ToolBinding:
    """The schemas here need not be usable as checks; only the definition is under test."""
    return ToolBinding(
        "probe", ToolDefinition("probe", None, schema), nothing, binding({"type": "object"}).arguments
    )


def _spoil(value: Any) -> None:
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _spoil(child)
    if isinstance(value, dict | list):
        value.clear()
