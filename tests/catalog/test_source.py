import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.catalog.snapshot import take_snapshot

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
keywords = st.sampled_from(
    ["type", "properties", "items", "$ref", "allOf", "not", "pattern", "enum", "$schema", "$id", "$defs"]
)
texts = st.sampled_from(
    ["object", "string", "#", "#/$defs/a", "http://127.0.0.1:9/x", "(", "^(a+)+$", "\ud800"]
)
schemaish = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(["a", "b", "with space", "\ud800", ""]) | st.text(max_size=5)
entries = anything | st.fixed_dictionaries(
    {},
    optional={
        "name": names | anything,
        "inputSchema": st.just({"type": "object"})
        | schemaish.map(lambda schema: {"properties": schema, "type": "object"})
        | schemaish.map(lambda schema: {**schema, "type": "object"} if isinstance(schema, dict) else schema),
        "outputSchema": schemaish,
        "description": st.text() | anything,
        "annotations": anything,
        "icons": anything | st.lists(anything, max_size=2),
        "_meta": anything,
        "later": anything,
    },
)


def good(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def reasons(snapshot: Any) -> dict[str, str]:
    return dict(snapshot.set_aside)


@given(st.lists(entries, max_size=6))
def test_f17_no_list_of_a_stranger_raises_and_no_tool_vanishes_without_a_reason(listed: list[Any]):
    snapshot = take_snapshot(listed)
    assert len(snapshot.tools) + len(snapshot.set_aside) == len(listed)
    for name, reason in snapshot.set_aside:
        assert name and reason
        name.encode()
        reason.encode()
    for name, kept in snapshot.tools.items():
        assert kept.definition.name == name
        json.dumps(kept.definition.to_wire()).encode()
        assert isinstance(kept.arguments.is_valid({}), bool)


@given(st.lists(entries, max_size=5), st.integers(0, 5))
def test_f17_a_good_tool_is_there_whatever_stands_beside_it(listed: list[Any], place: int):
    listed.insert(place, good("the good one"))
    assert "the good one" in take_snapshot(listed).tools


@given(st.lists(entries, max_size=5))
def test_h20_the_same_list_again_gives_the_same_tools_and_compiles_nothing(listed: list[Any]):
    first = take_snapshot(listed)
    second = take_snapshot(json.loads(json.dumps(listed)), previous=first)
    assert second.set_aside == first.set_aside
    assert list(second.tools) == list(first.tools)
    assert all(second.tools[name] is kept for name, kept in first.tools.items())


def test_h20_only_a_tool_that_changed_is_compiled_again():
    first = take_snapshot([good("a"), good("b")])
    second = take_snapshot([good("b", description="new"), good("a")], previous=first)
    assert second.tools["a"] is first.tools["a"]
    assert second.tools["b"] is not first.tools["b"]
    assert list(second.tools) == ["b", "a"]


def test_f16_of_two_tools_of_one_name_the_first_is_kept_and_the_second_is_named():
    snapshot = take_snapshot([good("a", description="first"), good("a", description="second")])
    assert snapshot.tools["a"].definition.description == "first"
    assert reasons(snapshot) == {"a": "the server lists this name twice; the first one is used"}


def test_f16_a_bad_tool_does_not_take_the_name_of_a_good_one():
    snapshot = take_snapshot([{"name": "a"}, good("a")])
    assert list(snapshot.tools) == ["a"]
    assert "inputSchema must be an object, found nothing" in reasons(snapshot)["a"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (None, "not an object but NoneType"),
        ("tool", "not an object but str"),
        ({}, "without a usable name"),
        (good("a", icons=[5]), "icons must be a list of objects"),
        (good("a", outputSchema={"type": 5}), "outputSchema is not a usable schema at /type"),
        (good("a", description="\ud800"), "cannot be passed on"),
        (good("a", inputSchema={"type": "object", "$ref": "#"}), "to itself without end"),
        (good("a", inputSchema={"type": "object", "$ref": "https://example.org/"}), "not a usable schema"),
        (good("a", description="x" * 524_288), "more than 524288"),
    ],
)
def test_f17_a_tool_that_cannot_be_used_is_set_aside_with_the_reason(entry: Any, says: str):
    snapshot = take_snapshot([entry, good("other")])
    assert list(snapshot.tools) == ["other"]
    ((_, reason),) = snapshot.set_aside
    assert says in reason


@pytest.mark.parametrize("key", ["inputSchema", "outputSchema", "_meta", "later"])
def test_f20_a_definition_that_is_too_deep_is_set_aside_unread(key: str):
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(20_000):
        deep = {"type": "object", "properties": {"x": deep}}
    snapshot = take_snapshot([good("a", **{key: deep}), good("b")])
    assert list(snapshot.tools) == ["b"]
    assert "nested more than" in reasons(snapshot)["a"]


def test_f15_a_listing_that_was_cut_short_says_so():
    assert not take_snapshot([], complete=False).complete
    assert take_snapshot([]).complete


def test_f17_a_tool_that_runs_only_as_a_task_is_listed():
    listed = [
        {"name": name, "inputSchema": {"type": "object"}, "execution": execution}
        for name, execution in (
            ("only", {"taskSupport": "required"}),
            ("may", {"taskSupport": "optional"}),
            ("odd", "required"),
        )
    ]
    snapshot = take_snapshot(listed)
    assert list(snapshot.tools) == ["only", "may", "odd"] and not snapshot.set_aside
