"""The Inspector's command line as the client: nothing of this project or of its SDK on that side."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Awaitable, Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.peers.processes import listening_process
from tests.peers.programs import HERE, INSPECTOR, node, node_script
from tests.support.warm import Warm

pytestmark = pytest.mark.anyio

SERVE = ("-m", "mcp_toolset", "serve", str(HERE / "bridge.py"))
IS_ERROR = 5
"""The Inspector's exit code for a result that says `isError`."""

Answer = tuple[int, dict[str, Any]]
Inspect = Callable[..., Awaitable[Answer]]


@pytest.fixture(params=["stdio", "http", "sse"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Generator[str]:
    """The base address of one bridge that serves both HTTP transports."""
    node()
    home = {**os.environ, "HOME": str(tmp_path_factory.mktemp("home"))}
    command = warm.command(*SERVE, "--transport", "http", "--port", "0")
    with listening_process(command, r"at (http://\S+)/mcp", home) as base:
        yield base


@pytest.fixture
def inspect(transport: str, era: str, tmp_path: Path, request: pytest.FixtureRequest, warm: Warm) -> Inspect:
    """Runs the Inspector on the bridge: a method, and for `tools/call` a tool and its arguments."""
    program = [node(), node_script(INSPECTOR), "--cli", "--quiet", "--format", "json", "--protocol-era", era]
    environment = {**os.environ, "HOME": str(tmp_path)}
    if transport == "stdio":
        target = ["--", *warm.command(*SERVE)]
    else:
        path = "mcp" if transport == "http" else "sse"
        url = f"{request.getfixturevalue('address')}/{path}"
        target = ["--transport", transport, "--server-url", url]

    async def run(method: str, tool: str = "", arguments: Mapping[str, Any] | None = None) -> Answer:
        question = ["--method", method]
        if tool:
            question += ["--tool-name", tool, "--tool-args-json", json.dumps(arguments or {})]
        command = [*program, *question, *target]
        with anyio.fail_after(120):
            done = await anyio.run_process(command, check=False, env=environment, stderr=subprocess.PIPE)
        assert done.stdout, done.stderr.decode()
        return done.returncode, json.loads(done.stdout)["result"]

    return run


EACH = [("stdio", "modern"), ("http", "legacy"), ("sse", "modern")]
"""Each transport in one era, and each in the other one: a start of the Inspector takes a second."""
EACH_ANEW = [("stdio", "legacy"), ("http", "modern"), ("sse", "legacy")]


@pytest.mark.parametrize(("transport", "era"), EACH, indirect=True)
async def test_n10_the_inspector_lists_the_tools(inspect: Inspect) -> None:
    code, result = await inspect("tools/list")
    tools = {tool["name"]: tool for tool in result["tools"]}
    assert code == 0
    assert {"add", "explode", "get_current_time", "search_tools", "call_tool"} <= set(tools)
    assert "convert_time" not in tools
    assert tools["add"]["inputSchema"]["required"] == ["a"]
    assert tools["get_current_time"]["annotations"]["readOnlyHint"] is True


@pytest.mark.parametrize(("transport", "era"), EACH_ANEW, indirect=True)
async def test_n9_n10_the_inspector_calls_a_mounted_tool(inspect: Inspect) -> None:
    code, result = await inspect("tools/call", "get_current_time", {"timezone": "Asia/Tokyo"})
    value = result["structuredContent"]
    assert code == 0
    assert value["timezone"] == "Asia/Tokyo" and re.fullmatch(r"\d{4}-.*\+09:00", value["datetime"])
    assert json.loads(result["content"][0]["text"]) == value


@pytest.mark.parametrize("transport", ["http"], indirect=True)
@pytest.mark.parametrize("era", ["legacy"], indirect=True)
async def test_n10_the_inspector_sees_results_and_errors_of_tools(inspect: Inspect) -> None:
    code, added = await inspect("tools/call", "add", {"a": 1, "b": 4})
    assert (code, added["structuredContent"]) == (0, {"result": 5})
    code, failed = await inspect("tools/call", "explode")
    assert (code, failed["isError"]) == (IS_ERROR, True)
    assert "the fuse was lit" in failed["content"][0]["text"]
    code, refused = await inspect("tools/call", "get_current_time", {"timezone": "Mars/Base"})
    assert code == IS_ERROR and "Mars has no time" in refused["content"][0]["text"]


@pytest.mark.parametrize("transport", ["http"], indirect=True)
@pytest.mark.parametrize("era", ["modern"], indirect=True)
async def test_x1_the_inspector_searches_resolves_and_calls(inspect: Inspect) -> None:
    query = {"query": "convert a time to another time zone", "resolve": 1}
    found = (await inspect("tools/call", "search_tools", query))[1]
    grant = found["structuredContent"]["resolved"][0]["grant"]
    noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    code, result = await inspect("tools/call", "call_tool", {"grant": grant, "arguments": noon})
    assert (code, result["structuredContent"]["time_difference"]) == (0, "+9.0h")
    guess = {"grant": "convert_time", "arguments": noon}
    code, refused = await inspect("tools/call", "call_tool", guess)
    assert code == IS_ERROR and "no live grant" in refused["content"][0]["text"]
