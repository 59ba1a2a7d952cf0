"""Shapes: what each takes, and how a fault is said."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_toolset.protocol.methods import (
    FLAG,
    ID,
    NUMBER,
    OBJECT,
    TEXT,
    Items,
    Members,
    OneOf,
    Shape,
    TaggedUnion,
    Values,
)

POINT = Members({"x": NUMBER}, {"label": TEXT})
VALUES: list[Any] = [None, True, 0, 1.5, "text", [], {}]


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        (TEXT, ["text"]),
        (FLAG, [True]),
        (NUMBER, [0, 1.5]),
        (ID, [0, "text"]),
        (OBJECT, [{}]),
        (Items(TEXT), [[]]),
        (Values(TEXT), [{}]),
        (OneOf(("text",)), ["text"]),
    ],
)
def test_a_member_has_its_types_and_a_boolean_is_no_number(shape: Shape, taken: list[Any]) -> None:
    required, optional = Members({"a": shape}), Members(optional={"a": shape})
    for value in VALUES:
        fault = required.fault({"a": value})
        assert (fault is None) == (value in taken and type(value) in map(type, taken)), value
        assert fault is None or fault == f"a must be {shape.noun}"
        assert optional.fault({"a": value}) == (None if value is None else fault)
    assert required.fault({}) == "a is missing"
    assert optional.fault({"b": object()}) is None


@pytest.mark.parametrize(
    ("shape", "value", "fault"),
    [
        (POINT, {"x": 1, "label": "p", "more": []}, None),
        (POINT, {"x": 1, "label": 5}, "at.label must be a string"),
        (Items(POINT), [{"x": 1}, {"x": "1"}], "at.1.x must be a number"),
        (Items(POINT), [{"x": 1}, None], "at.1 must be an object"),
        (Items(Items(TEXT)), [["a"], [5]], "at.1.0 must be a string"),
        (Values(POINT), {"p": {"x": 1}, "q": {}}, "at.q.x is missing"),
        (Values(OneOf(("a", "b"))), {"p": "c"}, "at.p must be one of a, b"),
        (TaggedUnion("type", {"point": POINT}), {"type": "point", "x": 1}, None),
        (TaggedUnion("type", {"point": POINT}), {"type": "point"}, "at.x is missing"),
        (TaggedUnion("type", {"point": POINT}), {"type": "line"}, "at.type must be one of point"),
        (TaggedUnion("type", {"point": POINT}), {"type": ["point"]}, "at.type must be one of point"),
        (TaggedUnion("type", {"point": POINT}), {}, "at.type must be one of point"),
    ],
)
def test_a_fault_deep_inside_is_said_with_its_place(shape: Shape, value: Any, fault: str | None) -> None:
    assert shape.fault(value, "at") == fault
    assert Members({"at": shape}).fault({"at": value}) == fault


def test_further_members_may_be_added_to_a_shape() -> None:
    more = POINT.and_optional(y=NUMBER)
    assert more.fault({"x": 1, "y": "2"}) == "y must be a number"
    assert more.fault({"x": 1}) is None
    assert POINT.fault({"x": 1, "y": "2"}) is None
