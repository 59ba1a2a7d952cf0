"""Whole results in memory: for whom, how long, within which bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset import ToolResult
from mcp_toolset.extensions.large_results.extension import KeptResults, characters_of


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_m7_a_result_is_found_by_its_owner_alone_and_until_its_time_is_over() -> None:
    clock = Clock()
    kept = KeptResults(1000, 10.0, clock)
    one = kept.keep(ToolResult.of_text("one"), "principal:ann", 3)
    assert kept.find(one.id, "principal:ann") is one
    assert kept.find(one.id, "principal:bob") is None and kept.find(one.id, None) is None
    clock.now = 10.0
    assert kept.find(one.id, "principal:ann") is None
    kept.keep(ToolResult.of_text("two"), None, 3)
    assert len(kept) == 1, "what is over takes no room"


@given(st.lists(st.integers(1, 400), min_size=1, max_size=40), st.integers(1, 1000))
def test_m7_the_newest_is_kept_and_all_of_them_stay_within_the_bound(sizes: list[int], most: int) -> None:
    store = KeptResults(most, 10.0, Clock())
    held = [store.keep(ToolResult.of_text("x"), None, size) for size in sizes]
    there = [one for one in held if store.find(one.id, None) is not None]
    assert held[-1] in there and len(there) == len(store)
    assert len(there) == 1 or sum(one.size for one in there) <= most
    assert there == held[-len(there) :], "the oldest go first"


def test_m7_a_result_that_was_read_stays_longer_than_one_that_was_not() -> None:
    store = KeptResults(10, 10.0, Clock())
    old, other = (store.keep(ToolResult.of_text("x"), None, 4) for _ in range(2))
    assert store.find(old.id, None) is old
    store.keep(ToolResult.of_text("x"), None, 4)
    assert store.find(old.id, None) is old and store.find(other.id, None) is None


def test_u80_the_results_of_one_caller_push_out_none_of_others() -> None:
    store = KeptResults(10, 10.0, Clock())
    bobs = store.keep(ToolResult.of_text("x"), "principal:bob", 4)
    anns = [store.keep(ToolResult.of_text("x"), "principal:ann", 3) for _ in range(8)]
    assert store.find(bobs.id, "principal:bob") is bobs
    assert [each for each in anns if store.find(each.id, "principal:ann")] == anns[-2:]
    big = store.keep(ToolResult.of_text("x"), "principal:bob", 9)
    assert len(store) == 1 and store.find(big.id, "principal:bob") is big


def test_m7_ids_cannot_be_guessed() -> None:
    store = KeptResults(10**6, 10.0, Clock())
    ids = {store.keep(ToolResult.of_text("x"), None, 1).id for _ in range(200)}
    assert len(ids) == 200 and all(len(id) == 18 for id in ids)


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (ToolResult.of_text("plain"), "plain"),
        (ToolResult.of_text('{"a": 1}'), {"a": 1}),
        (ToolResult.of_text("[not json"), "[not json"),
        (ToolResult.of_structured({"a": [1]}), {"a": [1]}),
        (ToolResult.of_structured({"a": [1]}, text="one a"), {"a": [1]}),
        (
            ToolResult({"content": [{"type": "text", "text": "[1]"}], "structuredContent": {"result": [1]}}),
            [1],
        ),
    ],
)
def test_m7_the_value_is_what_the_model_was_shown_if_that_is_json(result: ToolResult, value: object) -> None:
    assert KeptResults(10, 10.0, Clock()).keep(result, None, 1).value == value


def test_m7_text_and_structured_content_that_say_the_same_count_once() -> None:
    assert characters_of(ToolResult.of_structured({"a": "b"})) == len('{"a":"b"}')
    assert characters_of(ToolResult({"content": [], "structuredContent": {"a": "b"}})) == len('{"a":"b"}')
    assert characters_of(ToolResult.of_content([{"type": "image", "data": "x" * 99, "mimeType": "a/b"}])) == 0
    embedded = {"type": "resource", "resource": {"uri": "a://b", "text": "12345"}}
    assert characters_of(ToolResult.of_content([embedded])) == 5
