"""A request that a proxy may read in another way is refused; a target may be a whole URL (RFC 9112)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from tests.support.served import port_of, served
from tests.transports.test_arrival import until_closed
from tests.transports.test_http_endpoint import HEADERS
from tests.transports.test_parsers import CHUNKED, CHUNKS, LAST, post, statuses

from mcp_toolset import Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

PREFLIGHT = b"origin: https://app.example\r\naccess-control-request-method: POST\r\n"
BOTH = {
    "chunks and a length": post(CHUNKED, body=CHUNKS),
    "a length and chunks": post(b"Content-Length: 4\r\n", length=CHUNKED, body=CHUNKS),
    # Each of these is refused for something else as well, which leaves a connection open.
    "no such path": post(CHUNKED, line=b"POST /none HTTP/1.1", body=CHUNKS),
    "a foreign host": post(CHUNKED, body=CHUNKS).replace(b"127.0.0.1", b"evil.example"),
    "many headers": post(CHUNKED + b"x: a\r\n" * 300, body=CHUNKS),
    "a preflight": post(CHUNKED + PREFLIGHT, line=b"OPTIONS /mcp HTTP/1.1", body=CHUNKS),
}
TARGETS = {
    b"http://127.0.0.1/mcp": 200,
    b"HTTP://localhost:80/mcp": 200,
    b"https://127.0.0.1:8443/mcp?a=://b": 200,
    b"http://127.0.0.1/%6dcp": 200,
    b"http://127.0.0.1": 404,
    b"http://127.0.0.1?a": 404,
    b"http://127.0.0.1/none": 404,
    # The authority is checked, whatever `Host` says.
    b"http://evil.example/mcp": 421,
    b"http://127.0.0.1@evil.example/mcp": 421,
    b"http://evil.example%2f@127.0.0.1/mcp": 421,
    b"http://127.0.0.1%2fmcp": 421,
    b"http:///mcp": 421,
}


class Listening:
    """A server, whose answers to raw requests are told by their statuses."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def statuses(self, *requests: bytes) -> list[int]:
        """The answers to requests on one connection, until it is closed."""
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            for request in requests:
                await stream.send(request)
            return statuses(await until_closed(stream))


@asynccontextmanager
async def listening() -> AsyncGenerator[Listening]:
    async with served(ToolsetServer(Toolset()), allowed_origins=["https://app.example"]) as url:
        yield Listening(port_of(url))


async def test_i1_a_request_with_two_lengths_is_refused_and_nothing_behind_it_is_read() -> None:
    async with listening() as server:
        found = {name: await server.statuses(request + post(), LAST) for name, request in BOTH.items()}
        assert found == {name: [400] for name in BOTH}
        assert await server.statuses(post() + post(CHUNKED, body=CHUNKS)) == [200, 400]


@pytest.mark.parametrize("host", [b"127.0.0.1", b"other.example"])
async def test_f31_a_target_with_an_authority_is_checked_by_it_and_led_by_its_path(host: bytes) -> None:
    async with listening() as server:
        requests = [post(line=b"POST " + target + b" HTTP/1.1") for target in TARGETS]
        said = [one.replace(b"host: 127.0.0.1", b"host: " + host) for one in requests]
        assert await server.statuses(*said, LAST) == [*TARGETS.values(), 404]


async def test_f31_a_target_of_another_scheme_has_no_authority() -> None:
    async with listening() as server:
        request = post(line=b"POST ftp://evil.example/mcp HTTP/1.1")
        foreign = request.replace(b"host: 127.0.0.1", b"host: evil.example")
        assert await server.statuses(request, foreign, LAST) == [404, 421, 404]


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize(
    "envelope", [{"jsonrpc": "1.0"}, {"params": [1]}, {"method": 7}, {"method": None}], ids=str
)
async def test_u116_a_request_with_a_wrong_envelope_is_refused_under_its_id(
    envelope: dict[str, Any], version: str
) -> None:
    message = {"jsonrpc": "2.0", "id": "seven", "method": "ping", **envelope}
    headers = {**HEADERS, "mcp-protocol-version": version, "content-type": "application/json"}
    async with listening() as server, httpx2.AsyncClient() as client:
        answer = await client.post(f"http://127.0.0.1:{server.port}/mcp", json=message, headers=headers)
    refused = answer.json()
    assert (answer.status_code, refused["id"], refused["error"]["code"]) == (400, "seven", -32600)
