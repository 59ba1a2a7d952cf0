"""What of a profile is told or refused, and what of the rest of the server is not in it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.extensions.profiles.office import office
from tests.extensions.skills import skill_server
from tests.interaction.raw_client import RawClient, raw_client
from tests.support.served import served

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.errors import ConfigError, ToolsetError
from mcp_toolset.journal import Journal

pytestmark = pytest.mark.anyio

SKILLS = {"extensions": {"io.modelcontextprotocol/skills": {}}}


@asynccontextmanager
async def of_profile(
    server: ToolsetServer, name: str, era: str = "modern", capabilities: dict[str, Any] | None = None
) -> AsyncGenerator[RawClient]:
    view: Any = await server.extensions["profiles"].view(name, None)
    async with raw_client(view, era, capabilities) as client:
        yield client


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_k4_a_key_used_in_one_profile_tells_nothing_in_another(tmp_path: Path, era: str) -> None:
    profiles = {
        "a": {"tools": ["notes/*"], "names": {"notes_write": "jot"}},
        "b": {"tools": ["mail/*"], "names": {"mail_write": "jot"}},
    }
    key = {"mcp-toolset/replay-key": "key-0123456789-abcdefghijklmnopqrstuv"}
    async with office(profiles, journal=Journal(tmp_path / "calls.sqlite3")) as server:
        async with of_profile(server, "a", era) as a, of_profile(server, "b", era) as b:
            await a.ask("tools/call", name="jot", arguments={"text": "x"}, _meta=key)
            said = await b.ask("tools/call", name="jot", arguments={"text": "x"}, _meta=key)
    assert "notes" not in json.dumps(said)
    assert "began" not in json.dumps(said)


@pytest.mark.parametrize("way", ["list", "auto"])
async def test_k4_a_profile_s_surface_is_stronger_than_the_server_s(way: str) -> None:
    async with office({"behind": {"surface": "search"}}, surface=way) as server:
        await server.settled()
        async with of_profile(server, "behind") as client:
            listed = {tool["name"] for tool in (await client.ask("tools/list"))["tools"]}
    assert "search_tools" in listed and "notes_write" not in listed


@pytest.mark.parametrize(
    "profile",
    [
        {"permissions": {"deny": ["notes_wirte"]}},
        {"limits": {"notes_wirte": {"calls": 1}}},
        {"names": {"notes_wirte": "jot"}},
        {"tools": ["notes_wirte", "mail/*"]},
    ],
)
async def test_k4_patterns_of_a_profile_that_fit_no_tool_are_told(
    profile: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with office({"work": profile}) as server:
        await server.settled()
        async with of_profile(server, "work") as client:
            await client.ask("tools/list")
            await server.settled()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and "wirte" in told[0] and "profiles.work." in told[0]


@pytest.mark.parametrize(
    "rule",
    [
        {"permissions": {"deny": ["lok"]}},
        {"limits": {"lok": {"calls": 1}}},
        {"permissions": {"deny": ["nobody/*"]}},
    ],
)
async def test_k4_a_rule_about_no_tool_is_a_mistake_in_a_program(rule: dict[str, Any]) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    with pytest.raises(ToolsetError):
        async with (
            ToolsetServer(Toolset(look), keep=False, profiles={"work": rule}) as server,
            of_profile(server, "work") as client,
        ):
            await client.ask("tools/list")


async def test_k4_rules_for_some_callers_without_a_login_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    rules = {"for": [{"roles": ["guest"], "deny": ["notes/*"]}]}
    async with served(office({"work": {"permissions": rules}})) as url, httpx2.AsyncClient() as http:
        await http.post(f"{url}/p/work/mcp", json={})
    assert "rules for callers by name, role or scope match nobody here" in caplog.text


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_k4_a_skill_that_a_profile_does_not_name_is_not_in_it(tmp_path: Path, era: str) -> None:
    (tmp_path / "payroll").mkdir()
    (tmp_path / "payroll/SKILL.md").write_text("---\nname: payroll\ndescription: Wages of all.\n---\n")
    async with office({"mail": {"tools": ["mail/*"]}}, skills=tmp_path) as server:
        await server.settled()
        async with of_profile(server, "mail", era, SKILLS) as client:
            listed = json.dumps([await client.ask(one) for one in ("skills/list", "resources/list")])
            read = await client.ask("resources/read", uri="skill://payroll/SKILL.md")
    assert "payroll" not in listed and "error" in read


def test_k4_a_rule_by_a_new_name_is_refused_in_a_program() -> None:
    profiles = {"quick": {"names": {"notes_write": "jot"}, "permissions": {"deny": ["jot"]}}}
    with pytest.raises(ConfigError, match="write `notes_write` for it"):
        office(profiles)


async def test_k4_a_rule_about_a_server_that_is_not_there_is_a_mistake_in_a_program() -> None:
    async with office({"work": {"permissions": {"deny": ["nots/*"]}}}) as server:
        await server.settled()
        with pytest.raises(ToolsetError, match="no such server is mounted"):
            await server.extensions["profiles"].view("work", None)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_k4_a_skill_that_a_profile_names_is_in_it_with_its_files(tmp_path: Path, era: str) -> None:
    for name in ("payroll", "refunds"):
        (tmp_path / name / "more").mkdir(parents=True)
        (tmp_path / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Of {name}.\n---\n")
        (tmp_path / name / "more/notes.md").write_text("Words.")
    async with office({"mail": {"tools": ["mail/*", "payroll"]}}, skills=tmp_path) as server:
        await server.settled()
        async with of_profile(server, "mail", era, SKILLS) as client:
            listed = json.dumps(await client.ask("skills/list"))
            read = await client.ask("resources/read", uri="skill://payroll/more/notes.md")
            other = await client.ask("resources/read", uri="skill://refunds/more/notes.md")
            got = await client.ask("skills/get", uri="skill://refunds/SKILL.md")
            folder = await client.ask("resources/directory/read", uri="skill://payroll")
            hidden = await client.ask("resources/directory/read", uri="skill://refunds")
    assert "payroll" in listed and "refunds" not in listed
    assert "Words." in json.dumps(read) and "error" in other and "error" in got
    assert "SKILL.md" in json.dumps(folder) and "error" in hidden


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_k4_a_server_hidden_in_a_profile_is_not_told_from_none_by_its_skills(era: str) -> None:
    def mounted(name: str) -> Toolset[Any]:
        return RemoteToolset([sys.executable, skill_server.__file__, "modern", name], name=name).prefixed(
            name
        )

    profiles = {"one": {"permissions": {"deny": ["two/*"]}}}
    tools = Toolset(mounted("one"), mounted("two"), name="hub")
    with anyio.fail_after(60):
        async with ToolsetServer(tools, keep=False, profiles=profiles) as server:
            await server.settled()
            async with of_profile(server, "one", era, SKILLS) as client:
                hidden = await client.ask("skills/get", uri="skill://two/refunds/SKILL.md")
                none = await client.ask("skills/get", uri="skill://six/refunds/SKILL.md")
    assert json.dumps(hidden).replace("//two/", "//six/") == json.dumps(none)
