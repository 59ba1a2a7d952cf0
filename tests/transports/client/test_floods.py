"""Servers that flood a connection with what answers nothing: the loop goes on, and they are cut."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from tests.faults.harness import until
from tests.support.bounds import bound, bounds
from tests.transports.client.raw_server import (
    EVENTS,
    JSON,
    RESULT,
    SOON,
    MCPError,
    Request,
    connected,
    http_client,
    raw_server,
    running,
    sse_client,
)

from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.transports import allowance as flood

pytestmark = pytest.mark.anyio

MB = 1024 * 1024
NOTE = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}\n\n'
CHUNKED = EVENTS + b"transfer-encoding: chunked\r\n\r\n"
PACKED = EVENTS + b"content-encoding: gzip\r\n\r\n"


def packed(piece: bytes, size: int = 20 * MB) -> bytes:
    packer = zlib.compressobj(wbits=31)
    whole = piece * (MB // len(piece))
    return b"".join(packer.compress(whole) for _ in range(size // len(whole))) + packer.flush()


FLOODS = {
    "comments": PACKED + packed(b": " + b"x" * 65_533 + b"\n"),
    "short comments": PACKED + packed(b":\n"),
    "empty lines": PACKED + packed(b"\n"),
    "unknown fields": PACKED + packed(b"x\n"),
    "pings": PACKED + packed(b"data:\n\n"),
    "ids": PACKED + packed(b"id: 1\n\n"),
    "notifications": PACKED + packed(NOTE),
    "plain notifications": EVENTS + b"\r\n" + NOTE * 50_000,
    "chunks of a byte": CHUNKED + b"1\r\n:\r\n" * 70_000,
    "continue": b"HTTP/1.1 100 Continue\r\n\r\n" * 25_000,
    "early hints": b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 25_000,
    "chunks of a byte of a body": JSON + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 70_000,
}


class Turns:
    """How often other tasks had their turn."""

    def __init__(self) -> None:
        self.count = 0

    def step(self) -> None:
        self.count += 1
        self.handle = asyncio.get_running_loop().call_soon(self.step)


@pytest.fixture
def sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood is cut after a quarter of what it takes otherwise, and nothing is allowed anew meanwhile."""
    bounds(monkeypatch, flood_burst=bound("flood_burst") // 4, flood_per_second=1)


@asynccontextmanager
async def counted(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Turns]:
    """Turns of others, where each reader gives way whenever it looks at the clock."""
    bounds(monkeypatch, turn=-1.0)
    others = Turns()
    others.step()
    try:
        yield others
    finally:
        others.handle.cancel()


BY_HTTPX2 = ("short comments", "notifications", "chunks of a byte", "chunks of a byte of a body")
"""What is read in another way there; interim responses it skips by itself, and stops at no number of them."""


@pytest.mark.usefixtures("sooner")
@pytest.mark.parametrize(
    ("kind", "auth"), [*((kind, None) for kind in FLOODS), *((kind, httpx2.Auth()) for kind in BY_HTTPX2)]
)
async def test_u113_a_flood_is_read_in_turns_and_cut(
    kind: str, auth: httpx2.Auth | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(request: Request) -> None:
        if request.message["method"] == "flood":
            await request.send(FLOODS[kind])
        else:
            await request.answer(request.result())

    async with (
        raw_server(handler) as raw,
        http_client("up", raw.url, {}, auth) as client,
        running(client) as heard,
    ):
        assert await client.send_raw_request("ping", None) == {"ok": True}
        async with counted(monkeypatch) as others:
            with pytest.raises(UpstreamUnavailableError, match=r"up.*floods the connection.*send less"):
                await client.send_raw_request("flood", None, {"timeout": SOON})
        # So many small reads, however fast the machine is.
        assert others.count > (5 if kind not in ("continue", "early hints") else 1)
        await heard.ended.wait()
        assert "floods" in str(heard.fault)


@pytest.mark.usefixtures("sooner")
async def test_u113_a_flood_on_the_stream_of_a_session_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def handler(request: Request) -> None:
        if request.verb == "GET":
            await request.send(FLOODS["short comments"])
        elif request.body and "id" in request.message:
            result = {"protocolVersion": "2025-11-25", "capabilities": {}}
            await request.answer(request.result(result), mcp_session_id="s")
        else:
            await request.answer(None, "202 Accepted")

    async with connected(handler) as (client, raw, heard):
        await client.send_raw_request("initialize", {})
        async with counted(monkeypatch) as others:
            await client.notify("notifications/initialized", None)
            await heard.ended.wait()
        assert "floods" in str(heard.fault) and others.count > 5


@pytest.mark.usefixtures("sooner")
async def test_u113_a_flood_over_sse_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(request: Request) -> None:
        await request.send(EVENTS + b"\r\nevent: endpoint\ndata: /messages\n\n", NOTE * 50_000)

    async with raw_server(handler) as raw, sse_client("up", raw.url, {}) as client, running(client) as heard:
        async with counted(monkeypatch) as others:
            await heard.ended.wait()
        assert "floods" in str(heard.fault) and others.count > 5


@pytest.mark.parametrize("junk", [b"data: x\n\n", b'data: {"a":1}\n\n'])
async def test_u113_events_that_are_no_messages_are_in_the_log_once(
    junk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mcp_toolset")
    done = b'data: {"jsonrpc":"2.0","method":"notifications/done"}\n\n'

    async def handler(request: Request) -> None:
        if request.verb == "GET":
            await request.send(EVENTS + b"\r\nevent: endpoint\ndata: /messages\n\n", junk * 2000 + done)
            await anyio.sleep_forever()

    async with raw_server(handler) as raw, sse_client("up", raw.url, {}) as client, running(client) as heard:
        await until(lambda: bool(heard.notes))
    told = [record.getMessage() for record in caplog.records if "message" in record.getMessage()]
    assert len(told) <= 2 and "further ones are skipped in silence" in told[-1]


async def test_u113_answers_of_any_size_are_no_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, flood_burst=MB, flood_per_second=1)
    text = {"text": "x" * (4 * MB)}

    async def handler(request: Request) -> None:
        if request.message["method"] == "events":
            await request.begin_events()
            await request.event(request.result(text))
            await request.chunk(b"")
        else:
            await request.answer(request.result(text))

    async with connected(handler) as (client, raw, _):
        for method in ["events", "body"] * 4:
            assert await client.send_raw_request(method, None) == text


async def test_u113_an_endless_body_that_unpacks_to_nothing_is_read_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packer = zlib.compressobj(wbits=31)
    empty = packer.compress(b"") + b"".join(packer.flush(zlib.Z_FULL_FLUSH) for _ in range(100_000))

    async def handler(request: Request) -> None:
        await request.send(JSON + b"content-encoding: gzip\r\n\r\n" + empty + b"\0\0\0\xff\xff" * 500_000)
        request.writer.close()

    async with connected(handler) as (client, raw, _):
        async with counted(monkeypatch) as others:
            with pytest.raises(MCPError), anyio.fail_after(SOON):
                await client.send_raw_request("ping", None)
        assert others.count > 20


def test_u113_the_allowance_refills_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(flood, "monotonic", lambda: now)
    allowance = flood.Allowance()
    allowance.spend(bound("flood_burst"))
    with pytest.raises(flood.FloodError):
        allowance.spend(1)
    now += 10
    allowance.spend(10 * bound("flood_per_second") - 1)
    with pytest.raises(flood.FloodError):
        allowance.spend(2)
    for _ in range(1000):
        now += 1
        allowance.spend(bound("flood_per_second") // 2)


def test_u115_quiet_hours_do_not_add_up_to_a_larger_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(flood, "monotonic", lambda: now[0])
    allowance = flood.Allowance()
    allowance.spend(bound("flood_burst"))
    now[0] = 1e6
    for _ in range(2):
        allowance.spend(bound("flood_burst"))
    with pytest.raises(flood.FloodError):
        allowance.spend(1)


DENSE = {
    "empty lists": b"[]," * 500_000,
    "pairs": b'{"":0},' * 400_000,
    "numbers": b"0," * 2_100_000,
    "keys": b'{"":' * 150 + b'{"a":0,"a":0}' + b"}" * 150 + b"," + b'{"a":0,"a":0},' * 250_000,
    "long numbers": (b"9" * 4300 + b",") * 2000,
    "numbers of many digits": (b"9" * 99 + b",") * 300_000,
    "texts": b'"","\\"[",' * 1_050_000,
    "half a character": b'"\\ud83d",' * 700_000,
    "too deep": (b"[" * 300 + b"]" * 300 + b",") * 2000,
}


@pytest.mark.parametrize(
    ("kind", "is_stream"), [*((kind, False) for kind in DENSE), ("empty lists", True), ("keys", True)]
)
async def test_u113_a_message_of_more_values_than_are_read_at_once_is_refused(
    kind: str, is_stream: bool
) -> None:
    async def handler(request: Request) -> None:
        if request.message["method"] == "ping":
            return await request.answer(request.result())
        body = b'{"jsonrpc":"2.0","id":%d,"result":{"a":[%b0]}}' % (request.message["id"], DENSE[kind])
        if not is_stream:
            return await request.answer(body)
        await request.begin_events()
        await request.chunk(b"data: %b\n\n" % body)
        await request.chunk(b"")

    async with connected(handler) as (client, raw, _):
        with pytest.raises(MCPError, match="cannot be read"):
            await client.send_raw_request("many", None)
        assert await client.send_raw_request("ping", None) == {"ok": True}


@pytest.mark.parametrize("text", ['a "[{,:" \\', '"', "\\", ',[{":\\\\"', "\n"], ids=repr)
async def test_u113_what_stands_in_texts_are_no_values(text: str) -> None:
    found = {"rows": text * (3_000_000 // len(text)), "others": [text] * 1000}

    async def handler(request: Request) -> None:
        await request.answer(request.result(found))

    async with connected(handler) as (client, raw, _):
        assert await client.send_raw_request("texts", None) == found


@pytest.mark.parametrize("way", ["http", "sse"])
async def test_u113_requests_of_a_server_are_answered_over_few_connections(way: str) -> None:
    held, most, answered = set[object](), 0, 0
    go = anyio.Event()

    async def handler(request: Request) -> None:
        nonlocal most, answered
        if request.verb == "GET":
            await request.begin_events()
            await request.chunk(b"event: endpoint\ndata: /mcp\n\n")
            stream.append(request)
            await request.gone()
        elif request.message.get("method") != "ask":
            held.add(request.connection)
            most = max(most, len(held))
            if len(held) == bound("http_answers"):
                go.set()
            await go.wait()
            held.discard(request.connection)
            answered += 1
            await request.answer(None, "202 Accepted")
            if answered == 600:
                await stream[-1].event(stream[-1].result() if way == "http" else RESULT)
        else:
            if way == "http":
                stream.append(request)
                await request.begin_events()
            for number in range(600):
                await stream[-1].event({"jsonrpc": "2.0", "id": number, "method": "ping"})
            if way == "sse":
                await request.answer(None, "202 Accepted")

    stream: list[Request] = []
    connect = http_client if way == "http" else sse_client
    async with raw_server(handler) as raw, connect("up", raw.url, {}) as client, running(client):
        assert await client.send_raw_request("ask", None) == {"ok": True}
        assert most == bound("http_answers") and raw.connections < 2 * bound("http_answers")


async def test_u113_a_flood_before_the_address_of_a_server_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(request: Request) -> None:
        await request.send(FLOODS["pings"])

    bounds(monkeypatch, flood_burst=MB, flood_per_second=1)
    async with raw_server(handler) as raw:
        async with counted(monkeypatch) as others:
            with pytest.raises(UpstreamUnavailableError, match="floods the connection"):
                async with sse_client("up", raw.url, {}):
                    pass
        assert others.count > 1


async def test_u113_the_message_of_an_error_is_cut() -> None:
    async def handler(request: Request) -> None:
        error = {"code": -1, "message": "x" * MB}
        await request.answer({"jsonrpc": "2.0", "id": request.message["id"], "error": error})

    async with connected(handler) as (client, raw, _):
        with pytest.raises(MCPError) as refused:
            await client.send_raw_request("ping", None)
    assert len(refused.value.message) < 100_000


@pytest.mark.parametrize(
    ("code", "told"), [(10**30, -32603), (-(10**30), -32603), (2**53, -32603), (2**53 - 1, 2**53 - 1)]
)
async def test_u113_the_code_of_an_error_is_a_number_that_every_client_can_read(code: int, told: int) -> None:
    async def handler(request: Request) -> None:
        error = {"code": code, "message": "no"}
        await request.answer({"jsonrpc": "2.0", "id": request.message["id"], "error": error})

    async with connected(handler) as (client, raw, _):
        with pytest.raises(MCPError, match="no") as refused:
            await client.send_raw_request("ping", None)
    assert refused.value.code == told
