"""Replies as servers, proxies and attackers write them, as a table of what our client makes of each.

The cases are those that parsers are tested with (h11, llhttp), and RFC 9112 itself, in our own words. Each is
sent in one piece and byte by byte, over plain connections and by httpx2, with the same outcome. A second
request shows whether the connection is used again, and that nothing of the first reply is taken for its own.
"""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import pytest
from tests.transports.client.raw_server import Carrier, Request, raw_server

from mcp_toolset.transports.carrier import release

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
FINE = OK + b"content-length: 2\r\n\r\n{}"
BAD = "refused"
AGAIN, CLOSED = "again", "closed"

CASES: dict[str, tuple[bytes, tuple[Any, ...]]] = {
    # Lengths.
    "a length": (FINE, (200, b"{}", AGAIN)),
    "a length of nothing": (OK + b"content-length: 0\r\n\r\n", (200, b"", AGAIN)),
    "a length with zeros": (OK + b"content-length: 0002\r\n\r\n{}", (200, b"{}", AGAIN)),
    "the same length twice": (OK + b"content-length: 2\r\n" * 2 + b"\r\n{}", (200, b"{}", AGAIN)),
    "the same length in one line": (OK + b"content-length: 2, 2\r\n\r\n{}", (200, b"{}", AGAIN)),
    "two lengths": (OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}x", (BAD,)),
    "two lengths in one line": (OK + b"content-length: 2, 3\r\n\r\n{}x", (BAD,)),
    "a length with a sign": (OK + b"content-length: +2\r\n\r\n{}", (BAD,)),
    "a length below zero": (OK + b"content-length: -2\r\n\r\n{}", (BAD,)),
    "a length in hexadecimal": (OK + b"content-length: 0x2\r\n\r\n{}", (BAD,)),
    "a length with a point": (OK + b"content-length: 2.0\r\n\r\n{}", (BAD,)),
    "a length with an underscore": (OK + b"content-length: 1_0\r\n\r\n{}", (BAD,)),
    "a length of nothing at all": (OK + b"content-length: \r\n\r\n", (BAD,)),
    "a length of 30 digits": (OK + b"content-length: " + b"9" * 30 + b"\r\n\r\n{}", (BAD,)),
    "a body that is cut": (OK + b"content-length: 3\r\n\r\n{}", (BAD,)),
    "a head that is cut": (OK + b"content-length: 2\r\n", (BAD,)),
    "nothing": (b"", (BAD,)),
    "no length: until the end": (OK + b"\r\n{}", (200, b"{}", CLOSED)),
    "more than its length": (FINE + b"x", (200, b"{}", CLOSED)),
    "a second reply that nobody asked for": (FINE + FINE.replace(b"{}", b"[]"), (200, b"{}", CLOSED)),
    # Chunks.
    "chunks": (OK + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", (200, b"{}", AGAIN)),
    "chunks in upper case": (
        OK + b"Transfer-Encoding: CHUNKED\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        (200, b"{}", AGAIN),
    ),
    "a size in upper case": (
        OK + b"transfer-encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
        (200, b"0123456789", AGAIN),
    ),
    "a size with zeros": (
        OK + b"transfer-encoding: chunked\r\n\r\n002\r\n{}\r\n000\r\n\r\n",
        (200, b"{}", AGAIN),
    ),
    "an extension": (
        OK + b'transfer-encoding: chunked\r\n\r\n2;a="b"\r\n{}\r\n0;c\r\n\r\n',
        (200, b"{}", AGAIN),
    ),
    "a space behind a size": (
        OK + b"transfer-encoding: chunked\r\n\r\n2 \r\n{}\r\n0\r\n\r\n",
        (200, b"{}", AGAIN),
    ),
    "trailers": (OK + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx: a\r\n\r\n", (200, b"{}", AGAIN)),
    "a trailer that is a length": (
        OK + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\ncontent-length: 9\r\n\r\n",
        (200, b"{}", AGAIN),
    ),
    "a size with a sign": (OK + b"transfer-encoding: chunked\r\n\r\n+2\r\n{}\r\n0\r\n\r\n", (BAD,)),
    "a size below zero": (OK + b"transfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n", (BAD,)),
    "a size with a prefix": (OK + b"transfer-encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n", (BAD,)),
    "a size that is none": (OK + b"transfer-encoding: chunked\r\n\r\ng\r\n{}\r\n0\r\n\r\n", (BAD,)),
    "no size": (OK + b"transfer-encoding: chunked\r\n\r\n\r\n{}\r\n0\r\n\r\n", (BAD,)),
    "a size of 30 digits": (OK + b"transfer-encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\n{}", (BAD,)),
    "a chunk that is longer than its size": (
        OK + b"transfer-encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
        (BAD,),
    ),
    "a chunk without an end": (OK + b"transfer-encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n", (BAD,)),
    "a chunk that ends with LF": (OK + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\n0\r\n\r\n", (BAD,)),
    "no last chunk": (OK + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n", (BAD,)),
    "a last chunk that is cut": (OK + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", (BAD,)),
    "a trailer that is none": (OK + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nbad\r\n\r\n", (BAD,)),
    "another coding": (OK + b"transfer-encoding: gzip\r\n\r\n{}", (BAD,)),
    "another coding before chunks": (
        OK + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        (BAD,),
    ),
    "chunks twice": (
        OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        (BAD,),
    ),
    "almost chunks": (OK + b"transfer-encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", (BAD,)),
    # A length beside chunks: chunks count (RFC 9112, 6.3).
    "chunks and a length": (
        OK + b"content-length: 99\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        (200, b"{}", AGAIN),
    ),
    "a short length and chunks": (
        OK + b"transfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        (200, b"{}", AGAIN),
    ),
    # Statuses without a body.
    "204 with a body": (b"HTTP/1.1 204 No\r\ncontent-length: 2\r\n\r\n{}", (204, b"", CLOSED)),
    "204 with chunks": (
        b"HTTP/1.1 204 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        (204, b"", CLOSED),
    ),
    "304 with a length": (b"HTTP/1.1 304 No\r\ncontent-length: 2\r\n\r\n", (304, b"", AGAIN)),
    "205 with a body": (b"HTTP/1.1 205 R\r\ncontent-length: 2\r\n\r\n{}", (205, b"{}", AGAIN)),
    # Interim responses.
    "100 before": (b"HTTP/1.1 100 Continue\r\n\r\n" + FINE, (200, b"{}", AGAIN)),
    "several before": (b"HTTP/1.1 103 E\r\nlink: </a>\r\n\r\n" * 5 + FINE, (200, b"{}", AGAIN)),
    "100 with a length": (b"HTTP/1.1 100 C\r\ncontent-length: 2\r\n\r\n" + FINE, (200, b"{}", AGAIN)),
    "100 alone": (b"HTTP/1.1 100 Continue\r\n\r\n", (BAD,)),
    # The first line.
    "no reason": (b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\n{}", (200, b"{}", AGAIN)),
    "a reason beyond ASCII": (b"HTTP/1.1 200 \xc3\xbc\r\ncontent-length: 2\r\n\r\n{}", (200, b"{}", AGAIN)),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}", (200, b"{}", CLOSED)),
    "HTTP/1.0 without a length": (b"HTTP/1.0 200 OK\r\n\r\n{}", (200, b"{}", CLOSED)),
    "HTTP/2": (b"HTTP/2 200 OK\r\ncontent-length: 2\r\n\r\n{}", (BAD,)),
    "another protocol": (b"ICY 200 OK\r\n\r\n{}", (BAD,)),
    "a status of two digits": (b"HTTP/1.1 20 OK\r\n\r\n{}", (BAD,)),
    "a status of four digits": (b"HTTP/1.1 2000 OK\r\n\r\n{}", (BAD,)),
    "a status that is none": (b"HTTP/1.1 abc OK\r\n\r\n{}", (BAD,)),
    "no protocol at all": (b"{}\r\n\r\n", (BAD,)),
    "the start of a TLS alert": (b"\x15\x03\x01\x00\x02\x02\x0a", (BAD,)),
    # Lines and headers.
    "lines that end with LF": (b"HTTP/1.1 200 OK\ncontent-length: 2\n\n{}", (200, b"{}", AGAIN)),
    "a line that goes on": (OK + b"x: a\r\n b\r\ncontent-length: 2\r\n\r\n{}", (200, b"{}", AGAIN)),
    "a length that goes on": (OK + b"content-length:\r\n 2\r\n\r\n{}", (200, b"{}", AGAIN)),
    "a first header that goes on": (OK + b" x: a\r\ncontent-length: 2\r\n\r\n{}", (BAD,)),
    "a space before the colon": (OK + b"content-length : 2\r\n\r\n{}", (BAD,)),
    "no colon": (OK + b"x\r\ncontent-length: 2\r\n\r\n{}", (BAD,)),
    "no name": (OK + b": a\r\ncontent-length: 2\r\n\r\n{}", (BAD,)),
    "NUL in a value": (OK + b"x: a\0b\r\ncontent-length: 2\r\n\r\n{}", (BAD,)),
    "CR in a value": (OK + b"x: a\rb\r\ncontent-length: 2\r\n\r\n{}", (BAD,)),
    "bytes beyond ASCII in a value": (OK + b"x: \xff\r\ncontent-length: 2\r\n\r\n{}", (200, b"{}", AGAIN)),
    "bytes beyond ASCII in a name": (OK + b"\xff: a\r\ncontent-length: 2\r\n\r\n{}", (BAD,)),
    "a head of 90 kB": (
        OK + b"x: " + b"a" * 90_000 + b"\r\ncontent-length: 2\r\n\r\n{}",
        (200, b"{}", AGAIN),
    ),
    "a head of 200 kB": (OK + b"x: " + b"a" * 200_000 + b"\r\ncontent-length: 2\r\n\r\n{}", (BAD,)),
    # The connection.
    "to be closed": (OK + b"connection: close\r\ncontent-length: 2\r\n\r\n{}", (200, b"{}", CLOSED)),
    "to be closed, in a list": (
        OK + b"connection: x, Close\r\ncontent-length: 2\r\n\r\n{}",
        (200, b"{}", CLOSED),
    ),
    "to be kept": (OK + b"connection: keep-alive\r\ncontent-length: 2\r\n\r\n{}", (200, b"{}", AGAIN)),
}


UNTIL_THE_END = ("no length: until the end", "HTTP/1.0 without a length")
"""Replies that end with the connection; in all other cases it is the client that closes it."""

EXCESS = (
    "more than its length",
    "a second reply that nobody asked for",
    "204 with a body",
    "204 with chunks",
)
"""Bytes behind a reply, which httpx2 takes for the beginning of the next one on that connection."""


async def outcome(carrier: Carrier) -> tuple[Any, ...]:
    try:
        reply = await carrier.send("POST", {}, b"{}")
        try:
            body = b"".join([chunk async for chunk in reply.chunks()])
        except BaseException:
            await release(reply)
            raise
        await reply.aclose()
    except carrier.faults:
        return (BAD,)
    return reply.status, body


@pytest.mark.parametrize("auth", [None, httpx2.Auth()], ids=["plain", "httpx2"])
@pytest.mark.parametrize("name", CASES)
async def test_a_reply_means_what_http_says(name: str, auth: httpx2.Auth | None) -> None:
    sent, expected = CASES[name]

    async def handler(request: Request) -> None:
        if len(raw.log) == 2:
            return await request.answer(b"next")
        pieces = [sent] if whole else [sent[at : at + 1] for at in range(len(sent))]
        for piece in pieces:
            await request.send(piece)
            await anyio.lowlevel.checkpoint()
        if expected == (BAD,) or name in UNTIL_THE_END:
            request.writer.close()

    for whole in (True, False) if len(sent) < 1000 else (True,):
        async with raw_server(handler) as raw:
            carrier = Carrier(raw.url, {}, auth)
            with anyio.fail_after(30):
                found = await outcome(carrier)
                assert found == expected[:2], whole
                if auth is not None and name in EXCESS:
                    await carrier.aclose()
                    continue
                # Nothing of the first reply is taken for the second.
                assert await outcome(carrier) == (200, b"next")
            await carrier.aclose()
            assert raw.connections == (1 if expected[-1] == AGAIN else 2)
