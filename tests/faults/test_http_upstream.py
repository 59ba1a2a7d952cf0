"""Mounted servers on HTTP that die, forget their sessions, break off their answers, or ask for secrets."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.faults.harness import (
    SOON,
    descriptors,
    hostile_http,
    names,
    ready,
    received,
    specials,
    tool,
    until,
)
from tests.support.bounds import bounds
from tests.support.served import free_socket
from tests.support.served import served as over_http

from mcp_toolset import RemoteToolset, ToolResult, Toolset, ToolsetServer
from mcp_toolset.errors import UpstreamProtocolError

pytestmark = pytest.mark.anyio
HTTP_TOOLS = specials("die", "cut", "big", "refuse", "refuse_post", "end_stream")


def at(port: int, path: str = "mcp", **options: Any) -> RemoteToolset:
    return RemoteToolset(
        f"http://127.0.0.1:{port}/{path}", name="up", timeout=60, start_timeout=20, **options
    )


def served(*members: Toolset) -> ToolsetServer:
    return ToolsetServer(Toolset(*members))


def methods(log: Path) -> list[str]:
    return [entry["message"]["method"] for entry in received(log) if entry.get("message")]


def verbs(log: Path) -> list[str]:
    return [entry["verb"] for entry in received(log)]


async def echoes(server: ToolsetServer) -> bool:
    with anyio.fail_after(SOON):
        return (await server.call_tool("echo", {"n": 1})).text == '{"n": 1}'


@pytest.mark.parametrize("modern", [False, True])
async def test_f1_killed_in_a_call_is_an_error_within_a_second_and_it_comes_back(
    modern: bool, log: Path
) -> None:
    script = {"log": str(log), "modern": modern, "tools": HTTP_TOOLS}
    with hostile_http(**script) as (port, process):
        async with served(at(port)) as server:
            results: list[ToolResult] = []

            async def call() -> None:
                results.append(await server.call_tool("hang", {}))

            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await until(lambda: "tools/call" in methods(log))
                process.kill()
                began = anyio.current_time()
            assert anyio.current_time() - began < SOON
            assert results[0].is_error and "the connection was lost during the call" in results[0].text
            await until(lambda: server.statuses()["up"].state == "offline")
            assert "echo" in names(server)
            with hostile_http(**script, port=port):
                await until(ready(server))
                assert await echoes(server)
    assert methods(log).count("tools/call") == 2


async def test_f2_killed_while_idle_the_next_call_says_so_at_once_and_it_comes_back(log: Path) -> None:
    with hostile_http(tools=HTTP_TOOLS) as (port, process):
        async with served(at(port)) as server:
            process.kill()
            process.wait()
            with anyio.fail_after(SOON):
                lost = await server.call_tool("echo", {})
            assert lost.is_error and lost.text.startswith("up: the server cannot be reached, so the call did")
            await until(lambda: "Connect" in server.statuses()["up"].reason)
            assert server.statuses()["up"].state == "offline"
            with hostile_http(tools=HTTP_TOOLS, port=port):
                await until(ready(server))
                assert await echoes(server)


async def test_f3_a_server_that_has_forgotten_the_session_gets_a_new_one(log: Path) -> None:
    with hostile_http(tools=HTTP_TOOLS) as (port, process):
        async with served(at(port)) as server:
            process.kill()
            process.wait()
            with hostile_http(tools=HTTP_TOOLS, port=port, log=str(log)):
                with anyio.fail_after(SOON):
                    await server.call_tool("echo", {"n": 0})
                await until(ready(server))
                assert await echoes(server)
    answered = [
        entry for entry in received(log) if (entry.get("message") or {}).get("method") == "tools/call"
    ]
    assert [entry["message"]["params"]["arguments"] for entry in answered] == [{"n": 0}, {"n": 1}]
    assert answered[0]["headers"]["mcp-session-id"] != answered[1]["headers"]["mcp-session-id"]


async def test_f1_an_answer_that_breaks_off_fails_its_own_call_alone(log: Path) -> None:
    with hostile_http(tools=HTTP_TOOLS, log=str(log)) as (port, _):
        async with served(at(port)) as server:
            async with anyio.create_task_group() as group:
                group.start_soon(server.call_tool, "hang", {})
                await until(lambda: "tools/call" in methods(log))
                with anyio.fail_after(SOON):
                    cut = await server.call_tool("cut", {})
                assert cut.is_error and "the connection was lost during the call" in cut.text
                assert await echoes(server)
                await until(lambda: methods(log).count("tools/list") == 2)
                group.cancel_scope.cancel()
    assert methods(log).count("initialize") == 1


async def test_f11_a_big_answer_in_one_event_arrives() -> None:
    with hostile_http(tools=HTTP_TOOLS) as (port, _):
        async with served(at(port)) as server:
            with anyio.fail_after(40):
                assert len((await server.call_tool("big", {"size": 10_000_000})).text) == 10_000_000


@pytest.mark.long
async def test_f28_a_thousand_concurrent_calls_and_none_is_crossed() -> None:
    answers: dict[int, Any] = {}
    with hostile_http(tools=HTTP_TOOLS) as (port, _):
        async with served(RemoteToolset(f"http://127.0.0.1:{port}/mcp", name="up")) as server:

            async def call(number: int) -> None:
                answers[number] = json.loads((await server.call_tool("echo", {"n": number})).text)

            with anyio.fail_after(40):
                async with anyio.create_task_group() as group:
                    for number in range(1000):
                        group.start_soon(call, number)
            assert ready(server)()
    assert answers == {number: {"n": number} for number in range(1000)}


async def test_codes_that_a_server_chose_itself_are_its_own(log: Path) -> None:
    with hostile_http(tools=HTTP_TOOLS, log=str(log)) as (port, _):
        async with served(at(port)) as server:
            for code in (-32000, -32001, -32600):
                with pytest.raises(UpstreamProtocolError) as refused:
                    await server.call_tool("refuse", {"code": code})
                assert refused.value.code == code
    assert methods(log).count("initialize") == 1


async def test_f46_a_session_is_ended_with_its_connection_also_when_that_is_cancelled(log: Path) -> None:
    with hostile_http(tools=HTTP_TOOLS, log=str(log)) as (port, _):
        async with served(at(port)) as server:
            assert await echoes(server)
        with anyio.CancelScope() as scope:
            async with served(at(port)):
                scope.cancel()
    ends = [entry["headers"] for entry in received(log) if entry["verb"] == "DELETE"]
    assert len(ends) == 2
    assert all(headers["mcp-session-id"].startswith("session-") for headers in ends)
    assert all(headers["mcp-protocol-version"] == "2025-11-25" for headers in ends)


@pytest.mark.long
@pytest.mark.parametrize("path", ["mcp", "sse"])
async def test_f46_cycles_of_crash_and_reconnect_leave_nothing_over(path: str) -> None:
    with hostile_http(tools=HTTP_TOOLS) as (port, process):
        async with served(at(port, path)) as server:
            assert await echoes(server)
            await anyio.wait_all_tasks_blocked()
            tasks, fds = len(anyio.get_running_tasks()), descriptors()
            for _ in range(3):
                process.kill()
                process.wait()
                await server.call_tool("echo", {})
                await until(lambda: server.statuses()["up"].state == "offline")
                with hostile_http(tools=HTTP_TOOLS, port=port) as (_, again):
                    await until(ready(server))
                    assert await echoes(server)
                    again.kill()
                    again.wait()
                    if path == "mcp":
                        await server.call_tool("echo", {})
                    await until(lambda: server.statuses()["up"].retry_in is not None)
            await until(lambda: len(anyio.get_running_tasks()) <= tasks and descriptors() <= fds)


async def test_f1_the_end_of_an_sse_stream_is_the_end_of_its_calls(log: Path) -> None:
    with hostile_http(tools=HTTP_TOOLS, log=str(log)) as (port, _):
        async with served(at(port, "sse")) as server:
            assert await echoes(server)
            with anyio.fail_after(SOON):
                lost = await server.call_tool("end_stream", {})
            assert lost.is_error and "the connection was lost during the call" in lost.text
            await until(ready(server))
            assert await echoes(server)


async def test_f1_an_sse_message_that_is_refused_does_not_leave_its_call_waiting() -> None:
    with hostile_http(tools=HTTP_TOOLS) as (port, _):
        async with served(at(port, "sse")) as server:
            with anyio.fail_after(SOON):
                refused = await server.call_tool("refuse_post", {})
            assert refused.is_error and "the connection was lost during the call" in refused.text
            await until(ready(server))
            assert await echoes(server)


async def test_f5_f6_addresses_where_nobody_answers_are_alone_unavailable() -> None:
    with free_socket() as silent, free_socket() as other:
        refused_port = other.getsockname()[1]
        other.close()
        hung = RemoteToolset(
            f"http://127.0.0.1:{silent.getsockname()[1]}/mcp", name="hung", start_timeout=0.5
        )
        hung_sse = RemoteToolset(
            f"http://127.0.0.1:{silent.getsockname()[1]}/sse", name="sse", start_timeout=0.5
        )
        absent = RemoteToolset(f"http://127.0.0.1:{refused_port}/mcp", name="absent")
        with hostile_http() as (port, _):
            async with served(at(port), hung, hung_sse, absent) as server:
                assert await echoes(server)
                statuses = server.statuses()
                assert "no answer within 0.5 s" in statuses["hung"].reason
                assert "no answer within 0.5 s" in statuses["sse"].reason
                assert "ConnectError" in statuses["absent"].reason


async def test_f11_an_answer_over_the_limit_fails_its_own_call(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, http_message=100_000)
    with hostile_http(tools=HTTP_TOOLS) as (port, _):
        async with served(at(port)) as server:
            with anyio.fail_after(SOON), pytest.raises(UpstreamProtocolError, match="more than 100000 bytes"):
                await server.call_tool("echo", {"x": "y" * 200_000})
            with anyio.fail_after(SOON):
                assert (await server.call_tool("big", {"size": 200_000})).is_error
            assert await echoes(server)
            assert ready(server)()


async def test_f25_a_server_that_ends_every_stream_at_once_is_asked_less_and_less(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, first_retry=0.1, longest_retry=30)
    with hostile_http(modern=True, listen=True, log=str(log)) as (port, _):
        async with served(at(port)) as server:
            await until(lambda: methods(log).count("subscriptions/listen") == 4)
            assert await echoes(server)
            assert ready(server)()
        times = [
            entry["at"]
            for entry in received(log)
            if (entry["message"] or {}).get("method", "").startswith("sub")
        ]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] >= 0.1 and gaps[1] >= 0.2 and gaps[2] >= 0.4
    assert methods(log).count("tools/list") <= 5


@contextmanager
def nobody_may_call() -> Generator[str]:
    with free_socket() as bound:
        bound.setblocking(False)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(BlockingIOError):
            bound.accept()


@pytest.mark.parametrize("script", ["redirect", "endpoint"])
async def test_f47_a_server_cannot_send_its_mount_elsewhere(script: str) -> None:
    with nobody_may_call() as base, hostile_http(**{script: base}) as (port, _):
        up = at(
            port, "sse" if script == "endpoint" else "mcp", headers={"Authorization": "Bearer mine-alone"}
        )
        up.connection.pool.start_timeout = 1
        async with served(up) as server:
            await until(lambda: server.statuses()["up"].retry_in is not None)
            assert server.statuses()["up"].reason


async def test_f17_a_tool_whose_annotated_headers_are_none_is_set_aside_and_harms_no_call() -> None:
    def annotated(header: Any) -> dict[str, Any]:
        properties = {"a": {"type": "string", "x-mcp-header": header}}
        return {"inputSchema": {"type": "object", "properties": properties}}

    bad = {"crlf": "X\r\nEvil: 1", "empty": "", "number": 5}
    tools = [tool(name, **annotated(header)) for name, header in bad.items()]
    with hostile_http(modern=True, tools=[*tools, tool("good", **annotated("Region"))]) as (port, _):
        async with served(at(port)) as server:
            assert names(server) == ["good"]
            assert [name for name, _ in server.statuses()["up"].set_aside] == list(bad)
            for value in ("plain", "a\r\nEvil: 1", "ä" * 100, " \x00"):
                assert json.loads((await server.call_tool("good", {"a": value})).text) == {"a": value}


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("modern", [False, True])
async def test_f43_what_a_client_authenticates_with_is_not_forwarded(
    mode: str, modern: bool, log: Path
) -> None:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    inbound = {
        "Authorization": "Bearer inbound-secret",
        "Cookie": "session=inbound-cookie",
        "X-Api-Key": "inbound-key",
    }
    with hostile_http(log=str(log), modern=modern) as (port, _):
        own = at(port, headers={"Authorization": "Bearer own-secret"})
        async with over_http(served(own)) as url, httpx2.AsyncClient(headers=inbound) as http:
            with anyio.fail_after(40):
                async with Client(
                    streamable_http_client(f"{url}/mcp", http_client=http), mode=mode, cache=None
                ) as client:
                    await client.list_tools()
                    await client.call_tool("echo", {})
    logged = received(log)
    assert any((entry.get("message") or {}).get("method") == "tools/call" for entry in logged)
    assert "inbound" not in json.dumps(logged)
    assert {entry["headers"].get("authorization") for entry in logged} == {"Bearer own-secret"}


@pytest.mark.needs("upstream_access")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("modern", [False, True])
async def test_f43_credentials_are_forwarded_to_the_server_that_asks_for_them_and_each_callers_apart(
    mode: str, modern: bool, log: Path
) -> None:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    with hostile_http(log=str(log), modern=modern) as (port, _):
        own = at(port, headers={"Authorization": "Bearer own"}, forward_authorization=True)
        async with over_http(served(own)) as url:
            for name in ("ann", "bob", ""):
                inbound = {
                    "Cookie": "session=inbound",
                    **({"Authorization": f"Bearer {name}"} if name else {}),
                }
                async with httpx2.AsyncClient(headers=inbound) as http:
                    transport = streamable_http_client(f"{url}/mcp", http_client=http)
                    with anyio.fail_after(40):
                        async with Client(transport, mode=mode, cache=None) as client:
                            await client.call_tool("echo", {"who": name or "own"})
    logged = received(log)
    assert "inbound" not in json.dumps(logged)
    sent = {
        (entry["message"]["params"]["arguments"]["who"], entry["headers"]["authorization"])
        for entry in logged
        if (entry.get("message") or {}).get("method") == "tools/call"
    }
    assert sent == {(name, f"Bearer {name}") for name in ("ann", "bob", "own")}
    if not modern:
        opened = [
            e["headers"]["authorization"]
            for e in logged
            if (e["message"] or {}).get("method") == "initialize"
        ]
        assert sorted(opened) == ["Bearer ann", "Bearer bob", "Bearer own"]


async def test_f43_headers_of_one_mount_are_sent_to_no_other(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with hostile_http(log=str(one)) as (first, _), hostile_http(log=str(two)) as (second, _):
        a = RemoteToolset(f"http://127.0.0.1:{first}/mcp", name="a", headers={"X-Key": "key-of-a"})
        b = RemoteToolset(f"http://127.0.0.1:{second}/mcp", name="b")
        async with served(a.prefixed("a"), b.prefixed("b")) as server:
            await server.call_tool("a_echo", {})
            await server.call_tool("b_echo", {})
    assert "key-of-a" in one.read_text()
    assert "key-of-a" not in two.read_text()
