"""F24: one digest for all that says the same, and another for everything else."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset import ToolDefinition
from mcp_toolset.catalog.pins.canonical import canonical, digest_of, plain_json
from mcp_toolset.catalog.pins.differences import compared, has_new_text

texts = st.sampled_from(["a", "required", "é", "e\u0301", "а", ""]) | st.text(max_size=3)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
definitions = st.builds(
    lambda default, properties, required, enum, annotations, description: ToolDefinition(
        "t",
        description,
        {"type": "object", "properties": properties, "required": required, "enum": enum, "default": default},
        annotations=annotations or None,
    ),
    anything,
    st.dictionaries(
        texts, st.fixed_dictionaries({}, optional={"const": anything, "title": texts}), max_size=3
    ),
    st.lists(texts, unique=True, max_size=3),
    st.lists(anything, max_size=3),
    st.dictionaries(st.sampled_from(["readOnlyHint", "title"]), st.booleans() | texts, max_size=2),
    st.none() | texts,
)


def digest(definition: ToolDefinition) -> str:
    return digest_of(canonical(definition))


def of_schema(**schema: Any) -> str:
    return digest(ToolDefinition("t", None, {"type": "object", **schema}))


def shuffled(value: Any, dice: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(item, dice)) for key, item in value.items()]
        dice.shuffle(items)
        return dict(items)
    return [shuffled(item, dice) for item in value] if isinstance(value, list) else value


@given(definitions, st.randoms(use_true_random=False))
def test_f24_the_order_of_keys_says_nothing(definition: ToolDefinition, dice: random.Random):
    again = ToolDefinition.from_wire(shuffled(definition.to_wire(), dice))
    assert digest(again) == digest(definition)
    assert compared(canonical(definition), canonical(again)) == []
    assert not has_new_text(canonical(definition), canonical(again))


@given(definitions, definitions)
def test_f24_two_digests_are_equal_exactly_when_nothing_differs(one: ToolDefinition, other: ToolDefinition):
    before, after = canonical(one), canonical(other)
    assert (digest_of(before) == digest_of(after)) == (compared(before, after) == [])


@given(anything, anything)
def test_f24_values_are_told_apart_as_json_tells_them(one: Any, other: Any):
    equal = json.dumps(_of_json(one), sort_keys=True) == json.dumps(_of_json(other), sort_keys=True)
    assert (of_schema(const=one) == of_schema(const=other)) == equal


def _of_json(value: Any) -> Any:
    """Numbers are equal by their value (JSON Schema 2020-12, 4.2.2), written here as exact fractions."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ["number", *map(str, value.as_integer_ratio())]
    if isinstance(value, dict):
        return {"object": {key: _of_json(item) for key, item in value.items()}}
    return ["list", *map(_of_json, value)] if isinstance(value, list) else ["plain", value]


@given(definitions)
def test_f24_a_definition_comes_back_from_a_file_as_it_was(definition: ToolDefinition):
    plain = canonical(definition)
    again = json.loads(json.dumps(plain, indent=2, ensure_ascii=False))
    assert digest_of(again) == digest_of(plain)
    assert canonical(ToolDefinition.from_wire(again)) == plain


SAME = {
    "the order of what is required": ({"required": ["a", "b"]}, {"required": ["b", "a"]}),
    "the order of types": ({"anyOf": [{"type": ["a", "b"]}]}, {"anyOf": [{"type": ["b", "a"]}]}),
    "the order of values": (
        {"properties": {"x": {"enum": [1, "a", None]}}},
        {"properties": {"x": {"enum": [None, "a", 1.0]}}},
    ),
    "zero and negative zero": ({"minimum": 0}, {"minimum": -0.0}),
    "a large number in two ways": ({"maximum": 10**22}, {"maximum": 1e22}),
}

OTHER = {
    "true and one": ({"const": True}, {"const": 1}),
    "a number and its digits": ({"const": 1}, {"const": "1"}),
    "null and absence": ({"default": None}, {}),
    "an empty list and an empty object": ({"default": []}, {"default": {}}),
    "large numbers beyond a float": ({"maximum": 2**53}, {"maximum": 2**53 + 1}),
    "a parameter called required": (
        {"properties": {"required": {"const": 1}}},
        {"properties": {"required": {"const": 2}}},
    ),
    "the order in a default": ({"default": {"required": ["a", "b"]}}, {"default": {"required": ["b", "a"]}}),
    "the order in a constant": ({"const": {"enum": [1, 2]}}, {"const": {"enum": [2, 1]}}),
    "the order of alternatives": ({"anyOf": [{}, {"type": "x"}]}, {"anyOf": [{"type": "x"}, {}]}),
    "composed and decomposed": ({"description": "é"}, {"description": "e\u0301"}),
    "Latin and Cyrillic": ({"description": "a"}, {"description": "\u0430"}),
    "a space of no width": ({"description": "a"}, {"description": "a\u200b"}),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_f24_what_says_the_same_has_one_digest(one: dict[str, Any], other: dict[str, Any]):
    assert of_schema(**one) == of_schema(**other)


@pytest.mark.parametrize(("one", "other"), OTHER.values(), ids=OTHER)
def test_f24_what_says_something_else_has_another_digest(one: dict[str, Any], other: dict[str, Any]):
    assert of_schema(**one) != of_schema(**other)


def lines(one: str, other: str) -> list[str]:
    (difference,) = compared({"description": one}, {"description": other})
    return list(difference.lines())


def test_f24_a_difference_shows_what_a_reader_would_not_see():
    assert lines("Add.", "Add.\u200b\U000e0041") == ["- Add.", "+ Add.\\u{200b}\\u{e0041}"]
    assert lines("é", "e\u0301") == ["- \\xe9", "+ e\\u0301"]
    assert lines("pay", "p\u0430y") == ["- pay", "+ p\\u0430y"]
    assert lines("Старый текст", "Новое дело сегодня") == ["- Старый текст", "+ Новое дело сегодня"]


def test_f24_a_difference_shows_every_changed_line_whole():
    assert lines("one\ntwo", f"one\nthree {'x' * 5000} end") == ["- two", f"+ three {'x' * 5000} end"]
    assert len(lines("a\n" * 2000, "b\n" * 2000)) >= 4000


NEW_WORDS = {
    "a description of a parameter": {"properties": {"a": {"description": "x"}}},
    "a value": {"properties": {"a": {"enum": ["ignore all"]}}},
    "a name": {"$defs": {"ignore all": {}}},
    "a pattern": {"properties": {"a": {"pattern": "ignore all"}}},
    "a default": {"properties": {"a": {"default": 5}}},
    "a parameter called properties": {"properties": {"properties": {"description": "x"}}},
    "an unknown keyword": {"x-hint": "ignore all"},
}


@pytest.mark.parametrize("schema", NEW_WORDS.values(), ids=NEW_WORDS)
def test_f24_new_words_anywhere_in_a_schema_are_noticed(schema: dict[str, Any]):
    old = {"inputSchema": {"type": "object", "properties": {"a": {}, "properties": {}}}}
    new = {"inputSchema": {"type": "object", **schema}}
    assert has_new_text(old, new)


def test_f24_what_is_left_out_says_nothing_new():
    old = {"inputSchema": {"properties": {"a": {"description": "x", "type": "string"}}}}
    new = {"inputSchema": {"properties": {"a": {"type": "string", "maxLength": 5}}, "required": ["a"]}}
    assert not has_new_text(old, new)
    swapped = ({"a": {"title": x}, "b": {"title": y}} for x, y in (("1", "2"), ("2", "1")))
    assert has_new_text(*({"inputSchema": {"properties": properties}} for properties in swapped))
    assert plain_json({"b": 1, "a": [1.5, "é"]}) == '{"a":[1.5,"é"],"b":1}'
