"""Events in a stream of bytes, wherever it is cut and however its lines end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.transports.http_client import Event, EventParser, EventTooLongError

STREAM = (
    b"\xef\xbb\xbf: hello\n\nevent: endpoint\ndata: /messages\n\nid: 7\nretry: 250\ndata:\n\n"
    b"data: one\ndata: two\nid: 8\n\nevent: message\ndata:  {}\nevent\n\nnonsense\ndata: \xc3\xbc\n\n\n"
    b"retry: soon\nid: with\0null\ndata\n\ndata: unfinished"
)
EVENTS = [
    Event(b"endpoint", b"/messages"),
    Event(b"", b""),
    Event(b"", b"one\ntwo"),
    Event(b"", b" {}"),
    Event(b"", "ü".encode()),
    Event(b"", b""),
]


def parsed(chunks: list[bytes], limit: int = 1000) -> tuple[list[Event], EventParser]:
    parser = EventParser(limit)
    return [event for chunk in chunks for event in parser.feed(chunk)], parser


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_stream_is_the_same_events_whatever_its_lines_end_with_and_cut_at_every_byte(end: bytes) -> None:
    stream = STREAM.replace(b"\n", end)
    for cut in range(len(stream)):
        events, parser = parsed([stream[:cut], stream[cut:]])
        assert events == EVENTS
        assert (parser.last_id, parser.retry) == (b"8", 250)
    assert parsed([stream[place : place + 1] for place in range(len(stream))])[0] == EVENTS


@pytest.mark.parametrize("cut", [[b"data: a\r", b"\n", b"\n"], [b"data: a\r", b"", b"\n", b"\n"]])
def test_a_line_that_ends_in_two_chunks_swallows_no_empty_line_behind_it(cut: list[bytes]) -> None:
    assert parsed(cut)[0] == [Event(b"", b"a")]


@given(st.lists(st.integers(1, 30)), st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=1))
def test_a_stream_is_the_same_events_however_it_is_cut(sizes: list[int], ends: list[bytes]) -> None:
    lines = STREAM.split(b"\n")
    rest = b"".join(line + ends[number % len(ends)] for number, line in enumerate(lines[:-1])) + lines[-1]
    if b"\r" in ends and b"\n" in ends:
        # A lone CR before a lone LF would be one end of a line.
        rest = STREAM
    chunks: list[bytes] = []
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    assert parsed([*chunks, rest])[0] == EVENTS


def test_an_event_of_megabytes_in_small_chunks_is_one_event_and_takes_linear_time() -> None:
    data = b"x" * 4_000_000
    stream = b"data: " + data + b"\n\n"
    events, parser = parsed([stream[at : at + 1000] for at in range(0, len(stream), 1000)], 5_000_000)
    assert events == [Event(b"", data)] and parser.is_between_events


@pytest.mark.parametrize(
    "chunk", [b"x" * 60, b"data: " + b"x" * 50 + b"\n", b"id: " + b"x" * 50 + b"\n", b": " + b"x" * 60]
)
def test_what_is_kept_of_one_event_is_bounded(chunk: bytes) -> None:
    with pytest.raises(EventTooLongError, match="more than 100 bytes"):
        parsed([chunk, chunk], 100)


def test_many_events_and_comments_are_no_long_event() -> None:
    events, parser = parsed([b"data: " + b"x" * 80 + b"\n\n: " + b"y" * 80 + b"\n"] * 50, 100)
    assert len(events) == 50 and parser.is_between_events


def test_the_place_to_come_back_to_is_kept_from_stream_to_stream() -> None:
    _, first = parsed([b"id: 1\nretry: 20\n\n"])
    second = EventParser(100, first.last_id, first.retry)
    assert list(second.feed(b"data: x\n\n")) == [Event(b"", b"x")]
    assert (second.last_id, second.retry) == (b"1", 20)
