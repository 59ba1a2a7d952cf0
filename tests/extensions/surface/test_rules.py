"""Tools that are listed instead of searched for pass every rule that a call by a grant passes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import Implementation
from tests.extensions.surface.test_surface import CLAUDE, CURSOR, ERAS, LAMPS, OTHER, hub, names, seen_by
from tests.support.asking import text_of

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.extensions.limits.limits import Limits
from mcp_toolset.policy import Policy

pytestmark = [pytest.mark.anyio, pytest.mark.needs("limits", "audit", "large_results")]

RUN: list[str] = []


@tool
def switch(lamp: str) -> str:
    """Switch a lamp."""
    RUN.append(lamp)
    return f"{lamp} is on"


@tool(read_only=True)
def tell(times: int) -> str:
    """Tell a long text."""
    return "light " * times


def lines(path: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("mode", ERAS)
async def test_k3_limits_approvals_and_the_audit_log_hold_for_listed_tools(tmp_path: Path, mode: str) -> None:
    RUN.clear()
    log = tmp_path / "audit.jsonl"
    server = ToolsetServer(
        Toolset(switch, tell).deferred(),
        surface="list",
        policy=Policy(ask=["switch"]),
        limits={"tell": Limits(calls=2)},
        large_results=300,
        audit=str(log),
    )
    async with server, seen_by(server, OTHER, mode) as client:
        assert await names(client) >= {"switch", "tell", "read_result"}
        refused = await client.call_tool("switch", {"lamp": "a"})
        assert refused.is_error and "approv" in text_of(refused)
        assert text_of(await client.call_tool("tell", {"times": 2})) == "light light "
        assert "read_result" in text_of(await client.call_tool("tell", {"times": 400}))
        assert (await client.call_tool("tell", {"times": 1})).is_error
        assert (await client.call_tool("tell", {"times": "x"})).is_error
    assert RUN == []
    told = [one for one in lines(log) if one.get("tool") in ("switch", "tell")]
    assert len(told) >= 4


@pytest.mark.parametrize("mode", ERAS)
async def test_k3_a_client_that_searches_gains_nothing_from_one_that_lists(mode: str) -> None:
    async with hub(40, surface="auto") as server:
        async with seen_by(server, CURSOR, mode) as cursor, seen_by(server, CLAUDE, mode) as claude:
            assert {*LAMPS} <= await names(cursor)
            await cursor.call_tool("lamp_1", {"level": 1})
            with pytest.raises(MCPError, match="Unknown tool: lamp_1"):
                await claude.call_tool("lamp_1", {"level": 1})
            found = await claude.call_tool("search_tools", {"query": "lamp_1", "resolve": 1})
            grant = json.loads(text_of(found))["resolved"][0]["grant"]
            called = await claude.call_tool("call_tool", {"grant": grant, "arguments": {"level": 3}})
            assert text_of(called).startswith("lamp ")


@pytest.mark.parametrize(
    "name",
    [
        *("", "\u202ecursor-vscode", "CURSOR-VSCODE\n", "cursor-vscode-evil", "x" * 10_000),
        *("cursor-vscode (via", "cursor-vscode (via mcp-remote) 2", "(via cursor-vscode)"),
    ],
)
async def test_k3_odd_names_of_clients_are_those_of_unknown_clients(name: str) -> None:
    async with hub(40, surface="auto") as server:
        assert server.extensions["surface"].decision(name, "9" * 5_000).way == "search"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_k3_a_client_may_say_any_version(mode: str) -> None:
    info = Implementation(name="claude-code", version="9" * 5_000)
    async with hub(40, surface="auto") as server:
        async with Client(server.lowlevel, client_info=info, mode=mode, cache=None) as client:
            assert (await client.list_tools()).tools


async def test_k3_a_client_by_way_of_mcp_remote_is_known() -> None:
    async with hub(40, surface="auto") as server:
        decision = server.extensions["surface"].decision("cursor-vscode (via mcp-remote 0.1.37)", "1.0.0")
        assert decision.way == "list"
