import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.support.calling import listed

from mcp_toolset import ToolDefinition
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.validation import depth_exceeds

names = st.sampled_from(["a", "b", "c"])
leaves = st.sampled_from(
    [{}, {"type": "integer"}, {"type": "string", "maxLength": 2}, {"enum": ["x", 1, None]}, {"type": "null"}]
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda properties, required, closed: {
            "type": "object",
            "properties": properties,
            "required": sorted(required),
            "additionalProperties": not closed,
        },
        st.dictionaries(names, inner, max_size=3),
        st.sets(names, max_size=2),
        st.booleans(),
    )


schemas = st.recursive(
    leaves,
    lambda inner: (
        objects(inner)
        | inner.map(lambda item: {"type": "array", "items": item})
        | st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options})
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"allOf": parts})
    ),
    max_leaves=6,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "long"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def check(schema: dict[str, Any]) -> Any:
    """What a tool with this schema checks its arguments by."""
    return listed(ToolDefinition("probe", input_schema=schema), None).arguments


@given(objects(schemas), values)
def test_n6_whole_schemas_are_checked_as_the_reference_implementation_does(schema: Any, value: Any):
    compiled = check(schema)
    assert compiled.is_valid(value) == Draft202012Validator(schema).is_valid(value)
    assert compiled.is_valid(value) == (not compiled.problems(value))


def test_n6_a_problem_deep_inside_is_named_by_its_place():
    inner = {"type": "object", "properties": {"n": {"type": "integer"}}}
    compiled = check({"type": "object", "properties": {"rows": {"type": "array", "items": inner}}})
    assert compiled.problems({"rows": [{"n": 1}, {"n": "x"}]}) == ['rows[1].n: "x" is not of type "integer"']


def test_n6_a_problem_of_the_whole_has_no_place_before_it():
    (line,) = check({"type": "object", "required": ["a"]}).problems({})
    assert line == '"a" is a required property'


def test_n6_the_list_of_problems_is_bounded():
    compiled = check({"type": "object", "additionalProperties": {"type": "integer"}})
    assert len(compiled.problems({str(n): "x" for n in range(50)})) == 5


def test_n6_formats_are_annotations():
    assert check({"type": "object", "properties": {"d": {"format": "date"}}}).is_valid({"d": "tomorrow"})


@pytest.mark.parametrize("value", [{1: 2}, {"a": object()}, {"a": b"x"}, {"\ud800": 1}])
def test_n6_what_has_no_json_form_does_not_fit_and_says_so(value: Any):
    compiled = check({"type": "object", "additionalProperties": {"maxLength": 9, "type": "string"}})
    assert not compiled.is_valid(value)
    assert compiled.problems(value)[0].startswith("no JSON can carry this")


@pytest.mark.parametrize(
    "reference",
    ["http://127.0.0.1:9/schema", "https://example.org/x#/a", "file:///etc/hostname", "other.json"],
)
def test_f18_a_reference_outside_the_schema_is_refused_and_never_fetched(reference: str):
    with pytest.raises(DefinitionError, match=r"tool 'probe': inputSchema is not a usable schema"):
        check({"type": "object", "properties": {"x": {"$ref": reference}}})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"type": "string"}, {"$ref": "#"}]},
        {"not": {"$ref": "#"}},
        {"if": {"$ref": "#"}, "then": {}},
        {"dependentSchemas": {"x": {"$ref": "#"}}},
        {
            "properties": {"x": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        },
        {"$defs": {"a b/c": {"$ref": "#/$defs/a%20b~1c"}}},
    ],
)
def test_f19_a_reference_that_only_leads_to_itself_is_refused(schema: dict[str, Any]):
    with pytest.raises(DefinitionError, match="to itself without end; break the loop"):
        check({"type": "object", **schema})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"child": {"$ref": "#"}}},
        {"properties": {"children": {"type": "array", "items": {"$ref": "#"}}}},
        {
            "$defs": {"node": {"anyOf": [{"type": "integer"}, {"items": {"$ref": "#/$defs/node"}}]}},
            "properties": {"x": {"$ref": "#/$defs/node"}},
        },
    ],
)
def test_f19_a_recursive_type_is_accepted_and_checked(schema: dict[str, Any]):
    compiled = check({"type": "object", **schema})
    assert compiled.is_valid({})
    assert compiled.is_valid({"child": {"child": {}}})
    if "child" in schema["properties"]:
        assert not compiled.is_valid({"child": {"child": 5}})


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return {"type": "object", **schema}


def test_f20_a_schema_that_is_too_deep_is_refused_unread():
    check(nested(63))
    with pytest.raises(DefinitionError, match="nested more than 64 levels deep; flatten it"):
        check(nested(64))
    with pytest.raises(DefinitionError, match="nested more than 64 levels deep; flatten it"):
        check(nested(100_000))


@pytest.mark.parametrize("named", [False, True])
def test_u113_a_schema_whose_expressions_would_take_long_to_compile_is_refused_uncompiled(named: bool):
    def schema(pattern: str) -> dict[str, Any]:
        rule = {"patternProperties": {pattern: {}}} if named else {"properties": {"a": {"pattern": pattern}}}
        return {"type": "object", **rule}

    check(schema("a?" * 1_000))
    with pytest.raises(DefinitionError, match="regular expressions of more than 10,000 characters; shorten"):
        check(schema("a?" * 200_000))


def test_f20_a_schema_that_explodes_when_references_are_followed_is_refused_at_once():
    definitions: dict[str, Any] = {"a40": {"type": "string"}}
    for level in range(40):
        definitions[f"a{level}"] = {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2}
    started = time.thread_time()
    with pytest.raises(DefinitionError, match="against more than 10000 subschemas; simplify it"):
        check({"type": "object", "$defs": definitions, "properties": {"x": {"$ref": "#/$defs/a0"}}})
    assert time.thread_time() - started < 10


def test_f20_a_long_chain_of_references_is_refused():
    definitions = {f"a{level}": {"$ref": f"#/$defs/a{level + 1}"} for level in range(5000)}
    with pytest.raises(DefinitionError, match="more than 64 references in a row"):
        check({"type": "object", "$defs": {**definitions, "a5000": {}}, "$ref": "#/$defs/a0"})


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(?=a)(a+)+$", r"^(a+)+\1$"])
def test_f21_a_catastrophic_pattern_ends_soon(pattern: str):
    compiled = check({"type": "object", "properties": {"x": {"pattern": pattern}}})
    started = time.thread_time()
    assert not compiled.is_valid({"x": "a" * 5000 + "!"})
    assert time.thread_time() - started < 10


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": 5}, "/properties"),
        ({"properties": {"x": {"type": "strin"}}}, "/properties/x/type"),
        ({"properties": {"x": {"pattern": "("}}}, "/properties/x/pattern"),
        ({"properties": {"x": {"$ref": "#/$defs/none"}}}, "/"),
        ({"$schema": "https://example.org/unknown"}, "/"),
    ],
)
def test_f17_a_schema_that_is_none_is_refused_with_the_place(schema: dict[str, Any], pointer: str):
    with pytest.raises(DefinitionError, match=rf"'probe': inputSchema is not a usable schema at {pointer}:"):
        check({"type": "object", **schema})


def test_f17_a_schema_without_a_json_form_is_refused():
    with pytest.raises(DefinitionError, match="has no JSON form"):
        check({"type": "object", "title": "\ud800"})


def test_f22_both_schemas_of_a_definition_are_compiled_and_faults_name_which():
    definition = ToolDefinition("probe", output_schema={"type": "object", "required": ["x"]})
    probe = listed(definition, None)
    assert probe.arguments.is_valid({})
    assert probe.output is not None and not probe.output.is_valid({})
    assert listed(ToolDefinition("probe"), None).output is None
    with pytest.raises(DefinitionError, match="'probe': outputSchema"):
        listed(ToolDefinition("probe", output_schema={"type": 5}), None)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@given(values, st.integers(1, 6))
def test_f20_depth_is_counted_in_containers(value: Any, limit: int):
    assert depth_exceeds(value, limit) == (depth_of(value) > limit)
