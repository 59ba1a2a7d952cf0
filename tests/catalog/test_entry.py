from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset import ToolDefinition
from mcp_toolset.search import CatalogEntry


def signature(schema: dict[str, Any]) -> str:
    return CatalogEntry(ToolDefinition("run", None, schema), "run").signature


def line(text: str) -> str:
    """The text of a hit for a tool with this description."""
    return CatalogEntry(ToolDefinition("run", text), "run").description_line


def test_h21_required_parameters_come_first_and_the_rest_are_marked() -> None:
    properties = {"body": {"type": "string"}, "owner": {"type": "string"}, "tags": {"type": "array"}}
    shown = signature({"type": "object", "properties": properties, "required": ["owner"]})
    assert shown == "run(owner: string, body?: string, tags?: any[])"


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "integer"}, "integer"),
        ({"type": ["null", "string"]}, "string|null"),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a"|"b")[]'),
        ({"enum": ["asc", "desc", None]}, '"asc"|"desc"|null'),
        ({"const": 3}, "3"),
        ({"type": "string", "enum": [str(n) for n in range(50)]}, "string"),
        ({"enum": [{"a": 1}]}, "any"),
        ({"enum": [10**5000]}, "any"),
        ({"anyOf": [{"type": "null"}, {"type": "number"}, {"type": "number"}]}, "number|null"),
        ({"$ref": "#/$defs/Address"}, "Address"),
        ({"properties": {}}, "object"),
        ({"type": "x" * 100}, "any"),
        ({"type": 3, "items": 4, "anyOf": 5, "enum": 6, "$ref": 7}, "any"),
        (True, "any"),
        (None, "any"),
    ],
)
def test_h21_types_have_short_names(schema: object, name: str) -> None:
    assert signature({"properties": {"a": schema}}) == f"run(a?: {name})"


def test_h21_a_long_list_of_parameters_ends_in_an_ellipsis() -> None:
    shown = signature({"properties": {f"parameter_{n}": {"type": "string"} for n in range(500)}})
    assert len(shown) < 420
    assert shown.endswith(": string, …)")


@pytest.mark.parametrize(
    "schema", [{}, {"properties": []}, {"properties": {"a": 1}, "required": 5}, {"required": [{}]}]
)
def test_f17_a_malformed_schema_is_passed_over(schema: dict[str, Any]) -> None:
    assert signature(schema) in {"run()", "run(a?: any)"}
    assert [name for name, _ in CatalogEntry(ToolDefinition("run", None, schema), "run").parameters()] in [
        [],
        ["a"],
    ]


def test_h19_parameters_of_nested_objects_are_read_to_a_depth() -> None:
    deep: dict[str, Any] = {"type": "string", "description": "bottom"}
    for _ in range(5_000):
        deep = {"type": "array", "items": deep}
    inner = {"type": "object", "properties": {"city": {"description": "Where"}}}
    schema = {"properties": {"deep": deep, "address": inner, "people": {"type": "array", "items": inner}}}
    entry = CatalogEntry(ToolDefinition("run", None, schema), "run")
    assert list(entry.parameters()) == [
        ("deep", ""),
        ("address", ""),
        ("city", "Where"),
        ("people", ""),
        ("city", "Where"),
    ]
    assert entry.signature == "run(deep?: any[][][], address?: object, people?: object[])"


def test_h21_a_line_is_cut_between_words() -> None:
    assert line("seven77 " * 100) == " ".join(["seven77"] * 20) + "…"
    assert line("seven77 " * 20) == " ".join(["seven77"] * 20)


def test_h21_a_line_is_not_cut_inside_a_grapheme() -> None:
    family = "👨\u200d👩\u200d👧"
    assert line(family * 50).rstrip("…") == family * (159 // len(family))
    assert line("e\u0301" * 200).rstrip("…") == "e\u0301" * 79


def test_f23_what_hides_does_not_reach_a_hit() -> None:
    assert line("a\x1b[31m \u202eb\ud800\n\u200bc") == "a b c"
    assert signature({"properties": {"to\nken\u202e": {}}}) == "run(to ken?: any)"


@given(st.text(st.characters(), max_size=2_000))
def test_h21_a_line_is_one_line_within_its_limit(text: str) -> None:
    shown = line(text)
    assert len(shown) <= 160
    assert len(shown.splitlines()) <= 1
    shown.encode()
