"""A table of requests, sound and broken: how each is answered, how many calls run, and what follows it.

Behind each request a second one is sent on its connection. It is answered as what it is (`AGAIN`), or the
connection has been closed (`CLOSED`): no rest of a request is ever read as a request. Each arrives at once,
and byte by byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import h11
import pytest
from tests.support.served import port_of, read_by, served
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcp_toolset import Toolset, ToolsetServer, tool

pytestmark = pytest.mark.anyio

AGAIN, CLOSED = "again", "closed"
RAN: list[int] = []
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "count", "arguments": {}, "_meta": _META},
    }
).encode()
LINE = b"POST /mcp HTTP/1.1\r\n"
HOST = b"host: 127.0.0.1\r\n"
FIELDS = (
    b"accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
    b"mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: count\r\n"
)
START = LINE + HOST + FIELDS
LENGTH = b"content-length: %d\r\n" % len(BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"
FINE = START + LENGTH + b"\r\n" + BODY
CHUNKS = b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
HALVES = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (40, BODY[:40], len(BODY) - 40, BODY[40:])
PROBE = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"

Expected = tuple[list[int], int, str]
REFUSED: Expected = ([400], 0, CLOSED)
RUNS: Expected = ([200], 1, AGAIN)


def with_length(value: bytes) -> bytes:
    return START + b"content-length: " + value + b"\r\n\r\n" + BODY


def in_chunks(chunks: bytes, *fields: bytes) -> bytes:
    return START + CHUNKED + b"".join(fields) + b"\r\n" + chunks


CASES: dict[str, tuple[bytes, Expected]] = {
    # Lengths.
    "a length": (FINE, RUNS),
    "a length with zeros": (with_length(b"000%d" % len(BODY)), RUNS),
    "the same length twice": (START + LENGTH * 2 + b"\r\n" + BODY, RUNS),
    "the same length in one line": (with_length(b"%d, %d" % (len(BODY), len(BODY))), RUNS),
    "two lengths, short first": (START + b"content-length: 0\r\n" + LENGTH + b"\r\n" + BODY, REFUSED),
    "two lengths, short last": (START + LENGTH + b"content-length: 0\r\n\r\n" + BODY, REFUSED),
    "two lengths in one line": (with_length(b"0, %d" % len(BODY)), REFUSED),
    "a length with a sign": (with_length(b"+%d" % len(BODY)), REFUSED),
    "a length below zero": (with_length(b"-1"), REFUSED),
    "a length in hexadecimal": (with_length(b"0x%x" % len(BODY)), REFUSED),
    "a length with a point": (with_length(b"%d.0" % len(BODY)), REFUSED),
    "a length with an underscore": (with_length(b"1_0"), REFUSED),
    "a length with a space within": (with_length(b"1 0"), REFUSED),
    "a length of nothing at all": (with_length(b""), REFUSED),
    "a length that is a word": (with_length(b"chunked"), REFUSED),
    "a length in other digits": (with_length("٣".encode()), REFUSED),
    "a length of 30 digits": (with_length(b"9" * 30), REFUSED),
    "a length with a tab before": (with_length(b"\t%d" % len(BODY)), RUNS),
    "a length on the next line": (START + b"content-length:\r\n %d\r\n\r\n" % len(BODY) + BODY, RUNS),
    "a call behind a length of 0": (START + b"content-length: 0\r\n\r\n" + FINE, ([400, 200], 1, AGAIN)),
    "no length": (START + b"\r\n", ([400], 0, AGAIN)),
    "a short length: the rest is no request": (with_length(b"%d" % (len(BODY) - 1)), ([400, 400], 0, CLOSED)),
    # Chunks.
    "chunks": (in_chunks(CHUNKS), RUNS),
    "two chunks": (in_chunks(HALVES), RUNS),
    "chunks in upper case": (START + b"Transfer-Encoding: CHUNKED\r\n\r\n" + CHUNKS, RUNS),
    "a size with zeros": (in_chunks(b"00" + CHUNKS), RUNS),
    "an extension": (in_chunks(CHUNKS.replace(b"\r\n", b';a="b"\r\n', 1)), RUNS),
    "a long extension": (in_chunks(CHUNKS.replace(b"\r\n", b";" + b"a" * 1000 + b"\r\n", 1)), RUNS),
    "trailers": (in_chunks(CHUNKS[:-2] + b"x: a\r\n\r\n"), RUNS),
    "a length as a trailer": (in_chunks(CHUNKS[:-2] + b"content-length: 99\r\n\r\n"), RUNS),
    "a host as a trailer": (in_chunks(CHUNKS[:-2] + b"host: evil.example\r\n\r\n"), RUNS),
    "a trailer that is none": (in_chunks(CHUNKS[:-2] + b"bad\r\n\r\n"), REFUSED),
    "a size with a sign": (in_chunks(b"+" + CHUNKS), REFUSED),
    "a size below zero": (in_chunks(b"-" + CHUNKS), REFUSED),
    "a size with a prefix": (in_chunks(b"0x" + CHUNKS), REFUSED),
    "a size with a space before": (in_chunks(b" " + CHUNKS), REFUSED),
    "a size with an underscore": (in_chunks(b"0_" + CHUNKS), REFUSED),
    "a size that is none": (in_chunks(b"g\r\n" + CHUNKS), REFUSED),
    "a size of 30 digits": (in_chunks(b"f" * 30 + b"\r\n" + BODY), REFUSED),
    "no size": (in_chunks(b"\r\n" + CHUNKS), REFUSED),
    "a size that ends with LF": (in_chunks(CHUNKS.replace(b"\r\n", b"\n", 1)), REFUSED),
    "a chunk that ends with LF": (in_chunks(CHUNKS.replace(b"}\r\n0", b"}\n0")), REFUSED),
    "a chunk without an end": (in_chunks(CHUNKS.replace(b"}\r\n0", b"}0")), REFUSED),
    "a chunk that is longer than its size": (in_chunks(b"1\r\n" + BODY + b"\r\n0\r\n\r\n"), REFUSED),
    "an extension with LF (TERM.EXT)": (in_chunks(CHUNKS.replace(b"\r\n", b";\n" + b"a\r\n", 1)), REFUSED),
    # Both, or other codings.
    "a length and chunks": (in_chunks(CHUNKS, LENGTH), REFUSED),
    "a length of 0 and chunks, with a call behind (CL.TE)": (
        in_chunks(b"0\r\n\r\n" + FINE, b"content-length: 5\r\n"),
        REFUSED,
    ),
    "a long length and chunks, with a call behind (TE.CL)": (
        START + b"content-length: %d\r\n" % (5 + len(FINE)) + CHUNKED + b"\r\n0\r\n\r\n" + FINE,
        REFUSED,
    ),
    "chunks twice": (in_chunks(CHUNKS, CHUNKED), REFUSED),
    "chunks twice in one line": (START + b"transfer-encoding: chunked, chunked\r\n\r\n" + CHUNKS, REFUSED),
    "identity and chunks": (START + b"transfer-encoding: identity, chunked\r\n\r\n" + CHUNKS, REFUSED),
    "chunks and identity": (in_chunks(CHUNKS, b"transfer-encoding: identity\r\n"), REFUSED),
    "identity and a length": (START + b"transfer-encoding: identity\r\n" + LENGTH + b"\r\n" + BODY, REFUSED),
    "gzip before chunks": (START + b"transfer-encoding: gzip, chunked\r\n\r\n" + CHUNKS, REFUSED),
    "almost chunks and a length": (
        START + b"transfer-encoding: xchunked\r\n" + LENGTH + b"\r\n" + BODY,
        REFUSED,
    ),
    "a quoted coding": (START + b'transfer-encoding: "chunked"\r\n\r\n' + CHUNKS, REFUSED),
    "an empty coding and a length": (START + b"transfer-encoding:\r\n" + LENGTH + b"\r\n" + BODY, REFUSED),
    "a coding with a vertical tab": (START + b"transfer-encoding: \x0bchunked\r\n\r\n" + CHUNKS, REFUSED),
    "a coding behind a space before the colon": (
        START + b"transfer-encoding : chunked\r\n" + LENGTH + b"\r\n" + BODY,
        REFUSED,
    ),
    "a coding on the next line": (START + b"transfer-encoding:\r\n chunked\r\n\r\n" + CHUNKS, RUNS),
    "a coding in a line that goes on, and a length": (
        START + b"x: a\r\n transfer-encoding: chunked\r\n" + LENGTH + b"\r\n" + BODY,
        RUNS,
    ),
    "a coding behind a bare CR, and a length": (
        START + b"x: a\rtransfer-encoding: chunked\r\n" + LENGTH + b"\r\n" + BODY,
        REFUSED,
    ),
    "a coding behind NUL, and a length": (
        START + b"x: a\0transfer-encoding: chunked\r\n" + LENGTH + b"\r\n" + BODY,
        REFUSED,
    ),
    "a coding with an underscore, and a length": (
        START + b"transfer_encoding: chunked\r\n" + LENGTH + b"\r\n" + BODY,
        RUNS,
    ),
    # Lines and headers.
    "lines that end with LF": (FINE.replace(b"\r\n", b"\n"), RUNS),
    "one line that ends with LF": (START + LENGTH[:-2] + b"\nx: a\r\n\r\n" + BODY, RUNS),
    "a first header that goes on": (LINE + b" x: a\r\n" + HOST + FIELDS + LENGTH + b"\r\n" + BODY, REFUSED),
    "a space before the colon": (START + b"content-length : %d\r\n\r\n" % len(BODY) + BODY, REFUSED),
    "no colon": (START + b"x\r\n" + LENGTH + b"\r\n" + BODY, REFUSED),
    "no name": (START + b": a\r\n" + LENGTH + b"\r\n" + BODY, REFUSED),
    "NUL in a value": (START + b"x: a\0b\r\n" + LENGTH + b"\r\n" + BODY, REFUSED),
    "bytes beyond ASCII in a name": (START + b"\xff: a\r\n" + LENGTH + b"\r\n" + BODY, REFUSED),
    "bytes beyond ASCII in a value": (START + b"x: \xff\r\n" + LENGTH + b"\r\n" + BODY, RUNS),
    "a blank line before": (b"\r\n" + FINE, REFUSED),
    "201 header lines": (START + b"x: a\r\n" * 201 + LENGTH + b"\r\n" + BODY, ([431], 0, AGAIN)),
    # The first line and the host.
    "HTTP/1.0": (FINE.replace(b"HTTP/1.1", b"HTTP/1.0"), ([200], 1, CLOSED)),
    "HTTP/1.0 with chunks": (in_chunks(CHUNKS).replace(b"HTTP/1.1", b"HTTP/1.0"), ([200], 1, CLOSED)),
    "HTTP/0.9": (b"GET /health\r\n", REFUSED),
    "HTTP/2.0": (FINE.replace(b"HTTP/1.1", b"HTTP/2.0"), RUNS),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ([421, 400], 0, CLOSED)),
    "a version that is none": (FINE.replace(b"HTTP/1.1", b"HTTP/1.1x"), REFUSED),
    "two spaces": (FINE.replace(b"POST /", b"POST  /"), REFUSED),
    "a tab": (FINE.replace(b"POST /", b"POST\t/"), REFUSED),
    "a space in the target": (FINE.replace(b"/mcp", b"/m cp"), REFUSED),
    "a target in ten thousand characters": (FINE.replace(b"/mcp", b"/" + b"a" * 10_000), ([404], 0, AGAIN)),
    "two slashes": (FINE.replace(b"/mcp", b"//mcp"), ([404], 0, AGAIN)),
    "a target that climbs": (FINE.replace(b"/mcp", b"/x/../mcp"), ([404], 0, AGAIN)),
    "a fragment": (FINE.replace(b"/mcp", b"/mcp#x"), ([404], 0, AGAIN)),
    "a whole URL": (FINE.replace(b"/mcp", b"http://127.0.0.1/mcp"), RUNS),
    "a whole URL of another host": (FINE.replace(b"/mcp", b"http://evil.example/mcp"), ([421], 0, AGAIN)),
    "no host": (LINE + FIELDS + LENGTH + b"\r\n" + BODY, REFUSED),
    "two hosts": (START + b"host: evil.example\r\n" + LENGTH + b"\r\n" + BODY, REFUSED),
    "the same host twice": (START + HOST + LENGTH + b"\r\n" + BODY, REFUSED),
    "another host": (FINE.replace(HOST, b"host: evil.example\r\n"), ([421], 0, AGAIN)),
    "an empty host": (FINE.replace(HOST, b"host:\r\n"), ([421], 0, AGAIN)),
    "no protocol at all": (b"{}\r\n\r\n", REFUSED),
    "the start of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", REFUSED),
    # Methods and bodies.
    "GET with a call as its body": (
        b"GET /health HTTP/1.1\r\n" + HOST + b"content-length: %d\r\n\r\n" % len(FINE) + FINE,
        ([200], 0, AGAIN),
    ),
    "HEAD": (PROBE.replace(b"GET", b"HEAD"), ([200], 0, AGAIN)),
    "an unknown method": (FINE.replace(b"POST", b"FROB"), ([405], 0, AGAIN)),
    "CONNECT": (FINE.replace(b"POST /mcp", b"CONNECT 127.0.0.1:80"), ([404], 0, AGAIN)),
    "100-continue": (START + b"expect: 100-continue\r\n" + LENGTH + b"\r\n" + BODY, ([100, 200], 1, AGAIN)),
    "an upgrade to h2c": (START + b"connection: upgrade\r\nupgrade: h2c\r\n" + LENGTH + b"\r\n" + BODY, RUNS),
    "an upgrade to a web socket": (
        START + b"connection: upgrade\r\nupgrade: websocket\r\n" + LENGTH + b"\r\n" + BODY,
        RUNS,
    ),
    "three calls in one piece": (FINE * 3, ([200, 200, 200], 3, AGAIN)),
    "a call and garbage": (FINE + b"\0\0\0\r\n\r\n", ([200, 400], 1, CLOSED)),
    "a call that asks to close, and a call": (
        FINE.replace(HOST, HOST + b"connection: close\r\n") + FINE,
        ([200], 1, CLOSED),
    ),
}


@tool
async def count() -> str:
    """Count the calls that run."""
    RAN.append(1)
    return "counted"


@asynccontextmanager
async def serving() -> AsyncGenerator[int]:
    async with served(ToolsetServer(Toolset(count)), within=120) as url:
        yield port_of(url)


async def told(port: int, parts: list[bytes]) -> bytes:
    """All that the server says until it closes the connection."""
    said = b""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:

        async def send() -> None:
            try:
                for part in parts:
                    await stream.send(part)
                    await anyio.lowlevel.checkpoint()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            with anyio.fail_after(30):
                try:
                    while True:
                        said += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    pass
            group.cancel_scope.cancel()
    return said


LAST = b"GET /mcp/ HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
"""What is sent behind each case: it alone is answered with 307."""


@pytest.mark.parametrize(
    ("parser", "bytewise"),
    [(AutoHTTPProtocol, False), (AutoHTTPProtocol, True), (H11Protocol, False)],
    ids=["at once", "byte by byte", "at once by h11"],
)
async def test_requests_are_answered_as_the_table_says(
    bytewise: bool, parser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by(parser, monkeypatch)
    wrong: dict[str, object] = {}
    async with serving() as port:
        for case, (sent, expected) in CASES.items():
            RAN.clear()
            whole = sent + LAST
            small = bytewise and len(whole) < 3000
            parts = [whole[at : at + 1] for at in range(len(whole))] if small else [whole]
            said = await told(port, parts)
            found = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", said)]
            behind = AGAIN if found[-1:] == [307] else CLOSED
            seen = (found[:-1] if behind == AGAIN else found, len(RAN), behind)
            if seen != expected:
                wrong[case] = seen
    assert wrong == {}


async def test_u113_a_body_of_tiny_chunks_leaves_the_loop_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One read can have 40,000 of them, and many connections can send them at once."""
    read, since, most = h11.Connection.next_event, 0, 0

    def next_event(self: h11.Connection) -> object:
        nonlocal since, most
        since += 1
        most = max(most, since)
        return read(self)

    monkeypatch.setattr(h11.Connection, "next_event", next_event)

    async def others() -> None:
        nonlocal since
        while True:
            since = 0
            await anyio.lowlevel.checkpoint()

    RAN.clear()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in b" " * 20_000 + BODY) + b"0\r\n\r\n"
    async with serving() as port, anyio.create_task_group() as group:
        group.start_soon(others)
        said = await told(port, [in_chunks(chunks) + FINE + in_chunks(chunks) + LAST])
        group.cancel_scope.cancel()
    assert [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", said)] == [200, 200, 200, 307]
    assert len(RAN) == 3 and most <= 200
