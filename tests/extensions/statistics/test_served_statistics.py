"""What a server counts of itself: calls, and what its tools cost its clients in tokens."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import until
from tests.support.configured import BOUND, Folder
from tests.support.direct_callers import LEGACY, MODERN, Caller
from tests.support.stats import by_server, told, words_in

from mcp_toolset import Identity, RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.policy import Policy
from mcp_toolset.serving.serve import server_of

pytestmark = pytest.mark.anyio

ANN = Identity.of(None, "ann-the-caller")


@tool
def figures(month: str) -> str:
    """Read the secret figures."""
    return f"figures of {month}"


@tool
def totals(month: str) -> str:
    """Add up a month."""
    return f"totals of {month}"


@tool
def pump() -> str:
    """Fail."""
    raise ValueError("dry")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stats.sqlite3"


def size_of(tool: Any) -> int:
    """The bytes of a tool on a list."""
    return len(json.dumps(tool, separators=(",", ":"), ensure_ascii=False).encode())


def cost(server: ToolsetServer, source: str, *names: str) -> int:
    those = [one for one in server.bindings() if one.source == source and one.definition.name in names]
    return sum(size_of(one.to_wire()) for one in those)


async def opened_by(caller: Caller) -> Caller:
    await caller.open()
    return caller


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_m10_calls_and_tokens_are_counted_by_server(path: Path, version: str) -> None:
    inner = ToolsetServer(Toolset(figures, pump), name="inner")
    mounted = RemoteToolset(inner.lowlevel, name="a").deferred()
    with anyio.fail_after(BOUND):
        async with ToolsetServer(Toolset(totals, mounted), stats=path) as server:
            caller = await opened_by(Caller(server, ANN, version))
            listed = await caller.ask("tools/list")
            await caller.ask("tools/list")
            found = await caller.call("search_tools", query="figures", resolve=1)
            grant = found["structuredContent"]["resolved"][0]["grant"]
            await caller.call("call_tool", grant=grant, arguments={"month": "a secret month"})
            await caller.call("totals", month="may")
            await caller.call("totals", moon="may")
            await caller.call("nothing")
            preview = len((server.answers.handshake.instructions or "").encode())
            whole, own = cost(server, "a", "figures", "pump"), cost(server, "", "totals")
    sums = by_server(path)
    mount, local, search = sums["a"], sums["(own tools)"], sums["(search tools)"]
    assert (mount["calls"], mount["errors"], search["calls"]) == (1, 0, 1)
    assert (local["calls"], local["refused"]) == (3, 2)
    assert local["faults"] == {"refused: invalid arguments": 1, "refused: unknown tool": 1}
    assert mount["p50_seconds"] > 0
    assert (mount["tokens_listed"], local["tokens_listed"]) == (-(-whole // 4), -(-own // 4))
    fixed = [one for one in listed["tools"] if one["name"] != "totals"]
    answer = sum(len(block["text"].encode()) for block in found["content"])
    assert search["tokens_shown"] == -(-(sum(map(size_of, fixed)) + answer + preview) // 4)
    assert local["tokens_shown"] == local["tokens_listed"], "what is listed is shown"
    assert told(path)["total"]["sessions"] == 1
    assert not words_in(path, "secret", "may", "moon", "ann-the-caller", "figures")


async def test_m10_clients_are_told_apart_and_a_list_that_grows_counts_what_is_new(path: Path) -> None:
    server = ToolsetServer(Toolset(figures).deferred(), stats=path)
    with anyio.fail_after(BOUND):
        async with server:
            for _ in range(2):
                caller = await opened_by(Caller(server, None, LEGACY))
                await caller.ask("tools/list")
            await server.extensions["stats"].save()
            before = by_server(path)["(own tools)"]
            await caller.call("resolve_tools", ids=["figures"])
            await caller.ask("tools/list")
            size = cost(server, "", "figures")
    (client,) = told(path)["clients"]
    assert (client["name"], client["sessions"]) == ("c 1", 2)
    assert before["tokens_listed"] == -(-2 * size // 4) and before["tokens_shown"] == 0
    shown = by_server(path)["(own tools)"]["tokens_shown"]
    assert shown == -(-size // 4), "a granted tool is listed to its session"


async def test_m10_tools_that_do_not_exist_for_a_caller_would_not_have_cost_it(path: Path) -> None:
    server = ToolsetServer(Toolset(figures, pump).deferred(), stats=path, policy=Policy(deny=["pump"]))
    with anyio.fail_after(BOUND):
        async with server:
            await Caller(server, ANN).ask("tools/list")
            size = cost(server, "", "figures")
    assert by_server(path)["(own tools)"]["tokens_listed"] == -(-size // 4)


async def test_m10_sums_are_saved_while_the_server_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.statistics.extension.SAVED_EVERY", 0.01)
    with anyio.fail_after(BOUND):
        async with ToolsetServer(Toolset(figures), stats=path) as server:
            await server.call_tool("figures", {"month": "may"})
            await until(path.exists)


async def test_m10_a_file_that_cannot_be_written_disturbs_no_call_and_loses_nothing(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    with anyio.fail_after(BOUND):
        async with ToolsetServer(Toolset(figures), stats=path) as server:
            assert server.extensions["stats"] is not None
            await server.call_tool("figures", {"month": "may"})
            await server.extensions["stats"].save()
            await anyio.Path(path).unlink()
            await server.call_tool("figures", {"month": "may"})
    assert by_server(path)["(own tools)"]["calls"] == 2


def test_m10_what_is_not_served_or_served_by_a_bridge_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_STATS", str(tmp_path / "stats"))
    folder = Folder(tmp_path)
    folder.write({"a": folder.entry("read")})
    said: dict[str, Any] = {"stats": True}
    assert ToolsetServer(Toolset(figures)).extensions.get("stats") is None
    assert server_of(Toolset(figures), **said).extensions.get("stats") is not None
    assert server_of(folder.config, **said).extensions.get("stats") is not None
    folder.write({"a": folder.entry("read")}, stats=False)
    assert server_of(folder.config, **said).extensions.get("stats") is None
    monkeypatch.setenv("MCP_TOOLSET_CHAIN", "[]")
    assert server_of(Toolset(figures), **said).extensions.get("stats") is None
    monkeypatch.delenv("MCP_TOOLSET_CHAIN")
    monkeypatch.setenv("MCP_TOOLSET_STATS", "off")
    assert server_of(Toolset(figures), **said).extensions.get("stats") is None
