"""What is said of a tool cannot be changed in place: exports, digest and validator always agree."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from mcp_toolset import Tool, ToolDefinition, Toolset, tool
from mcp_toolset.arguments import hide
from mcp_toolset.tools.definition import frozen, thawed

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Bern", "Rome"]}},
    "required": ["city"],
}


@tool(meta={"a": {"b": 1}}, read_only=True)
def weather(city: str, days: int = 1) -> dict[str, int]:
    """Tell the weather."""
    return {city: days}


def mutations(schema: Any) -> list[Any]:
    return [
        lambda: schema.update(x=1),
        lambda: schema.clear(),
        lambda: schema.setdefault("x", 1),
        lambda: schema["properties"].pop("city"),
        lambda: schema["properties"]["city"].__setitem__("type", "integer"),
        lambda: schema["properties"].__delitem__("city"),
        lambda: schema["required"].append("days"),
        lambda: schema["required"].clear(),
        lambda: schema["required"].__iadd__(["x"]),
        lambda: schema["required"].__setitem__(0, "x"),
        lambda: schema.__ior__({"x": 1}),
    ]


def test_u30_a_schema_cannot_be_changed_in_place_wherever_it_is_reached():
    made = Tool.from_schema("weather", SCHEMA, lambda given: given)
    moved = Toolset(weather).with_arguments({"weather": {"days": hide()}}).view()["weather"]
    reached = [
        made.input_schema,
        made.definition.input_schema,
        Toolset(made).prefixed("x").view()["x_weather"].definition.input_schema,
        weather.input_schema,
        moved.definition.input_schema,
        ToolDefinition.from_wire({"name": "weather", "inputSchema": SCHEMA}).input_schema,
    ]
    for schema in reached:
        before = json.dumps(schema)
        for change in mutations(schema):
            with pytest.raises(TypeError, match="cannot be changed in place"):
                change()
        assert json.dumps(schema) == before
    for part in (weather.definition.meta, weather.definition.annotations, weather.output_schema):
        with pytest.raises(TypeError):
            part.update(x=1)  # type: ignore[union-attr]


@pytest.mark.needs("model_loop")
def test_u30_what_a_tool_was_made_of_and_what_it_gives_are_the_applications_own():
    given: dict[str, Any] = copy.deepcopy(SCHEMA)
    made = Tool.from_schema("weather", given, lambda given: given)
    digest, view = made.definition.digest, Toolset(made).view()
    given["properties"]["city"]["type"] = "integer"
    for wire in (view["weather"].to_wire(), made.to_data()["definition"]):
        wire["inputSchema"]["properties"]["city"]["enum"].append("Oslo")
        wire["inputSchema"]["required"].clear()
    for tools in (view.to_openai(), view.to_anthropic(), view.to_gemini(), view.to_openai_responses()):
        text = json.dumps(tools)
        assert "Oslo" not in text and '"integer"' not in text
        tools[0].clear()
    exported = view.export("openai", strict=True).tools[0]["function"]["parameters"]
    exported["properties"]["city"]["enum"].append("Oslo")
    assert made.definition.digest == digest
    assert ToolDefinition.from_wire(made.definition.to_wire()).digest == digest
    assert view["weather"].arguments.is_valid({"city": "Bern"})
    assert not view["weather"].arguments.is_valid({"city": "Oslo"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_u30_frozen_data_reads_compares_and_is_written_like_the_data_that_it_was_made_of(value: Any):
    made = frozen(value)
    assert made == value and thawed(made) == value and frozen(made) is made
    assert to_json(made) == to_json(value) and json.dumps(made) == json.dumps(value)
    assert pickle.loads(pickle.dumps(made)) == value
    for plain in (copy.deepcopy(made), thawed(made)):
        assert plain == value and type(plain) is type(value)
    if isinstance(value, dict | list):
        assert type(copy.copy(made)) is type(made.copy()) is type(value)
