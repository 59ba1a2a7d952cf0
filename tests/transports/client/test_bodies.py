"""Compressed bodies of replies: what is read, what is refused, and how much memory a bomb takes."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import AsyncGenerator, Generator
from typing import Any

import httpcore2
import httpx2
import pytest
from tests.transports.client.raw_server import MCPError, Request, connected, says_broke_off

from mcp_toolset.transports.compression import decompressed

pytestmark = pytest.mark.anyio

MB = 1024 * 1024
TEXT = json.dumps({"text": "0123456789" * 50_000}).encode()
RAW = zlib.compressobj(wbits=-15)
FORMS = {
    "gzip": gzip.compress(TEXT, mtime=0),
    "X-Gzip": gzip.compress(TEXT, mtime=0),
    "deflate": zlib.compress(TEXT),
    "deflate ": RAW.compress(TEXT) + RAW.flush(),
}


@pytest.fixture(params=[None, httpx2.Auth()], ids=["plain", "httpx2"])
def auth(request: pytest.FixtureRequest) -> httpx2.Auth | None:
    return request.param


async def in_pieces(data: bytes, size: int) -> AsyncGenerator[bytes]:
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


async def read(data: bytes, coding: str, size: int = 1000) -> bytes:
    return b"".join([piece async for piece in decompressed(in_pieces(data, size), coding)])


@pytest.mark.parametrize("size", [1, 7, 10**6])
@pytest.mark.parametrize("coding", FORMS)
async def test_a_body_is_decompressed_however_it_is_cut(coding: str, size: int) -> None:
    assert await read(FORMS[coding], coding, size) == TEXT


@pytest.mark.parametrize("coding", FORMS)
async def test_a_body_that_breaks_off_or_goes_on_after_its_end_is_refused(coding: str) -> None:
    with pytest.raises(httpcore2.RemoteProtocolError, match="breaks off"):
        await read(FORMS[coding][:-1], coding)
    with pytest.raises(httpcore2.RemoteProtocolError, match="goes on"):
        await read(FORMS[coding] + b"\0" * 5000, coding)


async def test_a_body_that_is_empty_needs_no_compression() -> None:
    assert await read(b"", "gzip") == await read(b"", "br") == b""


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "identity, deflate", "\x1b[31m"])
async def test_a_compression_that_was_not_offered_is_refused_by_its_name(
    coding: str, auth: httpx2.Auth | None
) -> None:
    async def handler(request: Request) -> None:
        assert request.headers["accept-encoding"] == "gzip, deflate"
        if "id" not in request.message:
            return await request.answer(None, "202 Accepted", content_encoding=coding)
        coded = coding if request.message["method"] == "odd" else ""
        await request.answer(request.result(), content_encoding=coded)

    async with connected(handler, auth) as (client, _, _):
        with pytest.raises(MCPError, match="compressed with ") as failed:
            await client.send_raw_request("odd", None)
        assert says_broke_off(failed.value) and "\x1b" not in failed.value.message
        assert "only gzip and deflate are read" in failed.value.message
        await client.notify("notifications/initialized", None)
        assert await client.send_raw_request("ping", None) == {"ok": True}


async def test_u113_the_name_of_a_compression_is_cut() -> None:
    with pytest.raises(httpcore2.RemoteProtocolError, match="only gzip and deflate are read") as failed:
        await read(b"x", "gzip," * 8000 + "gzip")
    assert len(str(failed.value)) < 200


def bomb(megabytes: int) -> bytes:
    """Gzip of so many megabytes of text, of a thousandth of their size."""
    packer = zlib.compressobj(wbits=31)
    begin = packer.compress(b'{"text":"' + b"x" * MB) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush nothing refers to what was before, so that a part may be repeated.
    part = packer.compress(b"x" * MB) + packer.flush(zlib.Z_FULL_FLUSH)
    return begin + part * megabytes


@pytest.fixture
def traced() -> Generator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("kind", "auth"), [("application/json", None), ("text/event-stream", httpx2.Auth())])
async def test_a_bomb_takes_no_more_memory_than_a_message_may(kind: str, auth: httpx2.Auth | None) -> None:
    body = bomb(256)

    async def handler(request: Request) -> None:
        if request.message["method"] == "odd":
            return await request.answer(body, content_encoding="gzip", content_type=kind)
        await request.answer(request.result())

    async with connected(handler, auth) as (client, _, _):
        assert await client.send_raw_request("ping", None) == {"ok": True}
        tracemalloc.reset_peak()
        held = tracemalloc.get_traced_memory()[0]
        with pytest.raises(MCPError, match="more than 67108864 bytes"):
            await client.send_raw_request("odd", None)
        assert tracemalloc.get_traced_memory()[1] - held < 72 * MB
        assert await client.send_raw_request("ping", None) == {"ok": True}


async def test_a_reply_in_gzip_leaves_its_connection_to_the_next_request() -> None:
    async def handler(request: Request) -> None:
        body: dict[str, Any] = request.result()
        await request.answer(gzip.compress(json.dumps(body).encode()), content_encoding="gzip")

    async with connected(handler, None) as (client, raw, _):
        for _ in range(5):
            assert await client.send_raw_request("ping", None) == {"ok": True}
        assert raw.connections == 1 and client._carrier._library is None


MEMBERS = [gzip.compress(TEXT[:1000], mtime=0), gzip.compress(b""), gzip.compress(TEXT[1000:])]


@pytest.mark.parametrize("size", [1, 7, len(MEMBERS[0]), 10**6])
@pytest.mark.parametrize("coding", ["gzip", "x-gzip", " GZIP "])
async def test_u117_gzip_of_several_members_is_one_body(coding: str, size: int) -> None:
    assert await read(b"".join(MEMBERS), coding, size) == TEXT


@pytest.mark.parametrize("size", [1, 1000, 10**6])
@pytest.mark.parametrize(
    ("data", "coding"),
    [
        (MEMBERS[0] + MEMBERS[2][:-1], "gzip"),
        (MEMBERS[0] + b"\x1f", "gzip"),
        (MEMBERS[0] + b"\x1fx", "gzip"),
        (MEMBERS[0] + b"\0", "gzip"),
        (zlib.compress(TEXT) * 2, "deflate"),
    ],
)
async def test_u117_what_follows_a_member_and_is_none_is_refused(data: bytes, coding: str, size: int) -> None:
    with pytest.raises(httpcore2.RemoteProtocolError):
        await read(data, coding, size)


@pytest.mark.parametrize("coding", ["identity", "IDENTITY", "Identity"])
async def test_u117_a_body_that_is_not_compressed_may_say_so_in_any_case(
    coding: str, auth: httpx2.Auth | None
) -> None:
    async def handler(request: Request) -> None:
        await request.answer(request.result(), content_encoding=coding)

    async with connected(handler, auth) as (client, _, _):
        assert await client.send_raw_request("ping", None) == {"ok": True}
