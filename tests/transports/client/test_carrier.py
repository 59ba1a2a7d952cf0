"""HTTP below both clients: redirects, credentials, cookies, compression, proxies, idle connections."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import ssl
from collections.abc import AsyncGenerator, Generator
from http import cookiejar
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
import uvloop
from tests.support.bounds import bounds
from tests.transports.client.raw_server import (
    RESULT,
    SOON,
    Allowance,
    Carrier,
    MCPError,
    Request,
    connected,
    http_client,
    raw_server,
    running,
    says_ended,
)

from mcp_toolset.protocol.json_rpc import NOT_SENT
from mcp_toolset.transports import carrier, plain_http
from mcp_toolset.transports.carrier import LimitedCookies, drain

pytestmark = pytest.mark.anyio


async def answered(request: Request) -> None:
    await request.answer(request.result())


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "308 Permanent Redirect"])
async def test_a_redirect_within_the_origin_is_followed_with_method_body_and_headers(status: str) -> None:
    async def handler(request: Request) -> None:
        if request.path == "/mcp":
            return await request.answer(None, status, location="/mcp/")
        await request.answer(request.result())

    async with connected(handler, headers={"Authorization": "Bearer mine"}) as (client, raw, _):
        for _ in range(2):
            assert await client.send_raw_request("ping", {"a": 1}) == {"ok": True}
        assert [request.path for request in raw.log] == ["/mcp", "/mcp/"] * 2
        assert raw.log[1].message["params"] == {"a": 1}
        assert {request.headers["authorization"] for request in raw.log} == {"Bearer mine"}
        assert raw.connections == 1


async def test_redirects_in_a_circle_come_to_an_end() -> None:
    async def handler(request: Request) -> None:
        await request.answer(None, "307 Round", location="/mcp")

    async with connected(handler) as (client, raw, _):
        with pytest.raises(MCPError, match="not followed"):
            await client.send_raw_request("ping", None)
        assert len(raw.log) == 21


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect"])
@pytest.mark.parametrize("where", ["another", "user"])
async def test_a_redirect_to_another_origin_is_not_followed(status: str, where: str) -> None:
    async with raw_server(answered) as other:

        async def handler(request: Request) -> None:
            user = f"http://me:secret@{request.headers['host']}/mcp"
            await request.answer(None, status, location=other.url if where == "another" else user)

        async with connected(handler) as (client, raw, _):
            with pytest.raises(MCPError, match="not followed") as failed:
                await client.send_raw_request("ping", None)
            assert len(raw.log) == 1 and not other.log and "secret" not in failed.value.message


@pytest.mark.parametrize("location", ["http://[bad/", "http://127.0.0.1:99999/mcp", "/a\x01b"])
async def test_a_redirect_to_no_address_fails_its_request_alone(location: str) -> None:
    async def handler(request: Request) -> None:
        if request.message["method"] == "lost":
            return await request.answer(None, "307 Temporary Redirect", location=location)
        await request.answer(request.result())

    async with connected(handler) as (client, raw, _):
        with pytest.raises(MCPError) as failed:
            await client.send_raw_request("lost", None)
        assert not says_ended(failed.value)
        assert await client.send_raw_request("ping", None) == {"ok": True}
        assert len(raw.log) == 2


@pytest.mark.parametrize("events", [False, True])
async def test_a_compressed_body_is_read(events: bool) -> None:
    async def handler(request: Request) -> None:
        assert "gzip" in request.headers["accept-encoding"]
        body = json.dumps(request.result()).encode()
        sent = b"data: " + body + b"\n\n" if events else body
        kind = "text/event-stream" if events else "application/json"
        await request.answer(gzip.compress(sent), content_type=kind, content_encoding="gzip")

    async with connected(handler) as (client, raw, _):
        for _ in range(10):
            assert await client.send_raw_request("ping", None) == {"ok": True}
            await anyio.wait_all_tasks_blocked()
        assert raw.connections < 8


async def test_a_cookie_is_sent_back() -> None:
    async def handler(request: Request) -> None:
        await request.answer(request.result(), set_cookie="node=7; Path=/")

    async with connected(handler) as (client, raw, _):
        for _ in range(2):
            await client.send_raw_request("ping", None)
        assert [request.headers.get("cookie") for request in raw.log] == [None, "node=7"]


async def test_connections_from_before_a_cookie_are_closed_with_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, idle_connection=1000)

    async def handler(request: Request) -> None:
        await request.answer(request.result(), set_cookie="node=7; Path=/")

    async with raw_server(handler) as raw:
        async with http_client("up", raw.url, {}) as client, running(client):
            for _ in range(2):
                await client.send_raw_request("ping", None)
        with anyio.fail_after(SOON):
            if raw.open:
                await asyncio.wait(raw.open)


async def test_a_header_beyond_ascii_is_sent_as_it_is_whatever_carries_it() -> None:
    async def handler(request: Request) -> None:
        assert request.headers["x-a"] == "ä"
        await request.answer(gzip.compress(json.dumps(request.result()).encode()), content_encoding="gzip")

    async with connected(handler, headers={"X-A": "ä"}) as (client, _, _):
        assert await client.send_raw_request("ping", None) == {"ok": True}


def test_a_header_that_no_request_can_carry_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="header X-Key") as failed:
        Carrier("http://127.0.0.1/mcp", {"X-Key": "mine\u20ac"}, None)
    assert "mine" not in str(failed.value)


async def test_headers_of_a_request_count_more_than_those_of_the_mount_whatever_their_case() -> None:
    headers = {"Authorization": "Bearer mount", "X-A": "ä", "User-Agent": "mine"}
    async with connected(answered, headers=headers) as (client, raw, _):
        await client.send_raw_request("ping", None, {"headers": {"authorization": "Bearer caller"}})
        await client.send_raw_request("ping", None)
        first, second = (request.headers for request in raw.log)
    assert (first["authorization"], second["authorization"]) == ("Bearer caller", "Bearer mount")
    assert first["user-agent"] == "mine"


async def test_a_user_in_the_address_is_authenticated() -> None:
    async with raw_server(answered) as raw:
        url = raw.url.replace("127.0.0.1", "me:pass@127.0.0.1")
        async with http_client("up", url, {}) as client, running(client):
            await client.send_raw_request("ping", None)
        given = raw.log[0].headers["authorization"]
        assert base64.b64decode(given.removeprefix("Basic ")) == b"me:pass"


class Human(httpx2.Auth):
    """A login that waits for somebody."""

    def __init__(self) -> None:
        self.asked, self.done = anyio.Event(), anyio.Event()
        self.token: str | None = None

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if self.token is None:
            response = yield request
            assert response.status_code == 401
            self.asked.set()
            await self.done.wait()
            if self.token is None:
                raise RuntimeError("the user has said no")
        request.headers["authorization"] = f"Bearer {self.token}"
        yield request


@pytest.mark.parametrize("agrees", [True, False])
async def test_a_login_may_wait_for_a_human_and_one_that_fails_ends_the_connection(agrees: bool) -> None:
    async def handler(request: Request) -> None:
        known = request.headers.get("authorization") == "Bearer t"
        await request.answer(request.result() if known else None, "200 OK" if known else "401 Who")

    login, results = Human(), list[Any]()
    async with raw_server(handler) as raw, http_client("up", raw.url, {}, login) as client:
        async with running(client) as heard:

            async def call() -> None:
                try:
                    results.append(await client.send_raw_request("ping", None))
                except MCPError as fault:
                    results.append(fault)

            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await login.asked.wait()
                login.token = "t" if agrees else None
                login.done.set()
            if agrees:
                assert results == [{"ok": True}] and not heard.ended.is_set()
            else:
                await heard.ended.wait()
                assert says_ended(results[0]) and str(heard.fault) == "the user has said no"


async def test_a_refused_connection_says_that_nothing_was_sent() -> None:
    async with raw_server(answered) as raw:
        url = raw.url
    async with http_client("up", url, {}) as client, running(client):
        with pytest.raises(MCPError, match=f"{NOT_SENT}: ConnectError"):
            await client.send_raw_request("ping", None)


async def test_where_a_proxy_is_configured_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def proxy(request: Request) -> None:
        assert request.path == "http://mcp.example/mcp"
        await request.answer(request.result({"by": "proxy"}))

    async with raw_server(proxy) as raw:
        monkeypatch.setenv("http_proxy", raw.url.removesuffix("/mcp"))
        async with http_client("up", "http://mcp.example/mcp", {}) as client, running(client):
            assert await client.send_raw_request("ping", None) == {"by": "proxy"}


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    bounds(monkeypatch, idle_connection=0.05)
    yield


@pytest.mark.usefixtures("brief")
async def test_idle_connections_are_closed_by_themselves() -> None:
    gone = anyio.Event()

    async def handler(request: Request) -> None:
        await request.answer(request.result())
        await request.gone()
        gone.set()
        request.writer.close()

    async with connected(handler) as (client, _, _):
        await client.send_raw_request("ping", None)
        await gone.wait()


async def test_a_big_request_reaches_a_server_that_reads_slowly_and_one_that_answers_early() -> None:
    async def early(request: Request) -> None:
        await request.answer({**RESULT, "result": {"size": len(request.body)}})

    async with connected(early) as (client, _, _):
        answer = await client.send_raw_request("tools/call", {"x": "y" * 10_000_000})
        assert answer["size"] > 10_000_000


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("http://127.0.0.1:8000/mcp?key=a%20b&c=d", True),
        ("http://[::1]:8000/mcp", True),
        ("http://example.com", True),
        ("https://example.com/mcp", False),
        ("http://me@example.com/mcp", False),
        ("http://exämple.com/mcp", False),
        ("http://example.com/a b", False),
        ("http://example.com/mcp#part", False),
    ],
)
def test_what_is_carried_without_httpx2(url: str, plain: bool) -> None:
    assert plain_http.PlainHttp.takes(url) is plain


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_every_loop_reaches_addresses_and_names(
    host: str, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A name of this machine is looked up like any other one.
    monkeypatch.setattr(plain_http, "_ADDRESS", re.compile(r"[\d.]+"))

    async def main() -> None:
        async with raw_server(answered) as raw:
            url = raw.url.replace("127.0.0.1", host)
            async with http_client("up", url, {}) as client, running(client):
                for _ in range(3):
                    assert await client.send_raw_request("ping", None) == {"ok": True}
            assert raw.connections == 1

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_a_connection_is_closed_whose_request_is_cancelled_before_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[plain_http.Socket] = []

    class Refusing(plain_http.Socket):
        """A connection on which the turn of no request comes."""

        def __init__(self, *of: Any) -> None:
            super().__init__(*of)
            made.append(self)
            monkeypatch.setattr(self.http, "handle_async_request", self.waits)

        async def waits(self, _: object) -> None:
            await anyio.sleep_forever()

    monkeypatch.setattr(plain_http, "Socket", Refusing)
    async with raw_server(answered) as raw:
        http = plain_http.PlainHttp(raw.url, Allowance())
        async with anyio.create_task_group() as group:
            group.start_soon(http.send, "GET", raw.url, [], None)
            while not made or made[0]._transport is None:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        transport: Any = made[0]._transport
        assert transport.is_closing()


@pytest.mark.parametrize("auth", [None, httpx2.Auth()], ids=["plain", "httpx2"])
async def test_u117_cookies_of_a_server_are_bounded_and_can_be_sent_back(auth: httpx2.Auth | None) -> None:
    async def handler(request: Request) -> None:
        number = len(raw.log)
        odd = ("\xfc=1", "a=\xfc", "a=\x7f", f"long{number}={'x' * 5000}", "a=" + "y" * 100_000)
        lines = [f"set-cookie: {one}; Path=/\r\n" for one in (*odd, f"n{number}={number}", "node=7")]
        body = json.dumps(request.result()).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        await request.send((head + "".join(lines) + "\r\n").encode("latin-1") + body)

    async with connected(handler, auth) as (client, raw, _):
        for _ in range(80):
            assert await client.send_raw_request("ping", None) == {"ok": True}
        sent = raw.log[-1].headers["cookie"]
    assert "node=7" in sent and "n1=1" in sent and sent.isascii()
    assert sent.count("=") <= 50 and len(sent) < 10_000


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "socks5h://127.0.0.1:1", "ftp://127.0.0.1:1"])
async def test_u117_a_proxy_that_is_not_spoken_to_is_named_with_what_to_do(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "")
    async with http_client("up", "http://192.0.2.1/mcp", {}) as client, running(client) as heard:
        with pytest.raises(MCPError):
            await client.send_raw_request("ping", None)
        await heard.ended.wait()
        told = str(heard.fault)
    assert "HTTPS_PROXY" in told and "NO_PROXY" in told and "pip install" not in told


async def test_a_header_that_is_there_twice_is_read_as_httpx2_reads_it() -> None:
    async def handler(request: Request) -> None:
        body = json.dumps(request.result()).encode()
        await request.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nContent-Type: text/plain\r\n"
            b"content-length: %d\r\n\r\n" % len(body) + body
        )

    async with connected(handler) as (client, _, _):
        assert await client.send_raw_request("ping", None) == {"ok": True}


@pytest.mark.parametrize("auth", [None, httpx2.Auth()], ids=["plain", "httpx2"])
async def test_u117_the_cookies_of_one_caller_go_out_with_no_request_of_another(
    auth: httpx2.Auth | None,
) -> None:
    async def handler(request: Request) -> None:
        body = json.dumps(request.result()).encode()
        cookie = f"set-cookie: who={request.headers.get('authorization', 'nobody')}; Path=/\r\n"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{cookie}content-length: {len(body)}"
        await request.send(f"{head}\r\n\r\n".encode() + body)

    body = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    async with raw_server(handler) as raw:
        http = Carrier(raw.url, {}, auth)
        for caller in ("ann", "ann", "bob", "ann", "bob"):
            await drain(await http.send("POST", {"authorization": caller}, body))
        await http.aclose()
    sent = [request.headers.get("cookie") for request in raw.log]
    assert sent == [None, "who=ann", None, None, None]


COOKIES = {
    "paths": lambda number: [f"a={n}; Path=/{number}/{n}" for n in range(2000)],
    "names": lambda number: [f"{'a' * (number + n)}=1; Path=/mcp" for n in range(300)],
    "values": lambda number: [f"a{n}=1; Path=/" for n in range(2000)],
    "long attributes": lambda number: [f"a=1; Expires={'1' * 90_000}"],
}


@pytest.mark.parametrize("auth", [None, httpx2.Auth()], ids=["plain", "httpx2"])
@pytest.mark.parametrize("kind", COOKIES)
async def test_u117_of_one_response_no_more_cookies_are_looked_at_than_are_kept(
    kind: str, auth: httpx2.Auth | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(request: Request) -> None:
        body = json.dumps(request.result()).encode()
        lines = "".join(f"set-cookie: {one}\r\n" for one in COOKIES[kind](len(raw.log)))
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{lines}content-length: {len(body)}"
        await request.send(f"{head}\r\n\r\n".encode() + body)

    looked: list[list[str]] = []
    parse: Any = getattr(cookiejar, "parse_ns_headers")  # noqa: B009 - it is in no stub

    def parsed(lines: list[str]) -> Any:
        looked.append(lines)
        return parse(lines)

    monkeypatch.setattr(cookiejar, "parse_ns_headers", parsed)
    jars: list[LimitedCookies] = []
    monkeypatch.setattr(carrier, "LimitedCookies", lambda: jars.append(LimitedCookies()) or jars[-1])
    async with connected(handler, auth) as (client, raw, _):
        for _ in range(8):
            assert await client.send_raw_request("ping", None) == {"ok": True}
    assert all(len(lines) <= 50 and max(map(len, lines)) <= 4096 for lines in looked)
    (jar,) = jars
    assert len(jar) <= 50


async def test_u117_the_certificates_of_the_system_are_loaded_once_for_all_servers_and_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = list[object]()
    load: Any = ssl.SSLContext.load_verify_locations

    def noted(*given: Any, **more: Any) -> None:
        loaded.append(given)
        load(*given, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", noted)
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode()

    async def handler(request: Request) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}"
        await request.send(f"{head}\r\n\r\n".encode() + answer)

    async with raw_server(handler) as raw:
        for _ in range(5):
            http = Carrier(raw.url, {}, httpx2.Auth(), refusal=lambda url, address: "")
            await drain(await http.send("POST", {}, b"{}"))
            await http.aclose()
    assert not loaded  # none of these servers has TLS
    for _ in range(5):
        http = Carrier("https://127.0.0.1:1/mcp", {}, refusal=lambda url, address: "")
        with pytest.raises(httpx2.ConnectError):
            await http.send("POST", {}, b"{}")
        await http.aclose()
    assert len(loaded) <= 1
