from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mcp_toolset import Tool
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError
from mcp_toolset.tools.from_schema import TYPE_NAMES


def schema_from(notation: Any) -> Any:
    return Tool.from_schema("probe", notation).input_schema


def test_o2_in_loose_notation_every_parameter_is_required():
    assert schema_from({"city": "string", "days": "integer"}) == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    }
    assert schema_from({}) == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("markers", "required"),
    [
        ({}, True),
        ({"optional": True}, False),
        ({"optional": False}, True),
        ({"required": False}, False),
        ({"required": True}, True),
        ({"default": 1}, False),
        ({"default": 1, "required": True}, True),
        ({"optional": True, "required": True}, True),
        ({"default": 1, "optional": False}, False),
    ],
    ids=str,
)
def test_o3_markers_say_what_is_required_and_do_not_reach_the_schema(markers: dict[str, Any], required: bool):
    schema = schema_from({"n": {"type": "integer", "description": "N.", **markers}})
    shown = {"type": "integer", "description": "N."}
    assert schema["properties"]["n"] == shown | {k: v for k, v in markers.items() if k == "default"}
    assert schema.get("required", []) == (["n"] if required else [])


def test_o3_loose_and_extended_parameters_stand_side_by_side():
    schema = schema_from({"query": "string", "limit": {"type": "int", "default": 10, "minimum": 1}})
    assert schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "default": 10, "minimum": 1},
        },
        "required": ["query"],
    }


@pytest.mark.parametrize(
    "full",
    [
        {"type": "object"},
        {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "$defs": {}},
        {"type": "object", "anyOf": [{"required": ["a"]}], "x-order": ["a"], "additionalProperties": False},
        {"type": "object", "properties": {"a": {"required": ["b"], "properties": {"b": {}}}}, "order": 1},
    ],
    ids=str,
)
def test_o4_a_full_schema_passes_through_as_it_is_in_a_copy(full: dict[str, Any]):
    before = json.dumps(full)
    schema = schema_from(full)
    assert schema == full
    full["title"] = "changed later"
    assert json.dumps(schema) == before


def test_o5_type_aliases():
    for alias, name in TYPE_NAMES.items():
        for written in (alias, alias.upper(), {"type": alias}):
            assert schema_from({"p": written})["properties"]["p"] == {"type": name}, alias


def test_o5_any_and_several_types_and_types_inside_types():
    schema = schema_from(
        {
            "anything": "any",
            "maybe": {"type": ["str", "none"]},
            "tags": {"type": "list", "items": "str"},
            "where": {
                "type": "dict",
                "properties": {"lat": {"type": "f64"}, "type": {"enum": ["int"]}},
                "required": ["lat"],
                "additionalProperties": {"type": "int"},
            },
            "one": {"anyOf": [{"type": "int"}, "str"], "examples": [{"type": "int"}]},
        }
    )
    assert schema["properties"] == {
        "anything": {},
        "maybe": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "type": {"enum": ["int"]}},
            "required": ["lat"],
            "additionalProperties": {"type": "integer"},
        },
        "one": {"anyOf": [{"type": "integer"}, {"type": "string"}], "examples": [{"type": "int"}]},
    }


@pytest.mark.parametrize(
    "name",
    [
        "title",
        "description",
        "properties",
        "enum",
        "items",
        "required",
        "default",
        "$ref",
        "$defs",
        "$schema",
    ],
)
def test_o2_a_parameter_may_be_called_like_a_keyword(name: str):
    for written in ("string", {"type": "string"}):
        schema = schema_from({name: written})
        assert schema == {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    assert schema_from({"type": {"type": "string"}})["properties"] == {"type": {"type": "string"}}


@pytest.mark.parametrize(
    ("notation", "says"),
    [
        ({"city": "strng"}, "parameter 'city': unknown type 'strng'; use string, integer"),
        ({"city": {"type": "strng"}}, "parameter 'city': unknown type 'strng'"),
        ({"a": {"type": "list", "items": "x"}}, "parameter 'a', in items: unknown type 'x'"),
        ({"a": {"type": ["int", "x"]}}, "parameter 'a': unknown type 'x'"),
        ({"a": {"type": "dict", "properties": {"b": "x"}}}, "in properties: 'b': unknown type 'x'"),
        ({"type": "string"}, "this schema is of type 'string'; make it a property of one"),
        ({"type": "list", "items": {}}, "this schema is of type 'list'"),
        ({"type": ["object", "null"]}, "this schema is of type ['object', 'null']"),
        (
            {"type": "object", "city": "string"},
            "beside 'city' could be a schema or a parameter; for a parameter",
        ),
        ({"properties": {"a": {"type": "string"}}}, "add 'type': 'object'"),
        ({"anyOf": [{"type": "object"}]}, "the schema has 'anyOf' and does not say that it is an object"),
        ({"$ref": "#/$defs/a", "$defs": {}}, "does not say that it is an object"),
        ({"city": {}}, "parameter 'city' has no type; add 'type', with 'any' if any value will do"),
        ({"city": {"description": "C."}}, "parameter 'city' has no type"),
        ({"city": 5}, "parameter 'city': write a type, as 'string', or a mapping"),
        ({"city": ["string"]}, "parameter 'city': write a type"),
        ({"city": {"type": "string", "optional": "yes"}}, "'optional' is true or false, not 'yes'"),
        ({"city": {"type": "string", "required": None}}, "'required' is true or false, not None"),
        (
            {"a": {"type": "object", "properties": {"b": {"type": "int", "optional": True}}}},
            "parameter 'a', in properties: 'b': 'optional' marks parameters only",
        ),
        ({"": "string"}, "parameter '': a parameter's name is a non-empty string"),
        ({3: "string"}, "parameter 3: a parameter's name"),
        ({"n": {"type": "int", "default": "x"}}, "a default does not fit its parameter: n: "),
        ([("city", "string")], "a schema is a mapping, as {'city': 'string'}"),
    ],
    ids=str,
)
def test_o5_what_is_no_schema_of_an_object_is_refused_by_name_with_the_mend(notation: Any, says: str):
    with pytest.raises(DefinitionError) as refused:
        Tool.from_schema("probe", notation)
    assert says in str(refused.value) and "tool 'probe'" in str(refused.value)


def test_o5_endless_nesting_is_refused_unread():
    deep: dict[str, Any] = {"type": "int"}
    for _ in range(5000):
        deep = {"type": "list", "items": deep}
    with pytest.raises(DefinitionError, match="nested more than"):
        schema_from({"deep": deep})


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "object", "properties": {"a": {"type": "int"}}}, "/properties/a/type"),
        ({"type": "object", "properties": {"a/b~c": {"minimum": "1"}}}, "/properties/a~1b~0c/minimum"),
        ({"type": "object", "required": "a"}, "/required"),
        ({"a": {"type": "string", "pattern": "("}}, "/properties/a/pattern"),
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_compiled_is_refused_with_its_json_pointer(schema: Any, pointer: str):
    with pytest.raises(DefinitionError) as refused:
        Tool.from_schema("probe", schema)
    assert f"inputSchema is not a usable schema at {pointer}: " in str(refused.value)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=5),
    "integer": st.integers(-(2**53), 2**53),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "array": st.lists(st.integers(0, 9), max_size=3),
    "object": st.dictionaries(st.text(max_size=3), st.booleans(), max_size=3),
    "null": st.none(),
}
NAMES = st.text(min_size=1, max_size=6)


@st.composite
def notations(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, str], set[str]]:
    """A notation, the JSON types of its parameters, and which of them are required."""
    kinds = draw(st.dictionaries(NAMES, st.sampled_from(sorted(TYPE_NAMES)), max_size=5))
    kinds.pop("type", None)
    written: dict[str, Any] = {}
    required: set[str] = set()
    for name, alias in kinds.items():
        marker = draw(st.sampled_from(["loose", "plain", "optional", "required", "default"]))
        extended: dict[str, Any] = {"type": alias}
        if marker == "optional":
            extended["optional"] = True
        if marker == "required":
            extended |= {"optional": True, "required": True}
        if marker == "default":
            extended["default"] = draw(VALUES[TYPE_NAMES[alias]])
        written[name] = alias if marker == "loose" else extended
        if marker not in ("optional", "default"):
            required.add(name)
    return written, {name: TYPE_NAMES[alias] for name, alias in kinds.items()}, required


@given(notations(), st.data())
def test_o2_o3_loose_and_full_notation_and_the_validator_agree(
    made: tuple[dict[str, Any], dict[str, str], set[str]], data: st.DataObject
):
    notation, kinds, required = made
    full = schema_from(notation)
    assert schema_from(full) == full == schema_from(json.loads(json.dumps(notation)))
    check = Draft202012Validator(full)
    given_ = {
        name: data.draw(VALUES[kind])
        for name, kind in kinds.items()
        if name in required or data.draw(st.booleans())
    }
    assert check.is_valid(given_)
    for name in required:
        assert not check.is_valid({key: value for key, value in given_.items() if key != name})
    for name in given_:
        wrong = data.draw(
            st.sampled_from([kind for kind in VALUES if kind not in (kinds[name], "integer", "number")])
        )
        value = data.draw(VALUES[wrong])
        assert not check.is_valid({**given_, name: value})


@given(notations(), st.data())
def test_o3_the_handler_gets_what_was_sent_and_the_defaults_of_the_rest(
    made: tuple[dict[str, Any], dict[str, str], set[str]], data: st.DataObject
):
    notation, kinds, required = made
    received: list[dict[str, Any]] = []

    async def handler(arguments: dict[str, Any]) -> None:
        received.append(arguments)

    tool = Tool.from_schema("probe", notation, handler)
    sent = {name: data.draw(VALUES[kinds[name]]) for name in required}
    anyio.run(tool.execute, sent)
    defaults = {
        name: item["default"] for name, item in tool.input_schema["properties"].items() if "default" in item
    }
    assert received == [defaults | sent]


def test_o3_a_default_that_a_handler_edits_is_as_before_in_the_next_call():
    seen: list[int] = []

    async def handler(arguments: dict[str, Any]) -> None:
        arguments["tags"].append("x")
        seen.append(len(arguments["tags"]))

    tool = Tool.from_schema("probe", {"tags": {"type": "list", "default": []}}, handler)
    anyio.run(tool.execute, {})
    anyio.run(tool.execute, {})
    assert seen == [1, 1]


def test_o6_arguments_that_do_not_fit_are_refused_before_the_handler():
    tool = Tool.from_schema("probe", {"n": "int"}, lambda arguments: pytest.fail("ran"))
    with pytest.raises(InvalidArgumentsError, match="Invalid arguments for probe: n: "):
        anyio.run(tool.execute, {"n": "x"})
