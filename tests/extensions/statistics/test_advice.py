"""`mcp-toolset stats --advice`: what nobody used, its cost a day, and the command that removes it (K9)."""

from __future__ import annotations

import json
import shlex
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.cli.commandline import CommandLine, answer, environment
from tests.faults.harness import hostile, tool, until
from tests.support.configured import BOUND
from tests.support.stats import all_counted
from tests.support.warm import Warm

from mcp_toolset.config import load_config
from mcp_toolset.extensions.statistics.counts import called
from mcp_toolset.extensions.statistics.store import StatisticsStore


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state" / "stats.sqlite3"
    monkeypatch.setenv("MCP_TOOLSET_STATS", str(path))
    monkeypatch.setenv("MCP_TOOLSET_CACHE", str(tmp_path / "cache"))
    return path


@pytest.fixture
def line(tmp_path: Path, warm: Warm) -> CommandLine:
    return CommandLine(tmp_path, warm)


def entry(*names: str, **more: Any) -> dict[str, Any]:
    command = hostile(tools=[tool(name, description=f"{name} " * 50) for name in names])
    return {"command": command[0], "args": command[1:], **more}


def configure(line: CommandLine, servers: dict[str, Any]) -> Path:
    return line.write("mcp.json", json.dumps({"mcpServers": servers}, indent=1))


def used(path: Path, file: Path, days: int, sums: dict[tuple[str, str, str], int]) -> None:
    """The same sums on each of some days, of which today is the last."""
    for ago in range(days):
        StatisticsStore(path).add(str(file), sums, date.today() - timedelta(days=ago))


def costs(found: dict[str, Any]) -> dict[str, int]:
    return {one["server"]: one["tokens_per_day"] for one in found["advice"]}


def test_k9_what_nobody_used_is_named_with_its_cost_and_the_command(line: CommandLine, path: Path) -> None:
    file = configure(line, {"git": entry("log", "drop", "tag"), "idle": entry("one"), "busy": entry("all")})
    assert line.run("list", "mcp.json").returncode == 0
    used(
        path,
        file,
        4,
        {
            ("", "c", "sessions"): 5,
            **{(one, "c", "bytes of all"): 5 * 4000 for one in ("git", "idle", "busy")},
            **{(one, "c", "bytes shown"): 5 * 4000 for one in ("git", "idle", "busy")},
            ("git", "c", "result"): 7,
            ("git", "", called("git", "log")): 7,
            ("busy", "c", "result"): 1,
            ("busy", "", called("busy", "all")): 1,
        },
    )
    found = answer(line, "stats", "mcp.json", "--advice")
    assert found["served"] == [
        {"file": str(file), "since": str(date.today() - timedelta(days=3)), "days": 4, "sessions": 20}
    ]
    idle, git = found["advice"]
    # 5 sessions a day have read 4,000 bytes each, a token is four bytes.
    assert (idle["server"], idle["tools"], idle["of"], idle["tokens_per_day"]) == ("idle", [], 1, 5000)
    assert (git["server"], git["tools"], git["of"]) == ("git", ["drop", "tag"], 3)
    assert 500 < git["tokens_per_day"] < 2000 and git["instead"] == '"deferred": true'
    shown = line.run("stats", "mcp.json", "--advice").stdout
    assert (
        "idle: nobody used it (1 tools); 5,000 tokens a day" in shown
        or "idle: nobody used it (1 tool)" in shown
    )
    assert "git: nobody called 2 of 3 tools" in shown and "busy" not in shown
    # The commands do what they say.
    for one in found["advice"]:
        program, *words = shlex.split(one["command"])
        assert program == "mcp-toolset" and line.run(*words).returncode == 0
    servers = {one.name: one for one in load_config(file).servers}
    assert servers["idle"].disabled and servers["git"].exclude == ("drop", "tag")
    after = answer(line, "stats", "mcp.json", "--advice")
    assert after["advice"] == []
    assert "everything was used" in line.run("stats", "mcp.json", "--advice").stdout


def test_k9_tools_behind_search_cost_nothing_and_are_not_named(line: CommandLine, path: Path) -> None:
    file = configure(line, {"git": entry("log", "drop", deferred=True), "idle": entry("one", deferred=True)})
    line.run("list", "mcp.json")
    used(
        path,
        file,
        2,
        {
            ("", "c", "sessions"): 9,
            ("git", "c", "bytes of all"): 9000,
            ("idle", "c", "bytes of all"): 9000,
            ("git", "c", "result"): 1,
            ("git", "", called("git", "log")): 1,
        },
    )
    (idle,) = answer(line, "stats", "mcp.json", "--advice")["advice"]
    assert (idle["server"], idle["tokens_per_day"], idle["instead"]) == ("idle", 0, "")


def test_k9_few_sessions_are_no_evidence_and_old_counts_have_no_tools(line: CommandLine, path: Path) -> None:
    file = configure(line, {"git": entry("log", "drop"), "idle": entry("one")})
    line.run("list", "mcp.json")
    shown = {(one, "c", kind): 4000 for one in ("git", "idle") for kind in ("bytes of all", "bytes shown")}
    used(path, file, 1, {("", "c", "sessions"): 1, ("git", "c", "result"): 3, **shown})
    # Counted before tools were counted: nothing is known of single tools.
    assert [one["server"] for one in answer(line, "stats", "mcp.json", "--advice")["advice"]] == ["idle"]
    assert "fewer than 10 sessions" in line.run("stats", "mcp.json", "--advice").stdout


def test_k9_what_is_off_or_gone_is_not_named(line: CommandLine, path: Path) -> None:
    file = configure(
        line, {"off": {**entry("x"), "disabled": True}, "odd": {"command": "x", "timeout": "never"}}
    )
    used(path, file, 1, {("", "c", "sessions"): 30, ("gone", "c", "bytes shown"): 4000})
    assert answer(line, "stats", "--advice")["advice"] == []
    file.unlink()
    assert answer(line, "stats", "--advice") == {
        "estimate": "tokens are estimated: bytes of JSON / 4",
        "served": [],
        "advice": [],
    }
    assert "no calls recorded yet" in line.run("stats", "--advice").stdout
    assert line.run("stats", "--advice", "--forget").returncode == 2


@pytest.mark.anyio
async def test_k9_a_served_configuration_has_advice_without_preparation(
    line: CommandLine, path: Path, tmp_path: Path
) -> None:
    configure(line, {"git": entry("echo", "drop"), "idle": entry("one")})
    program, *words = line.command("serve", str(tmp_path / "mcp.json"))
    target = StdioServerParameters(command=program, args=words, env=environment(tmp_path))
    with anyio.fail_after(BOUND):
        async with Client(stdio_client(target), mode="legacy") as client:
            await client.list_tools()
            await client.call_tool("git_echo")
            await until(lambda: all_counted(path, 1))
        found = await anyio.to_thread.run_sync(lambda: answer(line, "stats", "mcp.json", "--advice"))
    assert costs(found).keys() == {"git", "idle"} and all(cost > 0 for cost in costs(found).values())
    (git,) = [one for one in found["advice"] if one["server"] == "git"]
    assert git["tools"] == ["drop"]
    # The sums of tools are of no client.
    assert [one["name"].split()[0] for one in json.loads(line.run("stats", "--json").stdout)["clients"]] == [
        "mcp"
    ]
