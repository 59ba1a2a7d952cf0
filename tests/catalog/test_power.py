"""F24: whether a changed definition can do more. The oracle is the validator that calls are checked with."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_toolset import ToolDefinition
from mcp_toolset.catalog.pins.canonical import canonical
from mcp_toolset.catalog.pins.policy import gained
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.validation import checks_of

Schema = dict[str, Any]


def defined(schema: Schema, **annotations: Any) -> ToolDefinition:
    return ToolDefinition("t", None, {**schema, "type": "object"}, annotations=annotations or None)


def gains(old: Schema, new: Schema) -> tuple[str, ...]:
    return gained(canonical(defined(old)), canonical(defined(new)))


def takes(**parameters: Any) -> Schema:
    return {"properties": parameters}


values = st.sampled_from(
    [None, True, False, 0, 1, 2.5, -3, "", "a", "bb", "ccc", [], [1], ["a", "a"], {}, {"a": 1}]
)
names = st.sampled_from(["a", "b", "title"])
bounds = st.integers(0, 3)


def objects_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas with every rule that is compared, and some that are not."""
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "object", "array", ["string", "null"]]),
            "enum": st.lists(values, min_size=1, max_size=3, unique_by=repr),
            "const": values,
            "minLength": bounds,
            "maxLength": bounds,
            "minimum": bounds,
            "exclusiveMaximum": bounds,
            "maxItems": bounds,
            "minProperties": bounds,
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "uniqueItems": st.booleans(),
            "pattern": st.sampled_from(["a", "^b"]),
            "required": st.lists(names, max_size=2, unique=True),
            "properties": st.dictionaries(names, inner, max_size=2),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=1),
            "propertyNames": inner,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "unevaluatedProperties": inner,
            "dependentRequired": st.just({"a": ["b"]}),
            "description": st.sampled_from(["x", "y"]),
            "$ref": st.just("#/$defs/d"),
        },
    )


schemas = st.recursive(st.booleans() | st.just({}), objects_of, max_leaves=5)
roots = st.builds(
    lambda schema, shared: {**schema, "$defs": {"d": shared}} if isinstance(schema, dict) else {},
    objects_of(schemas),
    st.fixed_dictionaries({}, optional={"type": st.sampled_from(["string", "object"]), "maxLength": bounds}),
)
calls = st.dictionaries(names, values | st.dictionaries(names, values, max_size=2), max_size=3)


@st.composite
def changes(draw: st.DrawFn) -> tuple[Schema, Schema]:
    """A schema and the same with some members of it, at any depth, taken away, added or replaced."""
    old = draw(roots)
    new = deepcopy(old)
    for _ in range(draw(st.integers(1, 2))):
        holders = [new, *(one for one in _inside(new) if isinstance(one, dict))]
        holder: Any = draw(st.sampled_from(holders))
        donor: Any = draw(objects_of(schemas))
        key = draw(st.sampled_from(sorted({*holder, *donor}) or ["a"]))
        if key in donor and draw(st.booleans()):
            holder[key] = donor[key]
        else:
            holder.pop(key, None)
    return old, new


def _inside(value: Any) -> list[Any]:
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [found for part in parts for found in (part, *_inside(part))]


@given(changes(), st.lists(calls, min_size=5, max_size=12))
def test_f24_nothing_gained_means_that_no_call_is_taken_that_was_not(
    change: tuple[Schema, Schema], arguments: list[Any]
):
    old, new = change
    try:
        before, after = checks_of(defined(old))[0], checks_of(defined(new))[0]
    except DefinitionError:
        assume(False)
        return
    if not gains(old, new):
        assert all(before.is_valid(call) for call in arguments if after.is_valid(call))


@given(roots)
def test_f24_nothing_is_gained_by_staying_the_same(schema: Schema):
    assert gains(schema, deepcopy(schema)) == ()


@given(roots, st.sampled_from(["title", "description", "default", "examples", "x-order", "$comment"]))
def test_f24_words_alone_give_no_power(schema: Schema, keyword: str):
    assert gains(schema, {**schema, keyword: ["other"]}) == ()


WIDER = {
    "a new parameter": (takes(a={}), takes(a={}, b={})),
    "a new parameter where anything was taken": ({}, takes(command={"type": "string"})),
    "a new parameter within one": (takes(a={"properties": {}}), takes(a={"properties": {"b": {}}})),
    "a new parameter within a list": (
        takes(a={"type": "array"}),
        takes(a={"items": {"properties": {"b": {}}}}),
    ),
    "a new parameter behind allOf": ({}, {"allOf": [takes(b={})]}),
    "a new parameter behind anyOf": ({}, {"anyOf": [takes(b={})]}),
    "a new parameter behind oneOf": ({}, {"oneOf": [takes(b={})]}),
    "a new parameter behind then": ({}, {"if": True, "then": takes(b={})}),
    "a new parameter by reference": (
        {"$defs": {"x": takes(b={})}},
        {"$defs": {"x": takes(b={})}, "$ref": "#/$defs/x"},
    ),
    "another type": (takes(a={"type": "string"}), takes(a={"type": ["string", "array"]})),
    "a number for an integer": (takes(a={"type": "integer"}), takes(a={"type": "number"})),
    "any type": (takes(a={"type": "string"}), takes(a={})),
    "another value": (takes(a={"enum": ["r"]}), takes(a={"enum": ["r", "w"]})),
    "any value": (takes(a={"const": "r"}), takes(a={})),
    "true for one": (takes(a={"enum": [1]}), takes(a={"enum": [1, True]})),
    "a bound that is gone": (takes(a={"maxLength": 5}), takes(a={})),
    "a bound that has moved": (takes(a={"maximum": 5}), takes(a={"maximum": 5.1})),
    "a lower bound": (takes(a={"minimum": 5}), takes(a={"minimum": -5})),
    "a pattern that is gone": (takes(a={"pattern": "^/tmp/"}), takes(a={})),
    "a pattern that is another": (takes(a={"pattern": "^/tmp/"}), takes(a={"pattern": "^/"})),
    "a parameter that may be left out": ({**takes(a={}), "required": ["a"]}, takes(a={})),
    "anything besides": ({"additionalProperties": False}, {}),
    "anything besides, said so": ({"additionalProperties": False}, {"additionalProperties": True}),
    "a parameter that is not described any more": (takes(a={"type": "string"}), takes()),
    "a definition that is wider": (
        {"$defs": {"x": {"maxLength": 5}}, **takes(a={"$ref": "#/$defs/x"})},
        {"$defs": {"x": {"maxLength": 6}}, **takes(a={"$ref": "#/$defs/x"})},
    ),
    "a narrower definition that is negated": (
        {"$defs": {"x": {"maxLength": 5}}, **takes(a={"not": {"$ref": "#/$defs/x"}})},
        {"$defs": {"x": {"maxLength": 4}}, **takes(a={"not": {"$ref": "#/$defs/x"}})},
    ),
    "an alternative": (
        takes(a={"anyOf": [{"type": "null"}]}),
        takes(a={"anyOf": [{"type": "null"}, {"const": 1}]}),
    ),
    "a header": (takes(a={"type": "string"}), takes(a={"type": "string", "x-mcp-header": "X-A"})),
    "a word that is also a keyword": (takes(title={"maxLength": 5}), takes(title={"maxLength": 50})),
    "a required name that is also a keyword": (
        {"dependentRequired": {"title": ["a"]}},
        {"dependentRequired": {"title": []}},
    ),
}

NOT_WIDER = {
    "the order of keys": (
        takes(a={"type": "string", "maxLength": 5}),
        takes(a={"maxLength": 5, "type": "string"}),
    ),
    "the order of values": (takes(a={"enum": ["r", "w"]}), takes(a={"enum": ["w", "r"]})),
    "a closed door": ({}, {"additionalProperties": False}),
    "a parameter that is gone behind one": (
        {**takes(a={}, b={}), "additionalProperties": False},
        {**takes(a={}), "additionalProperties": False},
    ),
    "a bound": (takes(a={}), takes(a={"maxLength": 5})),
    "a tighter bound": (takes(a={"maxLength": 5}), takes(a={"maxLength": 4})),
    "fewer values": (takes(a={"enum": ["r", "w"]}), takes(a={"const": "r"})),
    "an integer for a number": (takes(a={"type": "number"}), takes(a={"type": "integer"})),
    "one more that is required": (takes(a={}), {**takes(a={}), "required": ["a"]}),
    "one alternative less": (
        takes(a={"anyOf": [{"type": "null"}, {"const": 1}]}),
        takes(a={"anyOf": [{"const": 1}]}),
    ),
    "one number written otherwise": (takes(a={"maximum": 5}), takes(a={"maximum": 5.0})),
    "a word about a parameter": (takes(a={}), takes(a={"description": "b", "x-order": 1})),
}


@pytest.mark.parametrize(("old", "new"), WIDER.values(), ids=WIDER)
def test_f24_a_wider_schema_is_noticed(old: Schema, new: Schema):
    assert gains(old, new)


@pytest.mark.parametrize(("old", "new"), NOT_WIDER.values(), ids=NOT_WIDER)
def test_f24_a_schema_that_is_not_wider_gains_nothing(old: Schema, new: Schema):
    assert gains(old, new) == ()


PROMISES = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


@pytest.mark.parametrize("hint", PROMISES)
@pytest.mark.parametrize("now", ["absent", "turned", "no boolean"])
def test_f24_a_promise_that_is_not_kept_is_power(hint: str, now: str):
    promise = PROMISES[hint]
    after = {"absent": {}, "turned": {hint: not promise}, "no boolean": {hint: str(promise)}}[now]
    old, new = (canonical(defined({}, **hints)) for hints in (PROMISES, PROMISES | {hint: None} | after))
    (reason,) = gained(old, new)
    assert "no longer annotated" in reason
    assert gained(new, old) == ()


def test_f24_a_tool_whose_calls_reach_something_else_is_more_powerful():
    def reaching(**said: Any) -> dict[str, Any]:
        wire = defined({}).to_wire() | {"_meta": {"toolset/reaches": said, "version": said}}
        return canonical(ToolDefinition.from_wire(wire))

    old, new = reaching(method="GET", path="/a"), reaching(method="DELETE", path="/a")
    (reason,) = gained(old, new)
    assert "reach" in reason and "GET" in reason and "DELETE" in reason
    assert gained(old, canonical(defined({}))) and gained(canonical(defined({})), new)
    assert gained(old, old | {"_meta": {**old["_meta"], "version": 2}}) == ()


def test_f24_a_reason_names_the_parameter_and_what_it_was():
    assert gains(takes(a={"maxLength": 5}), takes(a={"maxLength": 50})) == ("`a`: maxLength was 5 and is 50",)


def test_f24_large_schemas_are_compared_in_time():
    many = {f"p{number}": {"anyOf": [{"const": one} for one in range(20)]} for number in range(400)}
    turned = {name: {"anyOf": schema["anyOf"][::-1]} for name, schema in many.items()}
    assert gains(takes(**many), takes(**turned)) == ()
