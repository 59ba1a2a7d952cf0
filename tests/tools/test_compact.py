import json
from copy import deepcopy
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from mcp_toolset import Tool, Toolset, compact_listing, help_text, tool


class Place(BaseModel):
    city: str


@tool(read_only=True)
def weather(place: Place, days: int = 3, unit: Literal["c", "f"] = "c", tags: list[str] | None = None) -> str:
    """The weather at a place. It comes from a station nearby.

    Not a forecast.
    """
    return place.city


def ping() -> None:
    """Ping."""


VIEW = Toolset(weather, ping).prefixed("x").view()


def test_a18_a_stub_has_the_real_name_one_line_and_a_hint():
    stub, other = compact_listing(VIEW)
    assert stub.name == "x_weather"
    assert stub.description == (
        "The weather at a place. "
        'Arguments: place: object, days?: integer, unit?: "c" | "f", tags?: string[] | null'
    )
    assert stub.input_schema == {"type": "object", "properties": {}}
    assert stub.read_only and not other.read_only
    assert other.description == "Ping. Arguments: none"


def test_a18_the_listing_is_smaller_and_help_has_everything():
    full = json.dumps([binding.to_wire() for binding in VIEW.values()])
    assert len(json.dumps([stub.to_wire() for stub in compact_listing(VIEW)])) < len(full)
    text = help_text(VIEW, ["x_weather"])
    definition = VIEW["x_weather"].definition
    assert text.startswith("# x_weather\nThe weather at a place.") and "Not a forecast." in text
    assert json.dumps(definition.input_schema) in text and json.dumps(definition.output_schema) in text


def test_a18_asking_for_help_changes_no_listing_and_no_definition():
    before, wires = compact_listing(VIEW), deepcopy([binding.to_wire() for binding in VIEW.values()])
    help_text(VIEW, VIEW)
    assert compact_listing(VIEW) == before
    assert [binding.to_wire() for binding in VIEW.values()] == wires


def test_a18_help_says_each_tool_once_and_says_what_it_does_not_know():
    text = help_text(VIEW, ["x_ping", "nothing", "x_ping"])
    assert text.count("# x_ping") == 1 and text.endswith("Unknown tool: nothing")
    assert help_text(VIEW, []) == "Name at least one tool."


def told(schema: dict[str, Any], description: str | None = "Say.") -> str:
    """What the stub of a tool says."""
    made = Tool.from_schema("say", {"type": "object", **schema}, description=description)
    return compact_listing(Toolset(made).view())[0].description or ""


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({}, ""),
        ({"properties": {"a": True}}, "a?: any"),
        ({"properties": {"a": {"enum": list(range(9))}}, "required": ["a"]}, "a: 0 | 1 | 2 | 3 | …"),
        ({"properties": {"a": {"const": "x"}}}, 'a?: "x"'),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "a?: string | null"),
        (
            {"properties": {"a": {"type": "array", "items": {"type": ["string", "null"]}}}},
            "a?: (string | null)[]",
        ),
        (
            {
                "properties": {"a": {"type": "object"}, "b": {"$ref": "#/$defs/B"}},
                "$defs": {"B": {"type": "object"}},
            },
            "a?: object, b?: object",
        ),
    ],
)
def test_a18_hints_name_types_briefly(schema: dict[str, Any], hint: str):
    assert told(schema) == f"Say. Arguments: {hint or 'none'}"


def test_a18_many_arguments_are_counted_instead():
    schema = {"properties": {f"argument_{n}": {"type": "string"} for n in range(40)}}
    hint = told(schema).removeprefix("Say. Arguments: ")
    assert len(hint) <= 160 and hint.startswith("argument_0?: string, ") and hint.endswith(" more")
    assert told({"properties": {"x" * 300: {}}}) == "Say. Arguments: 1 argument"


@given(st.none() | st.text())
def test_a18_a_summary_is_one_short_line(description: str | None):
    summary = told({}, description).removesuffix("Arguments: none").strip()
    assert len(summary) <= 120 and "\n" not in summary
