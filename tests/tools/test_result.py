import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import from_json, to_json

from mcp_toolset import ToolResult

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Place(BaseModel):
    city: str


@dataclass
class Point:
    x: int


@given(values)
def test_h25_a_structured_result_is_json_and_its_text_says_the_same(value: Any):
    result = ToolResult.of_structured(value)
    again = json.loads(json.dumps(result.wire, allow_nan=False))
    assert json.loads(result.text) == again["structuredContent"]


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": [-math.inf]}])
def test_h25_numbers_that_json_cannot_say_are_null(value: Any):
    result = ToolResult.of_structured(value)
    assert json.loads(json.dumps(result.structured, allow_nan=False)) in (None, {"a": [None]})
    assert "NaN" not in result.text and "Infinity" not in result.text


@pytest.mark.parametrize("value", [Place(city="Oslo"), Point(1), {"p": Point(1)}])
def test_h25_models_and_dataclasses_are_structured_as_plain_data(value: Any):
    assert type(ToolResult.of_structured(value).structured) is dict


def test_h25_a_value_without_a_json_form_is_an_error():
    with pytest.raises(ValueError, match="object"):
        ToolResult.of_structured(object())


@given(st.text(st.characters(), max_size=20))
def test_f23_any_text_can_go_on_a_wire(text: str):
    for result in (
        ToolResult.of_text(text),
        ToolResult.of_error(text),
        ToolResult.of_structured(1, text=text),
    ):
        assert from_json(to_json(result.wire)) == result.wire


@given(st.text())
def test_f23_text_that_can_be_encoded_stays_as_it_is(text: str):
    assert ToolResult.of_text(text).text == text


def test_h25_the_plainest_value_of_each_kind_of_result():
    block = {"type": "image", "data": "", "mimeType": "image/png"}
    assert ToolResult.of_structured({"a": 1}).value() == {"a": 1}
    assert ToolResult.of_structured(None).value() is None
    assert ToolResult.of_text("hi").value() == "hi"
    assert ToolResult.of_content([]).value() == []
    assert ToolResult.of_content([block]).value() == [block]
    assert ToolResult.of_content([block, {"type": "text", "text": "x"}]).value() == [
        block,
        {"type": "text", "text": "x"},
    ]


def test_h25_text_joins_the_text_blocks_and_falls_back_to_the_structured_content():
    blocks = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert ToolResult.of_content(blocks).text == "a\nb"
    assert ToolResult({"structuredContent": {"ä": 1}}).text == '{"ä": 1}'
    assert ToolResult({}).text == ""


def test_h25_a_malformed_text_block_of_a_stranger_raises_nothing():
    assert ToolResult({"content": [{"type": "text"}]}).text == ""
    assert ToolResult({"content": [{"type": "text"}]}).value() == ""
    assert ToolResult({"content": None}).content == ()


def test_n7_errors_are_marked_and_others_are_not():
    assert ToolResult.of_error("no").is_error
    assert ToolResult.of_content([], is_error=True).is_error
    assert "isError" not in ToolResult.of_text("yes").wire
    assert not ToolResult({"isError": "yes"}).is_error


def test_a_result_that_waits_for_input_is_not_complete():
    assert not ToolResult({"resultType": "input_required"}).is_complete
    assert ToolResult({}).is_complete
