"""What is imported before the first answers: a start costs what it imports.

Each program is a process of its own and says at its end what it has imported. No time is measured.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

pytestmark = pytest.mark.anyio

UPSTREAM = Path(__file__).parents[1] / "benchmarks" / "raw_upstream.py"
DEADLINE = 120.0

ALWAYS_LATER = {
    "filelock",
    "mcp",
    "mcp_types",
    "numpy",
    "opentelemetry",
    "pydantic_monty",
    "rich",
    "sqlite3",
    "starlette",
    "uvicorn",
}
"""Packages that neither a declaration nor a server over stdio needs."""

SAID = """
import sys
found = {name.partition(".")[0] for name in sys.modules} | {name for name in sys.modules if "." in name}
print(*sorted(found), file=sys.stderr)
"""

TOOL = '''
@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''

HELLO = f"""
from mcp_toolset import serve, tool
{TOOL}
serve(add)
"""

MOUNT = f"""
from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, serve
upstream = RemoteToolset([{sys.executable!r}, "-S", {str(UPSTREAM)!r}], name="raw")
serve(ToolsetServer(Toolset(upstream), list_timeout=60))
"""

GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "imports", "version": "1"},
}


async def imported(program: str, *requests: tuple[str, dict[str, Any]]) -> tuple[set[str], list[Any]]:
    """What a program has imported when it has answered these requests, and the answers."""
    command = [sys.executable, "-c", program + SAID]
    answers: list[Any] = []
    with anyio.fail_after(DEADLINE):
        async with await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            lines = BufferedByteReceiveStream(process.stdout)
            for number, (method, params) in enumerate(requests):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                await process.stdin.send(json.dumps(message).encode() + b"\n")
                answer: dict[str, Any] = {}
                while answer.get("id") != number:
                    answer = json.loads(await lines.receive_until(b"\n", 1_000_000))
                answers.append(answer.get("result"))
                if method == "initialize":
                    await process.stdin.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            await process.stdin.aclose()
            said = b"".join([chunk async for chunk in process.stderr])
    return set(said.decode().split()), answers


async def test_declaring_tools_imports_no_server_no_models_and_no_search() -> None:
    found, _ = await imported("from mcp_toolset import tool, Toolset")
    assert "pydantic_core" in found
    later = {"asyncio", "click", "httpx2", "jsonschema_rs", "platformdirs", "pydantic"}
    assert found & (ALWAYS_LATER | later) == set()


ENVELOPE = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": GREETING["clientInfo"],
    }
}


@pytest.mark.parametrize(
    ("first", "more"), [(("initialize", GREETING), {}), (("server/discover", ENVELOPE), ENVELOPE)]
)
async def test_a_server_over_stdio_answers_without_the_sdk_and_without_what_only_others_need(
    first: tuple[str, dict[str, Any]], more: dict[str, Any]
) -> None:
    call = {"name": "add", "arguments": {"a": 1, "b": 2}, **more}
    asked = [first, ("tools/list", more), ("prompts/list", more), ("tools/call", call)]
    found, answers = await imported(HELLO, *asked)
    assert [tool["name"] for tool in answers[1]["tools"]] == ["add"]
    assert answers[3]["structuredContent"] == {"result": 3}
    rooms = {f"mcp_toolset.{room}" for room in ("sdk", "upstream", "hub", "config", "cli", "catalog.search")}
    others = {"mcp_toolset.extensions.model_loop", "mcp_toolset.tools.hidden_characters"}
    libraries = {"click", "httpx2", "jsonschema_rs", "platformdirs", "pydantic"}
    assert found & (ALWAYS_LATER | libraries | rooms | others) == set()


async def test_a_mounted_server_over_stdio_is_listed_and_called_without_the_sdk_and_without_pydantic_s_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_CACHE", str(tmp_path))
    requests = [
        ("initialize", GREETING),
        ("tools/list", {}),
        ("tools/call", {"name": "echo", "arguments": {"text": "hello"}}),
    ]
    for run in ("first", "second"):
        found, answers = await imported(MOUNT, *requests)
        assert [tool["name"] for tool in answers[1]["tools"]] == ["echo"], run
        assert answers[2]["content"] == [{"type": "text", "text": "hello"}], run
        later = ALWAYS_LATER - {"filelock"}  # it has kept the list on disk by now
        rooms = {"mcp_toolset.sdk", "mcp_toolset.hub", "mcp_toolset.cli", "mcp_toolset.catalog.search"}
        models = {"pydantic", "httpx2", "mcp_toolset.config.entries", "mcp_toolset.catalog.pins.risky_text"}
        assert found & (later | rooms | models) == set(), run
    assert os.listdir(tmp_path) != []


LATER_IN_HUB = (ALWAYS_LATER - {"filelock"}) | {
    "httpx2",
    "jsonschema_rs",
    "platformdirs",
    "pydantic",
    "mcp_toolset.extensions.code.extension",
    "mcp_toolset.extensions.model_loop",
    "mcp_toolset.extensions.learning.extension",
    "mcp_toolset.cli.commands.checks",
    "mcp_toolset.cli.commands.clients",
    "mcp_toolset.cli.commands.tools",
    "mcp_toolset.sdk",
    "mcp_toolset.transports.client_dispatcher",
    "mcp_toolset.transports.http_client",
    "mcp_toolset.transports.http",
    "mcp_toolset.extensions.upstream_access.caller_connections",
    "mcp_toolset.extensions.upstream_access.token_source",
}
"""What a hub of lazy servers needs neither for its first list nor for its first search."""


@pytest.mark.parametrize("options", [[], ["--deferred"]], ids=["listed", "searched"])
async def test_m1_a_lazy_hub_lists_and_searches_without_what_its_servers_need_only_when_they_run(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_CACHE", str(tmp_path / "cache"))
    server = {"command": sys.executable, "args": ["-S", str(UPSTREAM)]}
    hub = {"mcpServers": {"one": server, "two": server}, "toolset": {"start": "lazy", "list_timeout": 60}}
    (tmp_path / "mcp.json").write_text(json.dumps(hub))
    line = ["serve", str(tmp_path / "mcp.json"), *options]
    program = f"from mcp_toolset.cli.main import main\nmain({line!r})"
    search = ("tools/call", {"name": "search_tools", "arguments": {"query": "return the text"}})
    asked = search if options else ("tools/list", {})
    for run in ("first", "second"):
        found, answers = await imported(program, ("initialize", GREETING), asked)
        assert "one_echo" in json.dumps(answers[1]), run
    assert "mcp_toolset.upstream" in found
    assert found & LATER_IN_HUB == set()
    if not options:
        assert (
            found & {"filelock", "mcp_toolset.catalog.search", "mcp_toolset.catalog.deferred.catalog"}
            == set()
        )
