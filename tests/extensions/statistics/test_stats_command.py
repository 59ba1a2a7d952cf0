"""`mcp-toolset stats`: what servers of this user have done, from a real `serve` to the table."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.cli.commandline import CommandLine, environment
from tests.cli.pseudo import python, terminal
from tests.cli.screening import plain
from tests.faults.harness import until
from tests.support.configured import BOUND, Folder
from tests.support.stats import all_counted
from tests.support.warm import Warm

from mcp_toolset.extensions.statistics.store import StatisticsStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state" / "stats.sqlite3"
    monkeypatch.setenv("MCP_TOOLSET_STATS", str(path))
    return path


@pytest.fixture
def cli(tmp_path: Path, warm: Warm) -> CommandLine:
    return CommandLine(tmp_path, warm)


def filled(path: Path) -> None:
    store = StatisticsStore(path)
    sums = {
        ("github", "Claude Desktop 1.2", "result"): 1200,
        ("github", "Claude Desktop 1.2", "bucket 60"): 1200,
    }
    sums |= {("github", "Claude Desktop 1.2", "bytes of all"): 160_000, ("github", "cursor 2", "error"): 3}
    sums |= {("*", "Claude Desktop 1.2", "bytes shown"): 12_000, ("", "Claude Desktop 1.2", "sessions"): 4}
    sums |= {("github", "cursor 2", "error: UpstreamTimeout"): 3}
    store.add("/home/me/mcp.json", sums)
    store.add("/home/me/other.json", {("notes", "cursor 2", "refused"): 2})


async def test_m10_a_served_configuration_has_numbers_without_preparation(
    cli: CommandLine, path: Path, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    servers = {name: {**folder.entry("read", "drop"), "deferred": name != "c"} for name in ("a", "b", "c")}
    folder.write(servers)
    program, *words = cli.command("serve", str(folder.config))
    target = StdioServerParameters(command=program, args=words, env=environment(tmp_path))
    with anyio.fail_after(BOUND):
        async with Client(stdio_client(target), mode="legacy") as client:
            await client.list_tools()
            await client.call_tool("c_read")
            found = await client.call_tool("search_tools", {"query": "read", "server": "a", "resolve": 1})
            assert found.structured_content is not None
            grant = found.structured_content["resolved"][0]["grant"]
            await client.call_tool("call_tool", {"grant": grant})
            # Saved while the server runs: it may be killed at any time.
            await until(lambda: all_counted(path, 3))
        said = json.loads(cli.run("stats", str(folder.config), "--json").stdout)
    servers = {one["name"]: one for one in said["servers"]}
    assert (servers["a"]["calls"], servers["c"]["calls"], servers["(search tools)"]["calls"]) == (1, 1, 1)
    assert servers["c"]["tokens_listed"] == servers["c"]["tokens_shown"] > 0 == servers["c"]["tokens_saved"]
    assert servers["b"]["tokens_saved"] == servers["b"]["tokens_listed"] > servers["b"]["tokens_shown"] == 0
    (client_total,) = said["clients"]
    assert (client_total["name"].split()[0], client_total["sessions"]) == ("mcp", 1)
    assert said["served"] == [str(folder.config)]
    assert said["total"]["calls"] == 3 and said["total"]["p95_seconds"] > 0


def test_m10_without_calls_it_says_how_to_begin(cli: CommandLine, path: Path) -> None:
    done = cli.run("stats")
    assert done.returncode == 0 and done.stdout.startswith("no calls recorded yet: start `mcp-toolset serve")
    assert not path.exists(), "looking writes nothing"
    empty = json.loads(cli.run("stats", "--json").stdout)
    assert (empty["servers"], empty["total"]) == ([], None)


def test_m10_mistakes_and_the_switch_are_told_in_one_line(cli: CommandLine, path: Path) -> None:
    wrong = cli.run("stats", "--since", "soon")
    assert wrong.returncode == 2 and "write 2026-11-22, or 7d" in wrong.stderr
    missing = cli.run("stats", "missing.json")
    assert missing.returncode == 1 and "no such file, and nothing was counted for it" in missing.stderr
    off = cli.run("stats", env={"MCP_TOOLSET_STATS": "off"})
    assert off.returncode == 1 and "unset it" in off.stderr
    both = cli.run("stats", "--forget", "--since", "7d")
    assert both.returncode == 2 and "leave out --since" in both.stderr


def test_m10_one_configuration_is_shown_and_forgotten_by_itself(cli: CommandLine, path: Path) -> None:
    filled(path)
    text = cli.run("stats", "/home/me/mcp.json").stdout
    assert (
        "notes" not in text
        and "all tools would cost 40,000 tokens, 3,000 were shown: 37,000 saved (92 %)" in text
    )
    assert "3 × error: UpstreamTimeout" in text and "bytes of JSON / 4" in text
    assert "forgotten" in cli.run("stats", "/home/me/mcp.json", "--forget").stdout
    assert json.loads(cli.run("stats", "--json").stdout)["served"] == ["/home/me/other.json"]
    cli.run("stats", "--forget")
    assert cli.run("stats", "--since", "7d").stdout.startswith("no calls recorded yet since")


def test_m10_it_is_readable_on_a_narrow_terminal(path: Path, tmp_path: Path) -> None:
    filled(path)
    program = python("""
import os
from mcp_toolset.cli.main import main
os.environ["NO_COLOR"] = "1"
for width in ("60", "100"):
    os.environ["COLUMNS"] = width
    main(["stats"])
    print("<end>", flush=True)
""")
    with terminal(program, tmp_path, columns=200) as screen:
        assert screen.end() == 0, screen.screen
    drawn = plain(screen.screen).split("<end>")
    for text, width in zip(drawn, (60, 100), strict=False):
        assert max(map(len, text.splitlines())) <= width
        assert "github" in text and "37,000" in text and "Claude Desktop 1.2" in text
    assert "[3" not in screen.screen, "no colours"
