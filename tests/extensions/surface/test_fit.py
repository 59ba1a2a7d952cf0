"""What commands say of a client and a hub: the costs of each way, and the choice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commandline import CommandLine, line
from tests.cli.desk import Desk

from mcp_toolset.cli.clients import CLIENTS
from mcp_toolset.extensions.surface import clients, fit

__all__ = ["line"]

UPSTREAM = Path(__file__).parents[2] / "support" / "plain_server.py"


def wires(count: int, length: int = 600) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {}}
    return [{"name": f"tool_{n}", "description": "x" * length, "inputSchema": schema} for n in range(count)]


def test_k3_the_costs_of_the_three_ways_are_of_one_hub() -> None:
    few, many = fit.Costs.of(wires(5)), fit.Costs.of(wires(500))
    assert few.listed < few.searched < many.client < many.listed
    assert many.listed > 90 * few.listed
    assert fit.Costs.of([]).listed <= 1


@pytest.mark.parametrize(
    ("title", "count", "parts"),
    [
        ("Cursor", 30, ["30 tools cost about", "by its own search; list, as Cursor has a search of its own"]),
        ("Claude Code", 30, ["by its own search; search, as 30 tools of about"]),
        ("Gemini CLI", 5, ["5 tools cost about", "1,250 by search; list, as 5 tools of about"]),
        ("Gemini CLI", 0, ["Gemini CLI: search, as no server has listed its tools yet"]),
    ],
)
def test_k3_one_line_says_what_a_hub_costs_in_a_client(title: str, count: int, parts: list[str]) -> None:
    said = fit.told(title, wires(count))
    assert [part for part in parts if part not in said] == []


def test_k3_statistics_say_it_of_the_clients_that_were_there() -> None:
    assert "; list, as Cursor has" in fit.of_use("cursor-vscode 1.0.0", 2, 60_000)
    assert "; search, as tools of about 30,000 tokens" in fit.of_use("claude-code 2.1.197", 2, 60_000)
    assert "; list, as tools of about 500 tokens" in fit.of_use("(unknown)", 4, 2_000)
    assert "128" not in fit.of_use("Visual Studio Code 1.110.0", 1, 60_000)


def test_k3_rows_are_found_by_the_titles_that_install_uses() -> None:
    titles = {one.title for one in CLIENTS.values()}
    assert {one.title for one in clients.CLIENTS} <= titles


def test_k3_a_new_hub_leaves_the_way_to_each_client(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.write(json.dumps({"mcpServers": {"git": {"command": "git-server"}}}))
    plan = desk.adopt()
    assert json.loads(plan.hub.read_text())["toolset"] == {"surface": "auto"}
    desk.restore()
    assert not plan.hub.exists()


def test_k3_a_hub_of_before_is_removed_with_its_last_server_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.write(json.dumps({"mcpServers": {"git": {"command": "git-server"}}}))
    plan = desk.adopt()
    plan.hub.write_text(plan.hub.read_text().replace('"surface": "auto"', '"deferred": true'))
    desk.restore()
    assert not plan.hub.exists()


def test_k3_the_commands_say_what_a_hub_costs_and_what_each_client_gets(line: CommandLine) -> None:
    path = line.folder / ".cursor" / "mcp.json"
    path.parent.mkdir()
    entry = {"command": sys.executable, "args": [str(UPSTREAM), '{"tools": ["echo"]}']}
    path.write_text(json.dumps({"mcpServers": {"git": entry}}))
    done = line.run("install", "cursor", "--adopt", "--yes")
    assert "1 server → " in done.stdout and "behind this one entry:" in done.stdout
    assert "Cursor: 1 tool cost about " in done.stdout and "; list, as 1 tool of about" in done.stdout
    hub = json.loads(line.run("install", "cursor", "--adopt", "--dry-run", "--json").stdout or "{}")
    assert "error" in hub, "they are adopted already"
    (file,) = line.folder.rglob("mcp-toolset/cursor.json")
    shown = line.run("list", str(file), "--servers").stdout
    assert "surface, way: auto" in shown
    assert "surface, another client: list: 1 tool of about" in shown
    told = json.loads(line.run("list", str(file), "--servers", "--json").stdout)["extensions"]["surface"]
    assert told["Cursor"].startswith("list: ") and told["way"] == "auto"
    found = json.loads(line.run("check", "--json").stdout)["machine"]
    (note,) = [one["note"] for one in found if one["examined"] == "Cursor"]
    assert note.startswith("1 tool cost about ") and "; list, as" in note
