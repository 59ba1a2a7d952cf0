"""Answers as lines: long texts are written as they were read, and everything else as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from mcp_toolset.protocol import eras as answers
from mcp_toolset.protocol.eras import (
    Encoded,
    Verbatim,
    answer_line,
    answer_parts,
    carried,
    noted,
    result_for,
    with_tools,
)
from mcp_toolset.protocol.json_rpc import json_of

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
kinds = st.sampled_from(["type", "text", "data", "blob", "uri"])
odd = st.dictionaries(
    kinds | st.just("resource"), texts | st.dictionaries(kinds, texts, max_size=3), max_size=4
)
blocks = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}),
    st.fixed_dictionaries({"type": st.just("image"), "data": texts, "mimeType": st.just("image/png")}),
    st.fixed_dictionaries(
        {
            "type": st.just("resource"),
            "resource": st.fixed_dictionaries({"uri": texts}, optional={"blob": texts}),
        }
    ),
    st.none() | texts | st.just({"type": "text", "text": 3}),
    odd,
)
results = st.fixed_dictionaries(
    {"content": st.lists(blocks, max_size=4) | st.none()}, optional={"structuredContent": blocks}
)


@pytest.fixture
def _all_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONG", 1)


def read(result: dict[str, Any], *, escaped: bool = False) -> dict[str, Any]:
    """The result as it is read from the line of an answer."""
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}, ensure_ascii=escaped).encode()
    return noted(from_json(line), line)["result"]


@pytest.mark.usefixtures("_all_are_long")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(result=results, escaped=st.booleans())
@example(result={"content": [{"data": "AAAA", "text": "BBBB"}] * 2}, escaped=False)
@example(result={"content": [{"blob": "AAAA", "data": "BBBB", "text": "CCCC"}] * 2}, escaped=False)
@example(result={"content": [{"resource": {"text": "AAAA"}, "text": "BBBB"}] * 2}, escaped=False)
@example(
    result={"content": [{"text": "A", "resource": {"blob": "B", "text": "C"}, "data": "D"}] * 2},
    escaped=False,
)
def test_whatever_is_read_is_written_the_same(result: dict[str, Any], escaped: bool) -> None:
    line = answer_line(7, read(result, escaped=escaped), None)
    assert json.loads(line) == {"jsonrpc": "2.0", "id": 7, "result": result}


@pytest.mark.usefixtures("_all_are_long")
def test_long_texts_are_parts_of_their_own() -> None:
    result = read({"content": [{"type": "text", "text": "täxt"}, {"type": "image", "data": "AAAA"}]})
    parts = answer_parts(1, result, None)
    assert parts[1::2] == ["täxt".encode(), b"AAAA"]
    assert from_json(b"".join(parts)) == {"jsonrpc": "2.0", "id": 1, "result": result}


@pytest.mark.usefixtures("_all_are_long")
@pytest.mark.parametrize("text", ['a "quoted" word', "two\nlines", "back\\slash", "\x01", "\u2028\\"])
def test_a_line_with_an_escape_in_it_is_written_anew(text: str) -> None:
    result = read({"content": [{"type": "text", "text": text}]})
    assert type(result) is dict
    assert json.loads(answer_line(1, result, None))["result"]["content"][0]["text"] == text


@pytest.mark.usefixtures("_all_are_long")
@pytest.mark.parametrize("text", ['"', "\n", "\\", "AAAA"])
def test_a_text_that_was_put_in_the_place_of_a_long_one_is_written_as_any_other(text: str) -> None:
    result = read({"content": [{"type": "text", "text": "long"}, {"type": "text", "text": "kept"}]})
    result["content"][0]["text"] = text
    parts = answer_parts(1, result, None)
    assert [part for part in parts if part == b"kept"]
    assert json.loads(b"".join(parts))["result"]["content"][0]["text"] == text


@pytest.mark.usefixtures("_all_are_long")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_the_envelope_of_another_era_keeps_the_texts(version: str) -> None:
    result = read({"content": [{"type": "text", "text": "long"}]})
    enveloped = result_for(result, version=version, stamp={})
    assert type(enveloped) is Verbatim
    assert b"long" in answer_parts(1, enveloped, None)


def test_a_result_whose_content_is_gone_is_written_without() -> None:
    assert from_json(answer_line(1, Verbatim({"a": 1}, ["x"]), None))["result"] == {"a": 1}
    assert type(carried({"a": 1}, {"b": 2})) is dict


def test_short_lines_are_not_looked_at_twice() -> None:
    assert type(read({"content": [{"type": "text", "text": "short"}]})) is dict


@given(tools=st.lists(blocks, max_size=3), more=st.lists(blocks, max_size=3))
def test_a_list_with_more_at_its_end_is_in_json_what_it_is(tools: list[Any], more: list[Any]) -> None:
    listed = {"tools": tools}
    longer = with_tools(Encoded(listed, json_of(listed)), more)
    assert longer == {"tools": [*tools, *more]}
    assert from_json(longer.json) == longer


def test_a_result_that_is_in_json_is_written_as_it_is() -> None:
    assert answer_line("a", Encoded({"a": 1}, b'{"a":1.0}'), None) == (
        b'{"jsonrpc":"2.0","id":"a","result":{"a":1.0}}'
    )
