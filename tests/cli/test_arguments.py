"""Arguments from words on the command line."""

import io
import json
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.cli.commands.tools import typed_arguments

KEYS = st.text(min_size=1).filter(lambda key: "=" not in key and not key.lstrip().startswith(("{", "[")))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    SCALARS | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


def read(schema: dict[str, Any], *words: str) -> dict[str, Any]:
    return typed_arguments(words, io.StringIO()).read(schema)


def taking(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@given(KEYS, st.text())
def test_text_arrives_as_it_was_typed_where_a_tool_takes_text(key: str, text: str):
    assert read(taking(**{key: {"type": "string"}}), f"{key}={text}") == {key: text}


@given(KEYS, SCALARS | st.lists(SCALARS) | st.dictionaries(st.text(), SCALARS))
def test_json_arrives_as_its_value_where_a_tool_takes_anything(key: str, value: Any):
    assert read(taking(), f"{key}={json.dumps(value)}") == {key: value}


@given(st.dictionaries(st.text(), JSON))
def test_a_whole_object_arrives_unread(value: dict[str, Any]):
    text = json.dumps(value)
    assert read(taking(), text) == value
    assert typed_arguments(["-"], io.StringIO(text)).read(taking()) == value


@given(st.lists(st.text(), min_size=2))
def test_a_repeated_key_is_a_list(texts: list[str]):
    schema = taking(tags={"type": "array", "items": {"type": "string"}})
    assert read(schema, *(f"tags={text}" for text in texts)) == {"tags": texts}


@pytest.mark.parametrize(
    ("part", "text", "value"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "number"}, "5", 5),
        ({"type": "boolean"}, "true", True),
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "null", "null"),
        ({"type": "integer"}, "five", "five"),
        ({"type": ["integer", "string"]}, "5", 5),
        ({"type": ["integer", "null"]}, "null", None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "5", 5),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "5", "5"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"const": 1}, "1", 1),
        ({"$ref": "#/$defs/Count"}, "5", 5),
        ({"$ref": "#/$defs/Loop"}, "x", "x"),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        ({"type": "array", "items": {"type": "integer"}}, "1", [1]),
        ({"type": "array", "items": {"type": "string"}}, "1", ["1"]),
        ({}, "plain words", "plain words"),
        ({}, "5", 5),
    ],
)
def test_a_value_is_read_by_its_schema(part: dict[str, Any], text: str, value: object):
    schema = {**taking(x=part), "$defs": {"Count": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}}}
    read_value = read(schema, f"x={text}")["x"]
    assert (type(read_value), read_value) == (type(value), value)


@pytest.mark.parametrize("words", [["word"], ["=x"], ["a=1", "b"], ["{"], ["[]"], ["[" * 100_000]])
def test_words_of_no_form_are_a_usage_error(words: list[str]):
    with pytest.raises(click.UsageError, match="key=value"):
        typed_arguments(words, io.StringIO())
