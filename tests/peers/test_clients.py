"""Clients that others wrote, each in its own environment, on a hub of servers that others wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.peers.conftest import MODES
from tests.peers.mounted import PACKAGES, hub_file
from tests.peers.processes import listening_process
from tests.peers.programs import HERE, INSPECTOR, ROOT, node, node_script, python_environments, python_of
from tests.peers.reading import names_of, text_of, value_of
from tests.support.warm import Warm

pytestmark = pytest.mark.anyio

MOUNTED = ("memory", "time", "sqlite")
FIXED = ["search_tools", "resolve_tools", "call_tool", "call_read_only_tool"]
LISTED = 17
NOON = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
QUERY = {"query": "convert a time between time zones", "resolve": 1}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("time_convert_time", NOON),
    ("time_convert_time", {**NOON, "time": [12]}),
    ("sqlite_list_tables", {}),
]
GRANTED: list[tuple[str, dict[str, Any]]] = [
    ("search_tools", QUERY),
    ("call_tool", {"grant": "found", "arguments": NOON}),
    ("call_tool", {"grant": "sqlite_list_tables", "arguments": {}}),
]
"""The last one was granted nothing: within a session, what was granted to it runs by its name, too."""


def served(place: Path, warm: Warm, *, deferred: bool) -> Generator[str]:
    node()
    python_environments()
    config = hub_file(place, MOUNTED, deferred=deferred)
    command = warm.command("-m", "tests.peers.hub", str(config))
    with listening_process(command, r"at (http://\S+)", timeout=60) as address:
        yield address


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Generator[str]:
    yield from served(tmp_path_factory.mktemp("listed"), warm, deferred=False)


@pytest.fixture(scope="module")
def deferred(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Generator[str]:
    yield from served(tmp_path_factory.mktemp("deferred"), warm, deferred=True)


async def output(command: list[str], place: Path) -> Any:
    """What a client printed, as JSON."""
    return json.loads(await printed(command, place))


async def printed(command: list[str], place: Path) -> bytes:
    """What a client printed; its home is a folder of the test's own."""
    environment = {**os.environ, "HOME": str(place)}
    with anyio.fail_after(40):
        done = await anyio.run_process(
            command, check=False, cwd=place, env=environment, stderr=subprocess.PIPE
        )
    assert done.returncode == 0 and done.stdout, (done.stdout, done.stderr.decode())
    return done.stdout


@pytest.fixture(scope="module", params=["typescript-legacy", "typescript-modern", "fastmcp", "pydantic-ai"])
def seen(
    request: pytest.FixtureRequest, listed: str, deferred: str, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """What a client sees, started once: it lists the tools at both addresses, and makes its calls there."""
    kind, _, era = request.param.partition("-")
    programs = {
        "typescript": [node(), str(HERE / "client.mjs")],
        "fastmcp": [python_of("fastmcp"), str(HERE / "client_fastmcp.py")],
        "pydantic": [python_of("pydantic-ai"), str(HERE / "client_pydantic_ai.py")],
    }

    visits = [{"url": listed, "calls": CALLS}, {"url": deferred, "calls": GRANTED}]
    told = {"packages": str(PACKAGES), "mode": MODES.get(era, ""), "visits": visits}
    place = tmp_path_factory.mktemp("client")
    said = anyio.run(printed, [*programs[kind], json.dumps(told)], place)
    return [json.loads(line) for line in said.splitlines()]


def test_n10_a_client_lists_and_calls_what_is_mounted(seen: list[dict[str, Any]]) -> None:
    tools, results = seen[0]["tools"], seen[0]["results"]
    assert len(tools) == LISTED and {"time_convert_time", "memory_read_graph"} <= set(tools)
    good, bad, empty = results
    assert good["error"] is False and "+9.0h" in good["text"]
    assert bad.get("error") is True and "time: [12] is not of type" in bad["text"]
    assert empty["error"] is False


def test_x1_a_client_searches_and_runs_what_it_was_granted(seen: list[dict[str, Any]]) -> None:
    assert seen[1]["tools"] == FIXED
    found, ran, refused = seen[1]["results"]
    assert found["error"] is False and "time_convert_time" in found["text"]
    assert ran["error"] is False and "+9.0h" in ran["text"]
    assert refused["error"] is True and "no live grant" in refused["text"]


async def test_n10_mcporter_lists_and_calls(listed: str, tmp_path: Path) -> None:
    program = [node(), str(PACKAGES / "mcporter" / "dist" / "cli.js")]
    place = ["--http-url", listed, "--allow-http", "--name", "hub"]
    shown = await output([*program, "list", *place, "--json"], tmp_path)
    assert shown["status"] == "ok" and len(shown["tools"]) == LISTED
    given = ["--tool", "time_convert_time", "--args", json.dumps(NOON), "--output", "json"]
    assert (await output([*program, "call", *place, *given], tmp_path))["time_difference"] == "+9.0h"


async def test_n10_mcp_remote_carries_a_stdio_client(listed: str, tmp_path: Path) -> None:
    through = StdioServerParameters(
        command=node(),
        args=[str(PACKAGES / "mcp-remote" / "dist" / "proxy.js"), listed, "--allow-http", "--silent"],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    )
    with anyio.fail_after(40):
        async with Client(stdio_client(through), mode="legacy") as client:
            assert len(await names_of(client)) == LISTED
            later = value_of(await client.call_tool("time_convert_time", NOON))
            refused = await client.call_tool("time_convert_time", {})
    assert later["time_difference"] == "+9.0h"
    assert refused.is_error and "required property" in text_of(refused)


async def test_n10_the_inspector_finds_nothing_to_object_to(listed: str, era: str, tmp_path: Path) -> None:
    program = [node(), node_script(INSPECTOR), "--cli", "--quiet", "--format", "json"]
    target = ["--protocol-era", era, "--transport", "http", "--server-url", listed]
    listing = ["--method", "tools/list", "--strict"]
    shown: Mapping[str, Any] = await output([*program, *listing, *target], tmp_path)
    assert len(shown["result"]["tools"]) == LISTED
    call = [
        "--method",
        "tools/call",
        "--tool-name",
        "time_convert_time",
        "--tool-args-json",
        json.dumps(NOON),
    ]
    done = await output([*program, *call, *target], tmp_path)
    assert done["result"]["structuredContent"]["time_difference"] == "+9.0h"


@pytest.mark.needs("skills")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_g3_the_sdk_s_host_verifies_every_file_of_skills_direct_and_bridged(
    mode: str, tmp_path: Path
) -> None:
    server = [sys.executable, str(ROOT / "examples/skills/server.py")]
    hub = tmp_path / "hub.json"
    entries = {name: {"command": server[0], "args": server[1:]} for name in ("east", "west")}
    hub.write_text(json.dumps({"mcpServers": entries}))
    bridge = [sys.executable, "-m", "mcp_toolset", "serve", str(hub)]
    for command, places in ((server, [""]), (bridge, ["east/", "west/"])):
        done = subprocess.run(
            [node(), str(HERE / "skills.mjs"), str(PACKAGES), mode, *command],
            env={**os.environ, "MCP_TOOLSET_CACHE": "off"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        said = json.loads(done.stdout)
        assert said["supported"]
        assert [one["uri"] for one in said["found"]] == [f"skill://{one}refunds/SKILL.md" for one in places]
        for one in said["found"]:
            assert (
                one["verified"] == [True, True] and one["same"] and one["children"] == ["refunds", "policy"]
            )
