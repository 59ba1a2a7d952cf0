"""A list with one schema that is thousands of levels deep: that tool alone is set aside, by its name."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import until
from tests.transports.client.raw_server import Request, raw_server

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

LEVELS = 3_000
DEEP = '{"type":"object","properties":{"a":' * LEVELS + '{"type":"object"}' + "}}" * LEVELS
TOOLS = '[{"name":"plain","inputSchema":{"type":"object"}},{"name":"deep","inputSchema":' + DEEP + "}]"
INFO = {"name": "deep", "version": "1"}
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO},
    "server/discover": {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
    },
}


def answer(message: dict[str, Any], *, modern: bool) -> bytes:
    """The answer to a request, as text: Python cannot write what it cannot read."""
    method, head = message["method"], f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},'
    if method == "tools/list":
        more = '"resultType":"complete","ttlMs":0,"cacheScope":"private",' if modern else ""
        return f'{head}"result":{{{more}"tools":{TOOLS}}}}}'.encode()
    if method in RESULTS and modern == (method == "server/discover"):
        return f'{head}"result":{json.dumps(RESULTS[method])}}}'.encode()
    return f'{head}"error":{{"code":-32601,"message":"no {method}"}}}}'.encode()


async def check(target: Any) -> None:
    mount = RemoteToolset(target, name="up")
    with anyio.fail_after(30):
        async with ToolsetServer(Toolset(mount)) as server:
            await until(lambda: mount.status.state == "ready")
            assert [tool["name"] for tool in server.tools()] == ["plain"]
            ((name, reason),) = mount.status.set_aside
            assert name == "deep" and "nested more than" in reason


@pytest.mark.parametrize("modern", [True, False])
async def test_u118_over_stdio_the_deep_tool_alone_is_set_aside(tmp_path: Path, modern: bool) -> None:
    answers = {
        method: answer({"method": method, "id": 0}, modern=modern).decode().replace('"id":0', '"id":%s', 1)
        for method in (*RESULTS, "tools/list", "other")
    }
    script = tmp_path / "deep.py"
    script.write_text(
        f"""import json, sys
answers = {answers!r}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        text = answers.get(message["method"], answers["other"])
        print(text.replace("%s", json.dumps(message["id"]), 1), flush=True)
"""
    )
    await check([sys.executable, "-S", str(script)])


@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize("modern", [True, False])
async def test_u118_over_http_the_deep_tool_alone_is_set_aside(modern: bool, events: bool) -> None:
    async def reply(request: Request) -> None:
        if request.verb != "POST":
            await request.answer(None, "405 Method Not Allowed")
        elif "id" not in request.message:
            await request.answer(None, "202 Accepted")
        elif events and request.message["method"] == "tools/list":
            body = b"data: %b\n\n" % answer(request.message, modern=modern)
            await request.answer(body, content_type="text/event-stream")
        else:
            await request.answer(answer(request.message, modern=modern))

    async with raw_server(reply) as raw:
        await check(raw.url)
