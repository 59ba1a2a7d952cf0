"""Parts of a long result: paths, ranges, searches, and the shape of the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import from_json

from mcp_toolset.errors import CallError
from mcp_toolset.extensions.large_results.extension import part_of, shape_of, value_at

ROWS = {"rows": [{"id": n, "name": f"name {n}", "a.b": {"c": n}} for n in range(30)], "next": None}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("", ROWS),
        ("$", ROWS),
        ("rows.3.name", "name 3"),
        ("rows[3].name", "name 3"),
        ("$.rows[3].id", 3),
        ("rows.*.id", list(range(30))),
        ("rows[*].id", list(range(30))),
        ("/rows/2/a.b/c", 2),
        ("next", None),
    ],
)
def test_m7_a_path_leads_into_json(path: str, value: object) -> None:
    assert value_at(ROWS, path) == value


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("row", "there is no 'row'; the result is {rows: [30 × {id: number"),
        ("rows.30", "there is no '30'; at 'rows' there is [30 × "),
        ("rows.-1", "there is no '-1'"),
        ("rows.²", "there is no '²'"),
        ("rows.0.name.x", "there is no 'x'; at 'rows.0.name' there is text"),
        ("next.a", "at 'next' there is null"),
        ("*", "there is no '*'"),
    ],
)
def test_m7_a_path_that_leads_nowhere_is_told_what_is_there(path: str, told: str) -> None:
    with pytest.raises(CallError) as caught:
        value_at(ROWS, path)
    assert told in str(caught.value)


@example([{"": None, "00": None}], 20, 1)
@example([10**8, 10**9], 22, 7)
@given(st.lists(JSON, max_size=30), st.integers(20, 200), st.integers(1, 7))
def test_m7_the_pages_of_a_list_are_the_list(entries: list[Any], most: int, limit: int) -> None:
    read: list[Any] = []
    at: int | None = 0
    while at is not None:
        part = part_of(entries, find="", offset=at, limit=limit, most=most)
        if "alone has" in part.note:
            read.append(entries[at])
        else:
            read += from_json(part.text)
        assert len(part.text) <= most
        assert part.next is None or part.next > at
        at = part.next
    assert read == entries


@given(st.text(max_size=300), st.integers(1, 50))
def test_m7_the_pages_of_a_text_are_the_text(text: str, most: int) -> None:
    read, at = "", 0
    while at is not None:
        part = part_of(text, find="", offset=at, limit=None, most=most)
        read, at = read + part.text, part.next
    assert read == text


@given(JSON, st.text(min_size=1, max_size=3), st.integers(1, 3))
def test_m7_the_pages_of_a_search_have_each_match_once(value: Any, find: str, limit: int) -> None:
    whole = part_of(value, find=find, offset=0, limit=1000, most=10**6)
    pages: list[str] = []
    at: int | None = 0
    while at is not None:
        part = part_of(value, find=find, offset=at, limit=limit, most=10**6)
        pages += [part.text] if part.text else []
        at = part.next
    assert "\n".join(pages) == whole.text


def test_m7_a_search_says_where_each_match_is() -> None:
    assert part_of(ROWS["rows"], find="NAME 29", offset=0, limit=None, most=999).text.startswith(
        '29: {"id":29'
    )
    found = part_of(ROWS, find="name 2", offset=1, limit=2, most=999)
    assert found.text == "rows.20.name: name 20\nrows.21.name: name 21"
    assert (found.note, found.next) == ("matches 2 to 3 of 11", 3)
    text = part_of("one\ntwo\nThree two", find="two", offset=0, limit=None, most=999)
    assert text.text == "line 2: two\nline 3: Three two"
    nothing = part_of("one", find="x", offset=0, limit=None, most=999)
    assert (nothing.text, nothing.note, nothing.next) == ("", "no match", None)


def test_m7_an_offset_past_the_end_is_said() -> None:
    assert part_of([1, 2], find="", offset=5, limit=None, most=99).note == "no entry 5 of 2"
    assert part_of("ab", find="", offset=5, limit=None, most=99).text == ""


@given(JSON)
def test_m7_a_shape_is_short_and_one_line(value: Any) -> None:
    assert "\n" not in shape_of(value).replace("\\n", "") or "\n" in str(value)


def test_m7_the_shape_of_a_table_tells_its_columns() -> None:
    assert shape_of([{"a": 1, "b": [True, "x"]}] * 3) == "[3 × {a: number, b: [2 × true or false]}]"
    wide = shape_of({f"k{n}": n for n in range(40)})
    assert wide.endswith("k11: number, 28 more}")


def test_m7_a_match_longer_than_a_page_is_shown_in_part_and_the_next_follows() -> None:
    entries = [{"name": f"{number} " + "x" * 500} for number in range(3)]
    part = part_of(entries, find="x", offset=0, limit=None, most=100)
    assert part.text.startswith('0: {"name":"0 x') and len(part.text) == 100
    assert (part.note, part.next) == ("matches 1 to 1 of 3", 1)


@pytest.mark.parametrize(
    "text", ["ß" * 3000 + " needle", "İ" * 500 + "Needle", "ﬃ" * 9 + "needle " + "z" * 400]
)
def test_m7_a_match_is_shown_where_letters_before_it_fold_to_several(text: str) -> None:
    for value in (text, {"a": text}):
        part = part_of(value, find="NEEDLE", offset=0, limit=None, most=2000)
        assert "needle" in part.text.lower() and len(part.text) < 500


def test_m7_a_path_of_many_digits_leads_nowhere() -> None:
    with pytest.raises(CallError, match="has no such path"):
        value_at(ROWS, "rows." + "9" * 5000)
