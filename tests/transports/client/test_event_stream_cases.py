"""Event streams by the letter of their specification (WHATWG HTML, "Server-sent events"), as a table.

The cases are those that browsers and libraries are tested with (web-platform-tests, `eventsource/format-*`;
httpx-sse; eventsource-parser), and those of the specification itself, each in our own words.
"""

from __future__ import annotations

from typing import NamedTuple

import anyio
import pytest
from tests.transports.client.raw_server import EVENTS, Event, EventParser, Request, connected

from mcp_toolset.transports import http_client as module
from mcp_toolset.transports.event_stream import EventTooLongError

BOM = b"\xef\xbb\xbf"


class Case(NamedTuple):
    """A stream, its events (name and data), and what is remembered of it."""

    name: str
    stream: bytes
    events: list[tuple[bytes, bytes]]
    last_id: bytes = b""
    retry: int | None = None


def data(*texts: bytes) -> list[tuple[bytes, bytes]]:
    """Events without a name."""
    return [(b"", text) for text in texts]


CASES = [
    Case("nothing", b"", []),
    Case("one empty line", b"\n", []),
    Case("one line of data", b"data: a\n\n", data(b"a")),
    Case("lines of data are joined", b"data: a\ndata: b\ndata: c\n\n", data(b"a\nb\nc")),
    Case("data without a space", b"data:a\n\n", data(b"a")),
    Case("one space is taken away, no second one", b"data:  a\n\n", data(b" a")),
    Case("a tab is kept", b"data:\ta\n\n", data(b"\ta")),
    Case("a space at the end is kept", b"data: a \n\n", data(b"a ")),
    Case("a colon in the value", b"data: a:b\n\n", data(b"a:b")),
    Case("a colon first in the value", b"data::a\n\n", data(b":a")),
    Case("data with an empty value is an event", b"data:\n\n", data(b"")),
    Case("data with only a space is an event", b"data: \n\n", data(b"")),
    Case("data without a colon is an event", b"data\n\n", data(b"")),
    Case("two lines of data without a colon", b"data\ndata\n\n", data(b"\n")),
    Case("data without a colon among others", b"data: a\ndata\ndata: b\n\n", data(b"a\n\nb")),
    Case("what no empty line ends is no event", b"data: a\n\ndata: b\n", data(b"a")),
    Case("what no line ends is no event", b"data: a\n\ndata: b", data(b"a")),
    Case("an empty line more", b"\n\ndata: a\n\n\n\ndata: b\n\n", data(b"a", b"b")),
    Case("a space before the name is part of it", b" data: a\n\n", []),
    Case("a space behind the name is part of it", b"data : a\n\n", []),
    Case("names are in lower case", b"Data: a\nDATA: b\n\n", []),
    Case("a longer name is another one", b"datax: a\ndata-: b\n\n", []),
    Case("unknown fields are ignored", b"data: a\n fo: b\nxfoo: c\n\n", data(b"a")),
    Case("a name without a colon is ignored", b"nonsense\ndata: a\n\n", data(b"a")),
    Case("NULL within data is kept", b"data: \0\n\n", data(b"\0")),
    Case("NULL within a name makes another one", b"data\0: a\ndata: b\n\n", data(b"b")),
    # Comments.
    Case("a comment", b": hello\ndata: a\n\n", data(b"a")),
    Case("an empty comment", b":\ndata: a\n:\n\n", data(b"a")),
    Case("a comment with NULL and colons", b":\0\r:::\ndata: a\n\n", data(b"a")),
    Case("a comment that looks like data", b"data:1\n:data:2\ndata:3\n\n", data(b"1\n3")),
    Case("a comment alone is no event", b": hello\n\n", []),
    Case("a long comment", b":" + b"x" * 2000 + b"\ndata: a\n\n", data(b"a")),
    # The byte order mark.
    Case("a mark at the start is taken away", BOM + b"data: a\n\n", data(b"a")),
    Case("a second mark is part of the name", BOM + BOM + b"data: a\n\ndata: b\n\n", data(b"b")),
    Case(
        "a mark later is part of the name", b"data: a\n\n" + BOM + b"data: b\n\ndata: c\n\n", data(b"a", b"c")
    ),
    Case("a mark before an empty line", BOM + b"\ndata: a\n\n", data(b"a")),
    Case("a mark before a comment", BOM + b": x\ndata: a\n\n", data(b"a")),
    Case("half a mark is part of the name", BOM[:2] + b"data: a\n\ndata: b\n\n", data(b"b")),
    # The name of events.
    Case("a name", b"event: tick\ndata: a\n\ndata: b\n\n", [(b"tick", b"a"), (b"", b"b")]),
    Case("the last name counts", b"event: a\nevent: b\ndata: c\n\n", [(b"b", b"c")]),
    Case("an empty name is none", b"event: \ndata: a\n\n", data(b"a")),
    Case("an empty name takes the one before away", b"event: a\nevent\ndata: b\n\n", data(b"b")),
    Case("a name without data is no event, and forgotten", b"event: a\n\ndata: b\n\n", data(b"b")),
    # The id.
    Case("an id", b"id: 1\ndata: a\n\n", data(b"a"), b"1"),
    Case("an id behind the data", b"data: a\nid: 1\n\n", data(b"a"), b"1"),
    Case("an id stays", b"id: 1\ndata: a\n\ndata: b\n\n", data(b"a", b"b"), b"1"),
    Case("the last id of an event counts", b"id: 1\nid: 2\ndata: a\n\n", data(b"a"), b"2"),
    Case("an id without data counts", b"id: 1\n\n", [], b"1"),
    Case("an id of an event that is not ended counts not", b"id: 1\n\nid: 2\ndata: a\n", [], b"1"),
    Case("an id that no line ends counts not", b"id: 1\n\nid: 2", [], b"1"),
    Case("an empty id takes the one before away", b"id: 1\ndata: a\n\nid:\ndata: b\n\n", data(b"a", b"b")),
    Case("an id without a colon takes it away", b"id: 1\n\nid\ndata: b\n\n", data(b"b")),
    Case("an id with NULL is ignored", b"id: 1\nid: 2\0\ndata: a\n\n", data(b"a"), b"1"),
    Case("an id that is NULL is ignored", b"id: \0\ndata: a\n\n", data(b"a")),
    Case("an id in UTF-8", b"id: \xe2\x80\xa6\ndata: a\n\n", data(b"a"), b"\xe2\x80\xa6"),
    Case("names are no id", b"ID: 1\nId: 2\nid : 3\ndata: a\n\n", data(b"a")),
    # The wait.
    Case("a wait", b"retry: 250\n\n", [], retry=250),
    Case("a wait counts at once", b"retry: 250\n", [], retry=250),
    Case("a wait with zeros before it", b"retry: 0000000000000000000250\n\n", [], retry=250),
    Case("no wait at all", b"retry: 0\n\n", [], retry=0),
    Case("a wait that is none is ignored", b"retry: 250\nretry: 1000x\n\n", [], retry=250),
    Case("an empty wait is ignored", b"retry: 250\nretry\nretry:\n\n", [], retry=250),
    Case(
        "a wait with a sign, a point or a space is ignored",
        b"retry: +1\nretry: -1\nretry: 1.5\nretry:  1\n\n",
        [],
    ),
    Case("digits of other scripts are ignored", b"retry: \xd9\xa1\n\n", []),
    Case(
        "a wait of thousands of digits is a long one",
        b"retry: " + b"9" * 5000 + b"\n\n",
        [],
        retry=999999999999,
    ),
    # The ends of lines.
    Case("LF", b"data: a\ndata: b\n\ndata: c\n\n", data(b"a\nb", b"c")),
    Case("CR", b"data: a\rdata: b\r\rdata: c\r\r", data(b"a\nb", b"c")),
    Case("CRLF", b"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", data(b"a\nb", b"c")),
    Case("all three", b"data: a\rdata: b\ndata: c\r\n\r\ndata: d\n\r", data(b"a\nb\nc", b"d")),
    Case("LF and CR are two ends", b"data: a\n\rdata: b\n\n", data(b"a", b"b")),
    Case("CR and CRLF are two ends", b"data: a\r\r\ndata: b\n\n", data(b"a", b"b")),
    Case(
        "no other character ends a line",
        b"data: a\x0bb\x0cc\x1cd\x1de\x1ef\xc2\x85g\xe2\x80\xa8h\xe2\x80\xa9i\n\n",
        data(b"a\x0bb\x0cc\x1cd\x1de\x1ef\xc2\x85g\xe2\x80\xa8h\xe2\x80\xa9i"),
    ),
    # UTF-8.
    Case("what is no UTF-8 stays what it is", b"data: \xff\xfe\n\n", data(b"\xff\xfe")),
    Case("characters of several bytes", "data: ok…ü🥌\n\n".encode(), data("ok…ü🥌".encode())),
]


def parsed(chunks: list[bytes]) -> tuple[list[tuple[bytes, bytes]], bytes, int | None]:
    parser = EventParser(100_000)
    events: list[Event] = [event for chunk in chunks for event in parser.feed(chunk)]
    return [(event.name, event.data) for event in events], parser.last_id, parser.retry


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_u114_a_stream_means_what_its_specification_says(case: Case) -> None:
    expected = (case.events, case.last_id, case.retry)
    assert parsed([case.stream]) == expected
    assert parsed([case.stream[at : at + 1] for at in range(len(case.stream))]) == expected
    for cut in range(min(len(case.stream), 100)):
        assert parsed([case.stream[:cut], b"", case.stream[cut:]]) == expected


def test_an_event_of_megabytes_in_small_chunks_is_one_event_and_takes_linear_time() -> None:
    data = b"x" * 4_000_000
    stream = b"data: " + data + b"\n\n"
    parser = EventParser(5_000_000)
    events = [event for at in range(0, len(stream), 1000) for event in parser.feed(stream[at : at + 1000])]
    assert events == [Event(b"", data)] and parser.is_between_events


@pytest.mark.parametrize(
    "chunk", [b"x" * 60, b"data: " + b"x" * 50 + b"\n", b"id: " + b"x" * 50 + b"\n", b": " + b"x" * 60]
)
def test_what_is_kept_of_one_event_is_bounded(chunk: bytes) -> None:
    parser = EventParser(100)
    with pytest.raises(EventTooLongError, match="more than 100 bytes"):
        for _ in range(2):
            list(parser.feed(chunk))


def test_many_events_and_comments_are_no_long_event() -> None:
    parser, chunk = EventParser(100), b"data: " + b"x" * 80 + b"\n\n: " + b"y" * 80 + b"\n"
    assert sum(len(list(parser.feed(chunk))) for _ in range(50)) == 50
    assert parser.is_between_events


RESULT = b'data: {"jsonrpc":"2.0","id":1,"result":{"ok":true}}\n\n'


@pytest.mark.anyio
@pytest.mark.parametrize("cut", range(0, len(RESULT), 7))
@pytest.mark.parametrize("order", ["id first", "id last"])
async def test_u114_an_answer_that_was_cut_is_asked_for_from_the_last_whole_event(
    order: str, cut: int
) -> None:
    answer = b"id: e-2\n" + RESULT if order == "id first" else RESULT[:-1] + b"id: e-2\n\n"
    cut = min(len(answer) - 1, cut + 8)
    asked = list[str]()

    async def handler(request: Request) -> None:
        if request.verb == "POST":
            begin = b"id: e-1\nretry: 0\ndata:\n\n"
            await request.send(EVENTS + b"content-length: 9999\r\n\r\n" + begin + answer[:cut])
        else:
            asked.append(request.headers["last-event-id"])
            # A server that believes that the second event has arrived has nothing more to send.
            replay = answer if asked[-1] == "e-1" else b""
            await request.send(EVENTS + b"content-length: %d\r\n\r\n" % len(replay) + replay)
        request.writer.close()

    async with connected(handler) as (client, raw, _):
        assert await client.send_raw_request("tools/call", {}, {"timeout": 20}) == {"ok": True}
    assert asked == ["e-1"]


@pytest.mark.anyio
@pytest.mark.parametrize("said", [b"0", b"50"])
@pytest.mark.parametrize("primed", [b"", b"id: e-%d\ndata:\n\n", b": nothing yet\n\n"])
async def test_u114_empty_answers_are_asked_for_again_less_and_less_often(
    said: bytes, primed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()
    sleep = anyio.sleep

    async def noted(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    async def handler(request: Request) -> None:
        number = len(waits)
        body = primed % number if b"%d" in primed else primed
        if number == 10:
            body = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\n\n'
        elif number == 12:
            body = RESULT
        elif request.verb == "POST":
            body = b"id: e-0\nretry: %b\ndata:\n\n" % said
        await request.send(EVENTS + b"content-length: %d\r\n\r\n" % len(body) + body)

    async with connected(handler) as (client, _, _):
        monkeypatch.setattr(module.anyio, "sleep", noted)
        assert await client.send_raw_request("tools/call", {}, {"timeout": 20}) == {"ok": True}
    # The first one as soon as the server says; after a message all begins anew.
    assert waits == [0.05, 0.5, 1, 2, 4, 8, 16, 30, 30, 30, 0.05, 0.5]
