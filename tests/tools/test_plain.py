"""Copies of JSON data share nothing that could be changed (F40)."""

from __future__ import annotations

from copy import deepcopy
from datetime import date
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.tools.definition import copied

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


def containers(value: Any) -> list[int]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [id(value)] if isinstance(value, dict | list) else []
    return [*own, *(found for item in inner for found in containers(item))]


@given(st.dictionaries(st.text(), JSON))
def test_f40_a_copy_is_equal_and_shares_no_container(arguments: dict[str, Any]):
    kept, made = deepcopy(arguments), copied(arguments)
    assert made == kept and not set(containers(made)) & set(containers(arguments))


def test_f40_what_json_does_not_have_is_copied_too():
    days = {"days": ({"first": date(2026, 7, 28)}, [1])}
    made = copied(days)
    assert made == days and made["days"][0] is not days["days"][0]
