"""Strict mode: what is enforced, what falls back, and the way back from strict arguments."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.extensions.model_loop.test_export import _unchecked, binding

from mcp_toolset import Toolset, ToolView

PROVIDERS = ("anthropic", "gemini", "openai", "openai_responses")


def exported(schema: dict[str, Any], provider: Any = "openai", *, strict: bool = True) -> Any:
    return ToolView([binding(schema)]).export(provider, strict=strict)


def parameters(export: Any) -> dict[str, Any]:
    (tool,) = export.tools
    if "functionDeclarations" in tool:
        return tool["functionDeclarations"][0]["parametersJsonSchema"]
    return tool["input_schema"] if "input_schema" in tool else tool.get("function", tool)["parameters"]


def takes(schema: dict[str, Any], value: Any) -> bool:
    return jsonschema_rs.is_valid(schema, value)


def with_argument(schema: Any, *, required: bool = False) -> dict[str, Any]:
    rest = {"required": ["x"]} if required else {}
    return {"type": "object", "properties": {"x": schema}, **rest}


def test_o7_in_strict_mode_every_property_is_required_and_the_optional_ones_may_be_null():
    def f(city: str, days: int = 3, note: str | None = None) -> str:
        return city

    export = Toolset(f).view().export("openai", strict=True)
    schema = parameters(export)
    assert schema["required"] == ["city", "days", "note"] and schema["additionalProperties"] is False
    assert schema["properties"]["days"]["type"] == ["integer", "null"]
    assert schema["properties"]["days"]["description"] == "(default: 3) Null leaves it out."
    given = {"city": "Bern", "days": None, "note": None}
    assert takes(schema, given)
    assert export.decode_arguments("f", given) == {"city": "Bern"}
    assert export.call("f", {"city": "Bern", "days": 2, "note": "n"}, "c1").arguments["days"] == 2


def test_o7_strict_reaches_into_models_lists_unions_and_references():
    class Leg(BaseModel):
        to: str
        by: str = "train"

    class Trip(BaseModel):
        legs: list[Leg]
        back: Leg | None = None

    def plan(trip: Trip) -> str:
        return ""

    export = Toolset(plan).view().export("openai", strict=True)
    given = {
        "trip": {"legs": [{"to": "a", "by": None}, {"to": "b", "by": "bus"}], "back": {"to": "c", "by": None}}
    }
    assert takes(parameters(export), given)
    assert export.decode_arguments("plan", given) == {
        "trip": {"legs": [{"to": "a"}, {"to": "b", "by": "bus"}], "back": {"to": "c"}}
    }


def test_o7_null_stays_where_it_differs_from_the_default():
    export = exported(with_argument({"type": ["integer", "null"], "default": 5}))
    assert export.strict == {"probe"}
    assert export.decode_arguments("probe", {"x": None}) == {"x": None}


def test_o7_a_recursive_schema_can_be_strict_for_openai_and_not_for_anthropic():
    tree = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/T"}}},
    }
    schema = {**with_argument({"$ref": "#/$defs/T"}, required=True), "$defs": {"T": tree}}
    assert exported(schema, "anthropic").strict == frozenset()
    export = exported(schema)
    given = {"x": {"name": None, "kids": [{"name": "n", "kids": None}]}}
    assert takes(parameters(export), given)
    assert export.decode_arguments("probe", given) == {"x": {"kids": [{"name": "n"}]}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
        {"type": "object", "properties": {}, "patternProperties": {"x": {"type": "string"}}},
        {"type": "array"},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"enum": [{"a": 1}]},
        {"allOf": [{"type": "string"}, {"minLength": 1}]},
        {"properties": {"a": {"type": "string"}}},
        {"anyOf": [{"type": "string"}], "oneOf": [{"type": "string"}]},
        {"$ref": "#/$defs/S", "minLength": 3},
        {"type": "object", "properties": {}, "required": ["a"], "additionalProperties": False},
    ],
)
@pytest.mark.parametrize("provider", ["openai", "openai_responses", "anthropic"])
def test_o7_a_schema_that_strict_mode_would_change_goes_out_as_it_is(provider, schema):
    whole = {**with_argument(schema, required=True), "$defs": {"S": {"type": "string"}}}
    export = exported(whole, provider)
    assert export.strict == frozenset()
    assert parameters(export) == parameters(exported(whole, provider, strict=False))
    assert export.tools[0].get("function", export.tools[0]).get("strict", False) is False
    assert export.decode_arguments("probe", {"x": None}) == {"x": None}


def test_o7_an_optional_property_whose_null_says_something_keeps_a_tool_from_being_strict():
    """Absent and `null` are two things there, as in a patch, and strict mode could say only one."""
    assert exported(with_argument({"type": ["string", "null"]})).strict == frozenset()
    assert exported(with_argument({"type": ["string", "null"]}, required=True)).strict == {"probe"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"type": "string", "minLength": 2, "format": "uri"},
            {"type": "string", "description": '(minLength: 2; format: "uri")'},
        ),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^a"}),
        ({"type": "string", "pattern": "(?=a)"}, {"type": "string", "description": '(pattern: "(?=a)")'}),
        ({"const": 1}, {"const": 1, "type": "integer"}),
        ({"enum": ["a", None, 1.5]}, {"enum": ["a", None, 1.5], "type": ["string", "null", "number"]}),
        ({"allOf": [{"type": "string"}], "description": "D."}, {"type": "string", "description": "D."}),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        ({"$ref": "#/$defs/S", "description": "D."}, {"anyOf": [{"$ref": "#/$defs/S"}], "description": "D."}),
    ],
)
def test_o7_what_openai_cannot_enforce_is_said_instead(given, expected):
    schema = {**with_argument(given, required=True), "$defs": {"S": {"type": "string"}}}
    assert parameters(exported(schema))["properties"]["x"] == expected


def test_o7_a_schema_beyond_openais_size_limits_is_not_strict():
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(10):
        deep = {"type": "array", "items": deep}
    assert exported(with_argument(deep, required=True)).strict == frozenset()
    assert exported(with_argument(deep["items"], required=True)).strict == {"probe"}
    assert (
        exported(with_argument({"enum": [f"v{n}" for n in range(1001)]}, required=True)).strict == frozenset()
    )


def test_o7_anthropic_enforces_only_as_many_tools_as_one_request_may_have():
    plain = with_argument({"type": "string"}, required=True)
    view = ToolView([binding(plain, name=f"t{n}") for n in range(25)])
    export = view.export("anthropic", strict=True)
    assert export.strict == {f"t{n}" for n in range(20)}
    assert [tool.get("strict", False) for tool in export.tools] == [n < 20 for n in range(25)]


@pytest.mark.parametrize(
    ("argument", "room"), [({"type": "string"}, 24), ({"type": ["string", "integer"]}, 16)]
)
def test_o7_anthropic_counts_optional_properties_and_unions_over_the_whole_request(argument, room):
    view = ToolView(
        [
            binding(
                {"type": "object", "properties": {f"a{n}": argument for n in range(size)}}, name=f"t{size}"
            )
            for size in (10, 15, 6)
        ]
    )
    assert view.export("anthropic", strict=True).strict == {"t10", "t6"}
    assert 10 + 6 <= room < 10 + 15


def test_o7_arguments_that_break_the_strict_schema_come_back_as_they_were_sent():
    export = exported(with_argument({"type": "array", "items": {"type": "integer"}}))
    for said in ({"x": "no list"}, {"y": None}, {"x": [None, {}]}, {}):
        assert export.decode_arguments("probe", said) == said


@dataclass(frozen=True)
class Part:
    """A schema, and whether it may be left out as a property."""

    schema: dict[str, Any]
    required: bool


leaves = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 0, "maximum": 9},
        {"type": "boolean"},
        {"enum": ["a", "b"]},
        {"type": "string", "enum": ["c"], "default": "c"},
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        {"$ref": "#/$defs/Pair"},
        {"const": 7},
    ]
)
PAIR = {
    "type": "object",
    "properties": {"left": {"type": "integer"}, "right": {"type": "string"}},
    "required": ["left"],
    "additionalProperties": False,
}


def objects(inner: st.SearchStrategy[dict[str, Any]], **fixed: Any) -> st.SearchStrategy[dict[str, Any]]:
    def made(parts: dict[str, Part]) -> dict[str, Any]:
        properties = {**{name: {"const": value} for name, value in fixed.items()}}
        properties |= {name: part.schema for name, part in parts.items()}
        required = [*fixed, *(name for name, part in parts.items() if part.required)]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    part = st.builds(Part, inner, st.booleans())
    return st.dictionaries(st.sampled_from("pqrs"), part, min_size=1, max_size=3).map(made)


def grown(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    unions = st.tuples(objects(inner, kind="a"), objects(inner, kind="b"))
    return st.one_of(
        objects(inner),
        inner.map(lambda schema: {"type": "array", "items": schema}),
        unions.map(lambda pair: {"anyOf": list(pair)}),
        unions.map(lambda pair: {"oneOf": list(pair)}),
    )


nested = st.recursive(leaves, grown, max_leaves=8)
roots = objects(nested).map(lambda schema: {**schema, "$defs": {"Pair": PAIR}})


@st.composite
def values(draw: st.DrawFn, schema: Any, root: dict[str, Any], *, nulls: bool) -> Any:
    """A value of a schema as they are made here; `nulls` also where `null` is the default."""
    if "$ref" in schema:
        schema = root["$defs"]["Pair"]
    if "const" in schema or "enum" in schema:
        return draw(st.sampled_from([schema["const"]] if "const" in schema else schema["enum"]))
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        chosen = draw(st.sampled_from(branches))
        return draw(values(chosen, root, nulls=nulls))
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = draw(st.sampled_from(kinds))
    if kind == "object":
        return draw(_objects(schema, root, nulls=nulls))
    if kind == "array":
        return draw(st.lists(values(schema["items"], root, nulls=nulls), max_size=3))
    simple = {"string": st.text("xy", max_size=2), "integer": st.integers(0, 9), "boolean": st.booleans()}
    return draw(simple.get(kind, st.none()))


@st.composite
def _objects(draw: st.DrawFn, schema: Any, root: dict[str, Any], *, nulls: bool) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, inner in schema["properties"].items():
        required = name in schema.get("required", [])
        if required or draw(st.booleans()):
            value = draw(values(inner, root, nulls=nulls))
            if nulls or required or value is not None:
                made[name] = value
    return made


def encoded(schema: Any, root: dict[str, Any], value: Any) -> Any:
    """What a model says in strict mode to mean `value`; the oracle for the way back."""
    if "$ref" in schema:
        schema = root["$defs"]["Pair"]
    for branch in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        if takes({**branch, "$defs": root["$defs"]}, value):
            return encoded(branch, root, value)
    if isinstance(value, list):
        return [encoded(schema["items"], root, item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: encoded(inner, root, value[name]) if name in value else None
        for name, inner in schema["properties"].items()
    }


@given(st.data())
def test_o7_strict_round_trip_every_valid_argument_can_be_said_and_comes_back(data):
    root = data.draw(roots)
    arguments = data.draw(values(root, root, nulls=False))
    export = exported(root)
    assert export.strict == {"probe"} and takes(root, arguments)
    said = encoded(root, root, arguments)
    assert takes(parameters(export), said)
    assert export.decode_arguments("probe", said) == arguments


@given(st.data())
def test_o7_strict_round_trip_whatever_fits_the_strict_schema_comes_back_valid(data):
    root = data.draw(roots)
    export = exported(root)
    strict = parameters(export)
    said = data.draw(values(strict, strict, nulls=True))
    before = deepcopy(said)
    assert takes(strict, said)
    assert takes(root, export.decode_arguments("probe", said))
    assert said == before


@given(st.data(), st.sampled_from(PROVIDERS), st.booleans())
def test_o7_no_export_refuses_arguments_that_the_tool_takes(data, provider, strict):
    root = data.draw(roots)
    arguments = data.draw(values(root, root, nulls=True))
    export = exported(root, provider, strict=strict)
    if strict and provider.startswith("openai"):
        arguments = encoded(root, root, arguments)
    assert takes(parameters(export), arguments)


@given(st.data(), st.sampled_from(PROVIDERS), st.sampled_from(["anyOf", "oneOf"]))
def test_o7_a_merged_root_takes_the_arguments_of_every_branch(data, provider, union):
    branches = data.draw(st.tuples(objects(nested, kind="a"), objects(nested, kind="b")))
    root = {"type": "object", union: list(branches), "$defs": {"Pair": PAIR}}
    arguments = data.draw(values(root, root, nulls=True))
    assert takes(root, arguments)
    assert takes(parameters(exported(root, provider, strict=False)), arguments)


@given(roots, st.sampled_from(PROVIDERS), st.booleans())
def test_o7_no_export_changes_a_definition_or_shares_anything_with_it(root, provider, strict):
    before = deepcopy(root)
    export = ToolView([_unchecked(root)]).export(provider, strict=strict)
    _spoil(export.tools)
    assert root == before


def _spoil(value: Any) -> None:
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _spoil(child)
    if isinstance(value, dict | list):
        value.clear()
