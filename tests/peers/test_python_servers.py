"""The reference servers for time and git, mounted over stdio."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from mcp import Client, MCPError
from tests.peers.conftest import Bridged
from tests.peers.programs import git, python_program
from tests.peers.reading import names_of, text_of, value_of
from tests.support.warm import Warm

from mcp_toolset import RemoteToolset, Toolset

pytestmark = pytest.mark.anyio

FIXED = ["search_tools", "resolve_tools", "call_tool", "call_read_only_tool"]


@pytest.fixture
def clock(warm: Warm) -> Toolset:
    command = warm.command(python_program("mcp-server-time"), "--local-timezone", "UTC")
    return RemoteToolset(command, name="time")


def run_git(place: Path, *arguments: str) -> str:
    done = subprocess.run(
        [git(), *arguments], cwd=place, check=True, timeout=60, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit and one file that no commit has yet."""
    place = tmp_path / "repository"
    place.mkdir()
    for line in (
        "init --quiet",
        "config user.name Tester",
        "config user.email tester@example.org",
        "config commit.gpgsign false",
        "commit --quiet --allow-empty --message first",
    ):
        run_git(place, *line.split())
    (place / "notes.txt").write_text("hello\n")
    return place


@pytest.fixture
def history(repository: Path, warm: Warm) -> Toolset:
    command = warm.command(python_program("mcp-server-git"), "--repository", str(repository))
    return RemoteToolset(command, name="git")


async def granted(client: Client, tool: str) -> str:
    """A grant for a deferred tool, obtained as a model obtains it."""
    resolved = value_of(await client.call_tool("resolve_tools", {"ids": [tool]}))["tools"]
    assert [(entry["id"], entry["status"]) for entry in resolved] == [(tool, "granted")]
    return resolved[0]["grant"]


async def test_n9_time_is_listed_and_called_with_structured_results(bridged: Bridged, clock: Toolset) -> None:
    async with bridged(clock.prefixed("clock")) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["clock_get_current_time", "clock_convert_time"]
        assert tools["clock_get_current_time"].input_schema["required"] == ["timezone"]
        assert (tools["clock_get_current_time"].output_schema or {})["type"] == "object"

        now = value_of(await client.call_tool("clock_get_current_time", {"timezone": "Asia/Tokyo"}))
        assert now["timezone"] == "Asia/Tokyo" and now["datetime"].endswith("+09:00")
        question = {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Kolkata"}
        converted = value_of(await client.call_tool("clock_convert_time", question))
        assert converted["time_difference"] == "+5.5h" and "T18:00:00" in converted["target"]["datetime"]


async def test_n10_what_time_refuses_is_a_result(bridged: Bridged, clock: Toolset) -> None:
    async with bridged(clock) as client:
        by_the_server = await client.call_tool("get_current_time", {"timezone": "Mars/Base"})
        assert by_the_server.is_error and "Mars/Base" in text_of(by_the_server)
        by_the_bridge = await client.call_tool("get_current_time", {"timezone": [7]})
        assert by_the_bridge.is_error and "timezone: [7] is not of type" in text_of(by_the_bridge)
        with pytest.raises(MCPError, match="Unknown tool: get_past_time") as unknown:
            await client.call_tool("get_past_time", {})
        assert unknown.value.code == -32602


async def test_x1_git_is_searched_resolved_and_run_with_grants(
    bridged: Bridged, history: Toolset, repository: Path, era: str
) -> None:
    here = {"repo_path": str(repository)}
    async with bridged(history.deferred()) as client:
        assert await names_of(client) == FIXED
        found = value_of(await client.call_tool("search_tools", {"query": "record what was changed"}))
        assert found["hits"][0]["id"] == "git_commit"

        for tool, arguments in (
            ("git_add", {**here, "files": ["notes.txt"]}),
            ("git_commit", {**here, "message": "second"}),
        ):
            grant = await granted(client, tool)
            done = await client.call_tool("call_tool", {"grant": grant, "arguments": arguments})
            assert not done.is_error, text_of(done)
        log = await granted(client, "git_log")
        read = await client.call_tool("call_read_only_tool", {"grant": log, "arguments": here})
        assert "second" in text_of(read) and "first" in text_of(read)

        expected = ["git_add", "git_commit", "git_log"] if era == "legacy" else []
        assert sorted(set(await names_of(client)) - set(FIXED)) == expected
    assert run_git(repository, "log", "--format=%s").split() == ["second", "first"]


async def test_x1_x3_ungranted_git_does_not_run(bridged: Bridged, history: Toolset, repository: Path) -> None:
    adding = {"repo_path": str(repository), "files": ["notes.txt"]}
    async with bridged(history.deferred()) as client:
        with pytest.raises(MCPError, match="Unknown tool: git_add") as hidden:
            await client.call_tool("git_add", adding)
        assert hidden.value.code == -32602
        for guess in ("git_add", "git_add.AAAAAAAAAAAAAAAA"):
            ungranted = await client.call_tool("call_tool", {"grant": guess, "arguments": adding})
            assert ungranted.is_error and "no live grant" in text_of(ungranted)

        grant = await granted(client, "git_add")
        writing = await client.call_tool("call_read_only_tool", {"grant": grant, "arguments": adding})
        assert writing.is_error and "not annotated as read-only" in text_of(writing)
    assert run_git(repository, "status", "--short") == "?? notes.txt\n"
