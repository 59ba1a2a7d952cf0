"""What one server on HTTP keeps for its clients: sessions, answers that are not read, header lines."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import MCPError as SdkError
from tests.faults.harness import until
from tests.support.served import served
from tests.transports.test_http_endpoint import HEADERS, META, endpoint
from tests.transports.test_slow_readers import INITIALIZE, PLAIN

from mcp_toolset import HttpLimits, Toolset, ToolsetServer, load_toolset, tool
from mcp_toolset.errors import DefinitionError

pytestmark = pytest.mark.anyio

MB = 1024 * 1024
JSON = {name: value for name, value in PLAIN.items() if name != "host"}


@tool
def text(size: int) -> str:
    """As much text as is asked for."""
    return "x" * size


@asynccontextmanager
async def serving(
    *members: Any, proxies: Sequence[str] = (), **limits: int
) -> AsyncGenerator[httpx2.AsyncClient]:
    server = ToolsetServer(Toolset(text, *members))
    async with served(server, limits=HttpLimits(**limits), trusted_proxies=proxies) as url:
        async with httpx2.AsyncClient(base_url=url, timeout=None) as http:
            yield http


async def opened(http: httpx2.AsyncClient, **more: str) -> dict[str, str]:
    """The headers of a new session."""
    begun = await http.post("/mcp", headers=JSON | more, json=INITIALIZE)
    assert begun.status_code == 200, begun.text
    headers = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await http.post("/mcp", headers=JSON | headers, json=done)).status_code == 202
    return JSON | headers


def call(size: int, **meta: Any) -> dict[str, Any]:
    params = {"name": "text", "arguments": {"size": size}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def works(http: httpx2.AsyncClient, session: dict[str, str]) -> bool:
    answer = await http.post("/mcp", headers=session, json=call(3))
    assert answer.status_code in (200, 404)
    return answer.status_code == 200


@pytest.mark.parametrize("limits", [{"max_sessions_per_peer": 3}, {"max_sessions": 3}])
async def test_u46_the_session_that_is_idle_longest_goes_for_a_new_one(limits: dict[str, int]) -> None:
    async with serving(proxies=(), **limits) as http:
        sessions = [await opened(http) for _ in range(3)]
        ping = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
        await http.post("/mcp", headers=sessions[0], json=ping)
        sessions.append(await opened(http))
        assert [await works(http, session) for session in sessions] == [True, False, True, True]


async def test_u46_a_flood_of_sessions_is_kept_to_the_limit() -> None:
    sessions: list[dict[str, str]] = []
    async with serving(max_sessions_per_peer=5) as http:

        async def open_some() -> None:
            sessions.extend([await opened(http) for _ in range(10)])

        async with anyio.create_task_group() as clients:
            for _ in range(4):
                clients.start_soon(open_some)
        assert sum([await works(http, session) for session in sessions]) == 5


async def test_u46_an_address_that_a_client_makes_up_has_no_sessions_of_its_own() -> None:
    async with serving(max_sessions_per_peer=2) as http:
        sessions = [await opened(http, **{"x-forwarded-for": f"192.0.2.{number}"}) for number in range(4)]
        assert [await works(http, session) for session in sessions] == [False, False, True, True]


async def test_u46_clients_behind_a_trusted_proxy_have_sessions_by_their_own_address() -> None:
    async with serving(proxies=["127.0.0.0/8", "192.0.2.250"], max_sessions_per_peer=1) as http:
        came = ["192.0.2.1", "192.0.2.2, 192.0.2.250", "made up by the client, 192.0.2.1"]
        sessions = [await opened(http, **{"x-forwarded-for": each}) for each in came]
        assert [await works(http, session) for session in sessions] == [False, True, True]


async def test_u46_limits_and_proxies_are_those_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(
        '{"mcpServers": {}, "toolset": {"http": '
        '{"max_sessions_per_peer": 1, "trusted_proxies": ["127.0.0.1"]}}}'
    )
    async with ToolsetServer(load_toolset(tmp_path / "mcp.json")) as server:
        app = server.http_app()
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
        ):
            for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
                await opened(http, **{"x-forwarded-for": address})
            assert len(endpoint(app).sessions) == 2


@pytest.mark.parametrize("proxy", ["proxy.example.com", "10.0.0.0/33", "10.0.0.1/8"])
async def test_u46_a_proxy_that_is_no_address_is_refused(proxy: str) -> None:
    with pytest.raises(DefinitionError, match="trusted_proxies: .* is no IP address and no network"):
        ToolsetServer(Toolset(text)).http_app(trusted_proxies=[proxy])


async def test_u46_when_all_sessions_are_in_use_a_new_one_is_refused_with_the_name_of_the_limit() -> None:
    begun = 0

    async def wait() -> str:
        """Never ends."""
        nonlocal begun
        begun += 1
        await anyio.sleep_forever()
        return ""

    async with serving(tool(wait), max_sessions_per_peer=2) as http, anyio.create_task_group() as group:
        params = {"name": "wait", "arguments": {}}
        waiting = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        for session in [await opened(http) for _ in range(2)]:
            group.start_soon(lambda busy=session: http.post("/mcp", headers=busy, json=waiting))
        await until(lambda: begun == 2)
        answer = await http.post("/mcp", headers=JSON, json=INITIALIZE)
        group.cancel_scope.cancel()
    assert answer.status_code == 503
    assert "max_sessions_per_peer is 2" in answer.json()["error"]["message"]


async def test_u40_answers_that_are_not_read_over_http_have_a_budget() -> None:
    headers = {**JSON, **{name: value for name, value in HEADERS.items() if name.startswith("mcp-")}}
    headers["mcp-name"] = "text"
    async with serving(max_unread_bytes_per_peer=10 * MB) as http, AsyncExitStack() as stack:

        async def ask() -> httpx2.Response:
            body = json.dumps(call(8 * MB, **META)).encode()
            return await stack.enter_async_context(http.stream("POST", "/mcp", headers=headers, content=body))

        # The first is not read; the kernel holds a part of it.
        first = await ask()
        assert first.status_code == 200
        second = await ask()
        assert second.status_code == 503
        assert "max_unread_bytes_per_peer is" in json.loads(await second.aread())["error"]["message"]
        small = await http.post("/mcp", headers=headers, json=call(3, **META))
        assert small.status_code == 200
        # Who reads gets all of it, and then there is room again.
        assert len(await first.aread()) > 8 * MB
        third = await ask()
        assert third.status_code == 200 and len(await third.aread()) > 8 * MB


async def test_u48_a_body_in_utf_16_and_thousands_of_header_lines_are_refused_with_a_reason() -> None:
    async with serving() as http:
        for encoding in ("utf-16", "utf-16-le", "utf-32"):
            body = json.dumps(INITIALIZE).encode(encoding)
            answer = await http.post("/mcp", headers=JSON, content=body)
            assert answer.status_code == 400 and "UTF-8" in answer.json()["error"]["message"]
        many = [*JSON.items(), *((f"x-{number}", "y") for number in range(300))]
        answer = await http.post("/mcp", headers=many, json=INITIALIZE)
        assert answer.status_code == 431 and "200 header lines" in answer.text


def test_u46_a_limit_is_a_positive_number() -> None:
    with pytest.raises(DefinitionError, match="max_sessions_per_peer is a positive whole number, not 0"):
        HttpLimits(max_sessions_per_peer=0)


async def test_u48_logs_do_not_show_whole_session_ids(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="mcp_toolset")
    known, made_up = "0123456789abcdef" * 2, "a-secret-of-mine\nWARNING forged"
    async with serving() as http:
        for name in (known, made_up):
            answer = await http.post("/messages/", params={"session_id": name}, json=INITIALIZE)
            assert answer.status_code in (400, 404)
        gone = await http.post("/mcp", headers=JSON | {"mcp-session-id": known}, json=call(3))
        assert gone.status_code == 404
    said = [record.getMessage() for record in caplog.records if record.name.startswith("mcp")]
    assert any("01234567…" in line for line in said) and any("a-secret…" in line for line in said)
    assert not any("89abcdef" in line or "of-mine" in line for line in said)


async def test_u46_a_flood_of_refused_handshakes_opens_no_session_and_ends_none() -> None:
    bad = {**INITIALIZE, "params": {"protocolVersion": 7}}
    async with ToolsetServer(Toolset(text)) as server:
        app = server.http_app(limits=HttpLimits(max_sessions_per_peer=2))
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
        ):
            session = await opened(http)
            for _ in range(5):
                answer = await http.post("/mcp", headers=JSON, json=bad)
                assert answer.json()["error"]["code"] == -32602 and answer.json()["id"] == bad["id"]
                assert "mcp-session-id" not in answer.headers
            assert await works(http, session) and len(endpoint(app).sessions) == 1
            # One that is refused in an open session leaves that open.
            assert "error" in (await http.post("/mcp", headers=session, json=bad)).json()
            assert await works(http, session)


async def test_u46_a_handshake_that_a_programs_middleware_refuses_leaves_no_session() -> None:
    async def refuse(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "initialize":
            raise SdkError(-32000, "not today")
        return await call_next(ctx)

    async with ToolsetServer(Toolset(text)) as server:
        app = server.http_app()
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
        ):
            session = await opened(http)
            server.lowlevel.middleware.insert(0, refuse)
            answer = await http.post("/mcp", headers=JSON, json=INITIALIZE)
            assert answer.json()["error"]["code"] == -32000 and "mcp-session-id" not in answer.headers
            assert (await http.post("/mcp", headers=session, json=INITIALIZE)).json()["error"]
            assert len(endpoint(app).sessions) == 1 and await works(http, session)
