"""Both parsers of requests over HTTP, httptools and h11; the answers are in `test_http_request_cases.py`."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.support.served import port_of, read_by, served
from tests.transports.test_http_endpoint import HEADERS, META
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcp_toolset import Toolset, ToolsetServer
from mcp_toolset.transports.http.arrival import reading, size_of_plain

pytestmark = pytest.mark.anyio

HTTPTOOLS = pytest.importorskip(
    "uvicorn.protocols.http.httptools_impl",
    reason="this interpreter has no httptools, so h11 reads everything",
).HttpToolsProtocol
PARSERS = pytest.mark.parametrize("parser", [HTTPTOOLS, H11Protocol], ids=["httptools", "h11"])

BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}).encode()
FIELDS = {**HEADERS, "mcp-method": "tools/list", "host": "127.0.0.1"}
FIELDS.pop("mcp-name", None)
HEAD = "".join(f"{name}: {value}\r\n" for name, value in FIELDS.items()).encode()
LENGTH = b"content-length: %d\r\n" % len(BODY)
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"
LAST = b"GET /last HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"


def post(
    more: bytes = b"", *, line: bytes = b"POST /mcp HTTP/1.1", length: bytes = LENGTH, body: bytes = BODY
) -> bytes:
    return line + b"\r\n" + HEAD + length + more + b"\r\n" + body


class Waiting:
    """A tool that says when it runs and when it is cancelled."""

    def __init__(self) -> None:
        self.started, self.cancelled = anyio.Event(), anyio.Event()

    async def wait(self) -> str:
        """Wait for ever."""
        self.started.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()
        return ""


@asynccontextmanager
async def connected(
    parser: Any, monkeypatch: pytest.MonkeyPatch, *tools: Any
) -> AsyncGenerator[anyio.abc.SocketStream]:
    """A connection to a server whose uvicorn has this parser."""
    read_by(parser, monkeypatch)
    async with served(ToolsetServer(Toolset(*tools)), request_timeout=600) as url:
        async with await anyio.connect_tcp("127.0.0.1", port_of(url)) as stream:
            yield stream


def statuses(said: bytes) -> list[int]:
    return [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]


def test_httptools_reads_where_it_is_installed() -> None:
    """`pip install mcp-toolset` brings it for CPython; uvicorn has h11 for other interpreters."""
    assert AutoHTTPProtocol is HTTPTOOLS
    assert issubclass(reading(1), HTTPTOOLS)
    assert issubclass(reading(1, H11Protocol), H11Protocol)


@PARSERS
@pytest.mark.parametrize("before", [b"", post()])
async def test_a_head_without_end_ends_the_connection(
    parser: Any, before: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(parser, monkeypatch) as stream:
        await stream.send(before + b"POST /mcp HTTP/1.1\r\nx: ")
        with pytest.raises(anyio.BrokenResourceError):
            while True:
                await stream.send(b"a" * 8192)


@PARSERS
async def test_a_call_ends_with_its_client(parser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Waiting()
    async with connected(parser, monkeypatch, tool.wait) as stream:
        params = {"name": "wait", "arguments": {}, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        call = post(b"mcp-name: wait\r\n", length=b"content-length: %d\r\n" % len(body), body=body)
        await stream.send(call.replace(b"tools/list", b"tools/call"))
        await tool.started.wait()
        if parser is HTTPTOOLS:
            # h11 reads no further while a request waits, so it would not see the client leave.
            await stream.send(post())
        await stream.aclose()
        await tool.cancelled.wait()


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (post(), len(post())),
        (post() + post(), len(post())),
        (LAST, len(LAST)),
        (post(body=b""), len(post())),
        (post()[: -len(BODY) - 2], None),
        (post(b"X: " + b"a" * 16384 + b"\r\n"), None),
        (post(b"Upgrade: h2c\r\n"), None),
        (post(b"Transfer-Encoding: chunked\r\n"), None),
        (post(b"Content-Length: 1\r\n"), None),
    ],
)
def test_the_size_of_a_plain_request(data: bytes, size: int | None) -> None:
    assert size_of_plain(data) == size
