"""Messages as bytes: whichever writer there is, what is written is the same, and nothing is rounded."""

from __future__ import annotations

import importlib.util
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from mcp_toolset.protocol import json_rpc as messages
from mcp_toolset.protocol.json_rpc import json_of, request_key

WRITERS = [
    pytest.param(False, id="pydantic"),
    pytest.param(
        True,
        id="orjson",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("orjson") is None, reason="orjson, the extra `fast`, is not installed"
        ),
    ),
]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(params=WRITERS)
def _writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(messages, "orjson", None)


def finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [finite(item) for item in value]
    return {key: finite(item) for key, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.usefixtures("_writer")
def test_what_is_written_is_read_as_it_was_but_for_numbers_that_json_does_not_have() -> None:
    @given(values)
    def holds(value: Any) -> None:
        written = json_of({"v": value})
        assert b"\n" not in written
        assert from_json(written) == json.loads(written) == {"v": finite(value)}

    holds()


@pytest.mark.usefixtures("_writer")
@pytest.mark.parametrize("value", ["\ud800", object(), {"a": ["\udfff"]}])
def test_what_has_no_json_form_is_an_error(value: Any) -> None:
    with pytest.raises(ValueError):
        json_of({"v": value})


@given(st.integers(-(10**18), 10**18))
def test_a_number_that_comes_back_as_text_is_the_same_id(number: int) -> None:
    assert request_key(str(number)) == request_key(number) == number


@pytest.mark.parametrize("text", ["", "-", "call-1", "1.0", "--1", "9" * 5000, "a7"])
def test_an_id_that_is_no_number_stays_as_it_is(text: str) -> None:
    assert request_key(text) == text
