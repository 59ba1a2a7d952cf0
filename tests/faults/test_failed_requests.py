"""Single HTTP requests to a mounted server that fail on their way, beside others that do not."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from tests.faults.harness import SOON, hostile_http, ready, received, specials, until
from tests.support.bounds import bounds

from mcp_toolset import RemoteToolset, ToolResult, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio
TOOLS = specials("drop", "half", "garbled", "wait", "open", "refuse_post")


def served(port: int, path: str = "mcp") -> ToolsetServer:
    url = f"http://127.0.0.1:{port}/{path}"
    return ToolsetServer(Toolset(RemoteToolset(url, name="up", timeout=60, start_timeout=20)))


def calls(log: Path, name: str) -> int:
    messages = [entry["message"] for entry in received(log) if entry.get("message")]
    return sum((each.get("params") or {}).get("name") == name for each in messages)


def counted(log: Path, method: str) -> int:
    return sum((entry.get("message") or {}).get("method") == method for entry in received(log))


@pytest.mark.parametrize("fault", ["drop", "half", "garbled"])
@pytest.mark.parametrize("modern", [False, True])
async def test_u65_a_request_that_fails_is_one_call_that_fails(fault: str, modern: bool, log: Path) -> None:
    with hostile_http(tools=TOOLS, modern=modern, log=str(log)) as (port, _):
        async with served(port) as server:
            await one_fails_and_five_do_not(server, fault, log)
    assert counted(log, "server/discover" if modern else "initialize") == 1


@pytest.mark.parametrize("fault", ["drop", "refuse_post"])
async def test_u65_a_message_to_an_sse_server_that_fails_is_one_call_that_fails(
    fault: str, log: Path
) -> None:
    with hostile_http(tools=TOOLS, log=str(log)) as (port, _):
        async with served(port, "sse") as server:
            await one_fails_and_five_do_not(server, fault, log)
    assert counted(log, "initialize") == 1


async def one_fails_and_five_do_not(server: ToolsetServer, fault: str, log: Path) -> None:
    results: list[ToolResult] = []

    async def wait() -> None:
        results.append(await server.call_tool("wait", {}))

    with anyio.fail_after(3 * SOON):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(wait)
            await until(lambda: calls(log, "wait") == 5)
            lost = await server.call_tool(fault, {})
            assert lost.is_error and "the connection was lost during the call" in lost.text
            assert json.loads((await server.call_tool("echo", {"n": 1})).text) == {"n": 1}
            await server.call_tool("open", {})
        assert [result.text for result in results] == ["done"] * 5
        await until(lambda: counted(log, "tools/list") >= 2)
    assert ready(server)()
    assert calls(log, fault) == 1


@pytest.mark.parametrize("get", ["end", "drop"])
async def test_u42_a_stream_that_ends_at_once_is_opened_again_with_growing_waits(
    get: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, first_retry=0.2, longest_retry=30)

    def opened() -> list[float]:
        return [entry["at"] for entry in received(log) if entry["verb"] == "GET"]

    with hostile_http(tools=TOOLS, get=get, log=str(log)) as (port, _):
        async with served(port) as server:
            await until(lambda: len(opened()) >= 5)
            assert ready(server)()
    gaps = [later - earlier for earlier, later in pairwise(opened())]
    assert all(gap >= wait for gap, wait in zip(gaps, (0.2, 0.4, 0.8, 1.6), strict=False))
