"""Skills attacked from docs/skills.md: what does not hold yet."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.commandline import CommandLine, line
from tests.extensions.pass_extensions import lamp_server
from tests.extensions.skills import skill_server
from tests.interaction.raw_client import raw_client

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, load_toolset, tool
from mcp_toolset.errors import ToolsetError
from mcp_toolset.policy import Policy

__all__ = ["line"]

pytestmark = pytest.mark.anyio

SKILLS = {"extensions": {"io.modelcontextprotocol/skills": {}}}
MUTE = """
import json, sys, time

able = {"tools": {}, "resources": {}, "extensions": {"io.modelcontextprotocol/skills": {}}}
known = {
    "server/discover": {
        "supportedVersions": ["2026-07-28"],
        "capabilities": able,
        "serverInfo": {"name": "mute", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]},
    "resources/list": {"resources": []},
    "ping": {},
}
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message or method == "skills/list":
        continue
    answer = {"error": {"code": -32601, "message": "Method not found"}}
    if method in known:
        whole = {"resultType": "complete", "ttlMs": 60000, "cacheScope": "public"}
        answer = {"result": {**whole, **known[method]}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
"""A server that declares skills, and never answers when it is asked for them."""


@tool(read_only=True)
def look(what: str) -> str:
    """Look at something."""
    return what


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "skills/refunds").mkdir(parents=True)
    text = "---\nname: refunds\ndescription: Use it for money.\n---\n"
    (tmp_path / "skills/refunds/SKILL.md").write_text(text)
    return tmp_path / "skills"


# HIGH: one server that does not answer `skills/list` holds up every search of all tools by a minute (and is
# then taken for offline). The page says that its skills are missing, and nothing else.
async def test_g3_a_server_that_does_not_say_its_skills_holds_up_no_search(tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text(MUTE)
    mute = RemoteToolset([sys.executable, str(tmp_path / "mute.py")], name="mute").prefixed("mute")
    async with ToolsetServer(Toolset(Toolset(look).deferred(), mute), keep=False) as server:
        await server.settled()
        async with raw_client(server, "modern", SKILLS) as client:
            with anyio.fail_after(12):
                found = await client.ask("tools/call", name="search_tools", arguments={"query": "look"})
    assert "look" in json.dumps(found)


# MEDIUM: a program cannot deny its skill by name, as the page says ("`refunds` for your own"): the server
# does not start, for there is no such tool.
async def test_g3_a_program_denies_its_own_skill_by_its_name(folder: Path) -> None:
    policy = Policy(deny=["refunds"])
    async with (
        ToolsetServer(Toolset(look), keep=False, skills=folder, policy=policy) as server,
        raw_client(server, "modern", SKILLS) as client,
    ):
        assert (await client.ask("skills/list"))["skills"] == []


# MEDIUM: the log says of the rule that denies a skill that it "has no effect".
async def test_g3_a_rule_about_a_skill_is_not_said_to_have_no_effect(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = [sys.executable, skill_server.__file__, "modern", "shop"]
    settings = {"skills": str(folder), "permissions": {"deny": ["refunds"]}}
    servers = {"shop": {"command": command[0], "args": command[1:]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"toolset": settings, "mcpServers": servers}))
    caplog.set_level(logging.WARNING)
    with anyio.fail_after(60):
        async with ToolsetServer(load_toolset(tmp_path / "mcp.json"), keep=False) as server:
            await server.settled()
            async with raw_client(server, "modern", SKILLS) as client:
                await client.ask("skills/list")
    assert "refunds" not in caplog.text


# MEDIUM: a denied skill, and one of a server whose tools are all denied, are told from what is not there.
@pytest.mark.parametrize(
    ("deny", "hidden", "none"),
    [
        ("shop_refunds", "skill://refunds/SKILL.md", "skill://nothing/SKILL.md"),
        ("store/*", "skill://store/refunds/SKILL.md", "skill://nobody/refunds/SKILL.md"),
    ],
)
async def test_g3_a_denied_skill_is_not_told_from_one_that_is_not_there(
    deny: str, hidden: str, none: str
) -> None:
    names = ["shop"] if deny == "shop_refunds" else ["shop", "store"]
    mounts = [
        RemoteToolset([sys.executable, skill_server.__file__, "modern", name], name=name).prefixed(name)
        for name in names
    ]
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(*mounts), keep=False, policy=Policy(deny=[deny])) as server:
            await server.settled()
            async with raw_client(server, "modern", SKILLS) as client:
                said = json.dumps(await client.ask("skills/get", uri=hidden))
                missing = json.dumps(await client.ask("skills/get", uri=none))
    assert said.replace(hidden, "X") == missing.replace(none, "X")


# LOW: `check` finds nothing wrong with a folder that is not there; only the log of a server says it.
def test_g3_check_finds_a_folder_that_is_not_there(line: CommandLine) -> None:
    document = {"toolset": {"skills": "skils"}, "mcpServers": {"up": {"command": "true"}}}
    line.write("mcp.json", json.dumps(document))
    done = line.run("check", "mcp.json")
    assert "skils" in done.stdout + done.stderr, done.stdout


# LOW: an empty path is the current folder with all below it, and a value of another type is nothing.
@pytest.mark.parametrize("said", ["", 5])
async def test_g3_a_value_that_is_no_folder_is_refused(said: Any) -> None:
    with pytest.raises((ToolsetError, TypeError)):
        async with ToolsetServer(Toolset(look), keep=False, skills=said):
            pass


# MEDIUM: where one server alone of a profile has skills, a file has another address in its contents than the
# one by which it was listed and read.
async def test_g3_a_file_of_a_skill_has_the_address_by_which_it_was_read() -> None:
    mounts = [
        RemoteToolset([sys.executable, skill_server.__file__, "modern", name], name=name).prefixed(name)
        for name in ("shop", "store")
    ]
    lamp = RemoteToolset([sys.executable, lamp_server.__file__, "modern", "lamp"], name="lamp").prefixed(
        "lamp"
    )
    profiles = {"one": {"tools": ["shop/*", "lamp/*"]}}
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(lamp, *mounts), keep=False, profiles=profiles) as server:
            await server.settled()
            view: Any = await server.extensions["profiles"].view("one", None)
            async with raw_client(view, "legacy", SKILLS) as client:
                uri = (await client.ask("skills/list"))["skills"][0]["uri"]
                read = await client.ask("resources/read", uri=uri)
    assert [one["uri"] for one in read["contents"]] == [uri]
