"""A schema that is told to be simple always compiles, and only when ordinary values do not settle it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.validation import SchemaCheck, is_simple, surely_fits

KEYWORDS = (
    *("$schema", "$ref", "title", "description", "format", "pattern", "type", "properties", "required"),
    *("items", "additionalProperties", "anyOf", "allOf", "enum", "const", "default", "uniqueItems"),
    *("minLength", "maxItems", "minimum", "exclusiveMaximum", "x-header"),
)
DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "http://json-schema.org/draft-07/schema#",
    "other",
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["", "a", "string", "integer", "ü\n", "\ud800", "[", *DIALECTS])
)


def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with keywords of JSON Schema or other names, and lists."""
    names = st.sampled_from([*KEYWORDS, "a", "\ud800"])
    return st.dictionaries(names, inner, max_size=4) | st.lists(inner, max_size=3)


anything = st.recursive(scalars, around, max_leaves=12)


def strictly_compiles(schema: Any) -> bool:
    try:
        jsonschema_rs.validator_for(schema, validate_formats=False, offline=True)
    except (ValueError, jsonschema_rs.ValidationError):
        return False
    return True


@given(st.dictionaries(st.sampled_from(KEYWORDS), anything, max_size=4))
def test_what_is_simple_compiles(schema: dict[str, Any]) -> None:
    assert not is_simple(schema) or strictly_compiles(schema)


SIMPLE: list[dict[str, Any]] = [
    {},
    {"type": "object", "properties": {"a": {"type": ["string", "null"], "default": None, "title": "ü"}}},
    {"properties": {"a": {"items": {"anyOf": [{"enum": [1, "x"]}, True]}}}, "required": ["a", "b"]},
    {"$schema": DIALECTS[1], "additionalProperties": False, "default": {}},
    {"minLength": 1, "maxItems": 0, "minimum": 0.5, "uniqueItems": True, "const": 1.5, "format": "date"},
]


@pytest.mark.parametrize("schema", SIMPLE)
def test_plain_schemas_are_simple(schema: dict[str, Any]) -> None:
    assert is_simple(schema)
    assert strictly_compiles(schema)


@pytest.mark.parametrize(
    "keyword",
    [
        {"type": "text"},
        {"type": []},
        {"type": ["null", "null"]},
        {"type": {}},
        {"required": ["a", "a"]},
        {"required": "a"},
        {"properties": []},
        {"properties": {"a": 1}},
        {"properties": {"\ud800": {}}},
        {"items": []},
        {"anyOf": []},
        {"enum": "a"},
        {"minLength": -1},
        {"maxItems": 1.5},
        {"minimum": "1"},
        {"description": "\udfff"},
    ],
)
def test_a_keyword_that_a_compiler_refuses_is_refused_at_once(keyword: dict[str, Any]) -> None:
    assert not is_simple(keyword)
    with pytest.raises(DefinitionError):
        SchemaCheck({"type": "object", "properties": {"x": keyword}}, tool="probe", part="inputSchema")


TYPED = st.recursive(
    st.sampled_from(
        [
            *(
                {"type": kind}
                for kind in ("string", "integer", "number", "boolean", "null", "array", "object")
            ),
            {"type": "string", "maxLength": 1},
            {"type": "string", "minLength": 2, "title": "text"},
            {"type": "integer", "minimum": 0, "maximum": 5, "default": 1},
            {"type": "number", "minimum": 0.5},
            {"type": ["string", "null"]},
            {"type": "string", "enum": ["a"]},
            {},
        ]
    ),
    lambda inner: (
        st.builds(lambda one: {"type": "array", "items": one, "maxItems": 2}, inner)
        | st.builds(lambda one, other: {"anyOf": [one, other], "default": None}, inner, inner)
        | st.builds(
            lambda one, other, extra: {
                "type": "object",
                "properties": {"a": one, "": other},
                "required": ["a"],
                **extra,
            },
            inner,
            inner,
            st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": True}]),
        )
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    scalars | st.integers(-2, 7),
    lambda inner: st.dictionaries(st.sampled_from(["a", "", "\ud800"]), inner) | st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(TYPED, VALUES)
def test_what_surely_fits_fits(schema: dict[str, Any], value: Any) -> None:
    assert is_simple(schema)
    if surely_fits(schema, value):
        validator = jsonschema_rs.validator_for(schema, validate_formats=False, offline=True)
        assert validator.is_valid(value)


def test_ordinary_arguments_surely_fit() -> None:
    schema = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "maxLength": 5},
            "limit": {"type": "integer", "minimum": 1, "default": 10},
            "ids": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert surely_fits(schema, {"query": "x", "limit": 3, "ids": ["a"]})
    assert surely_fits(schema, {"query": "x", "ids": None})
    for wrong in (
        {},
        {"query": "too long"},
        {"query": "x", "limit": 0},
        {"query": "x", "more": 1},
        {"query": 1},
    ):
        assert not surely_fits(schema, wrong)


def test_the_compiler_is_loaded_for_many_values_or_for_one_that_may_be_refused() -> None:
    program = """
import sys
from mcp_toolset.tools.validation import SchemaCheck
schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
fits, refuses, many = (SchemaCheck(schema, tool="probe", part="inputSchema") for _ in range(3))
loaded = [fits.is_valid({"a": 1}), "jsonschema_rs" in sys.modules]
if "refused" in sys.argv:
    print(*loaded, refuses.is_valid({}), refuses.problems({}), "jsonschema_rs" in sys.modules)
else:
    print(*loaded, all(many.is_valid({"a": 1}) for _ in range(9)), "jsonschema_rs" in sys.modules)
"""
    for way, said in (
        ("refused", "True False False ['\"a\" is a required property'] True"),
        ("many", "True False True True"),
    ):
        command = [sys.executable, "-c", program, way]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.stdout, done.stderr) == (f"{said}\n", "")
