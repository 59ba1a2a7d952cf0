"""Profiles attacked from the words of row K4 and of the reference of keys: what does not hold yet."""

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
from mcp import Client, StdioServerParameters
from tests.cli.commandline import CommandLine, line
from tests.extensions.profiles.office import office
from tests.extensions.skills import skill_server
from tests.interaction.raw_client import RawClient, raw_client
from tests.support.configured import PLAIN
from tests.support.served import served

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.errors import ToolsetError
from mcp_toolset.journal import Journal

__all__ = ["line"]

pytestmark = pytest.mark.anyio

SKILLS = {"extensions": {"io.modelcontextprotocol/skills": {}}}
PROGRAM = """
from mcp_toolset import Toolset, ToolsetServer, tool

@tool(read_only=True)
def look() -> str:
    \"\"\"Look.\"\"\"
    return "seen"

@tool
def drop() -> str:
    \"\"\"Drop.\"\"\"
    return "dropped"

server = ToolsetServer(Toolset(look, drop), profiles={"reading": {"tools": ["readOnly:*"]}})
"""


@asynccontextmanager
async def of_profile(
    server: ToolsetServer, name: str, era: str = "modern", capabilities: dict[str, Any] | None = None
) -> AsyncGenerator[RawClient]:
    view: Any = await server.extensions["profiles"].view(name, None)
    async with raw_client(view, era, capabilities) as client:
        yield client


def entry(*tools: str) -> dict[str, object]:
    return {"command": sys.executable, "args": [PLAIN, json.dumps({"tools": tools})]}


@pytest.fixture
def hub(line: CommandLine) -> CommandLine:
    profiles = {"work": {"tools": ["one/*"]}, "home": {"tools": ["two/*"]}}
    servers = {"one": entry("a", "b"), "two": entry("c")}
    line.write("mcp.json", json.dumps({"toolset": {"profiles": profiles}, "mcpServers": servers}))
    return line


# HIGH: a rule of a profile by the name that the profile itself gives a tool is silently not applied. A
# pattern matches "public names, which clients see" (docs/policies.md), and clients of it see `jot`.
@pytest.mark.parametrize("rule", [{"permissions": {"deny": ["jot"]}}, {"limits": {"jot": {"calls": 1}}}])
async def test_k4_a_profile_s_rule_by_its_own_name_of_a_tool_applies_or_nothing_is_served(
    rule: dict[str, Any],
) -> None:
    profiles = {"quick": {"tools": ["notes/*"], "names": {"notes_write": "jot"}, **rule}}
    async with office(profiles) as server:
        try:
            async with of_profile(server, "quick") as client:
                said = [
                    json.dumps(await client.ask("tools/call", name="jot", arguments={"text": str(number)}))
                    for number in range(2)
                ]
        except ToolsetError:
            return  # An error at the start is as good.
    assert "notes wrote 1" not in said[1]


# HIGH: `--profile "$PROFILE"` with an unset variable serves the whole hub.
@pytest.mark.parametrize("command", ["list", "preflight", "explain", "pin"])
def test_k4_an_empty_name_of_a_profile_is_refused_by_commands(hub: CommandLine, command: str) -> None:
    done = hub.run(command, "mcp.json", "--profile", "")
    assert done.returncode != 0 and "two_c" not in done.stdout, done.stdout


# HIGH: the same on stdio, for a client that was to have one profile.
async def test_k4_an_empty_name_of_a_profile_is_not_served(hub: CommandLine) -> None:
    program, *arguments = hub.command("serve", "mcp.json", "--profile", "")
    server = StdioServerParameters(command=program, args=arguments, cwd=str(hub.folder), env=None)
    listed: list[str] = []
    try:
        with anyio.fail_after(30):
            async with Client(server, cache=None) as client:  # pyright: ignore[reportArgumentType]
                listed = [tool.name for tool in (await client.list_tools()).tools]
    except Exception as fault:
        assert not isinstance(fault, TimeoutError)
    assert "two_c" not in listed


# HIGH: the journal's refusal names server and tool of another profile to a client that repeats a key, and
# gives the id and the time of that profile's call.
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


# MEDIUM: `surface` of a profile is ignored if the server has a `surface` of `list` or `auto`.
@pytest.mark.parametrize("way", ["list", "auto"])
async def test_k4_a_profile_s_surface_is_stronger_than_the_server_s(way: str) -> None:
    async with office({"behind": {"surface": "search"}}, surface=way) as server:
        await server.settled()
        async with of_profile(server, "behind") as client:
            listed = {tool["name"] for tool in (await client.ask("tools/list"))["tools"]}
    assert "search_tools" in listed and "notes_write" not in listed


# MEDIUM: the program's own profiles cannot be chosen by any command.
def test_k4_a_profile_of_a_program_is_chosen_by_the_option(line: CommandLine) -> None:
    line.write("app.py", PROGRAM)
    done = line.run("list", "app.py", "--profile", "reading", "--json")
    assert done.returncode == 0, done.stderr
    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["look"]


# MEDIUM: `preflight --profile` looks at every server, and takes any name.
def test_k4_preflight_sees_the_profile_alone(hub: CommandLine) -> None:
    done = hub.run("preflight", "mcp.json", "--profile", "work", "--json")
    assert "two" not in done.stdout


# MEDIUM: see above.
def test_k4_preflight_of_an_unknown_profile_fails(hub: CommandLine) -> None:
    done = hub.run("preflight", "mcp.json", "--profile", "wrok")
    assert done.returncode != 0, done.stdout


# MEDIUM: `install` writes an entry that cannot start.
def test_k4_install_of_an_unknown_profile_fails(hub: CommandLine) -> None:
    done = hub.run("install", "cursor", "mcp.json", "--profile", "wrok", "--dry-run")
    assert done.returncode != 0, done.stdout


# MEDIUM: `install --adopt` drops `--profile` without a word, and gives the client everything.
def test_k4_adopting_with_a_profile_is_done_or_refused(line: CommandLine) -> None:
    (line.folder / ".cursor").mkdir()
    line.write(".cursor/mcp.json", json.dumps({"mcpServers": {"one": entry("a")}}))
    done = line.run("install", "cursor", "--adopt", "--profile", "work", "--dry-run")
    assert done.returncode != 0 or '"--profile"' in done.stdout, done.stdout


# MEDIUM: a profile for "every caller with a login", in a file that has no login, is served on stdio to a
# caller without one, and `check` finds nothing wrong; with `roles` both refuse.
def test_k4_a_profile_that_needs_a_login_needs_one_in_the_file(line: CommandLine) -> None:
    section = {"profiles": {"work": {"auth": True}}}
    line.write("mcp.json", json.dumps({"toolset": section, "mcpServers": {"one": entry("a")}}))
    done = line.run("check", "mcp.json")
    assert done.returncode == 1 and "nothing says who calls" in done.stdout + done.stderr, done.stdout


# HIGH: rules, patterns and names of a profile that fit no tool are told nowhere; those of the server are
# ("the log warns of each pattern that matches no tool", docs/policies.md and docs/limits.md).
@pytest.mark.parametrize(
    "profile",
    [
        {"permissions": {"deny": ["notes_wirte"]}},
        {"limits": {"notes_wirte": {"calls": 1}}},
        {"names": {"notes_wirte": "jot"}},
        {"tools": ["notes_wirte", "mail/*"]},
        {"permissions": {"deny": ["nots/*"]}},
    ],
)
async def test_k4_patterns_of_a_profile_that_fit_no_tool_are_told(
    profile: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    try:
        async with office({"work": profile}) as server:
            await server.settled()
            async with of_profile(server, "work") as client:
                await client.ask("tools/list")
    except ToolsetError as fault:
        assert "wirte" in str(fault) or "nots" in str(fault)
        return
    assert "wirte" in caplog.text or "nots" in caplog.text


# MEDIUM: a skill that a policy denies answers otherwise than one that is not there.
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


# HIGH: in a program, a rule about a tool that is not there is an error for the server's own policy
# ("raises an `UnknownNameError` when the server is opened"), and nothing at all for a profile's.
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


# MEDIUM: rules of a profile for some callers, in a program without a login, are told nowhere; of the server's
# policy the log says that they match nobody (docs/policies.md), and a file with them is not served.
async def test_k4_rules_for_some_callers_without_a_login_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    rules = {"for": [{"roles": ["guest"], "deny": ["notes/*"]}]}
    try:
        async with served(office({"work": {"permissions": rules}})) as url, httpx2.AsyncClient() as http:
            await http.post(f"{url}/p/work/mcp", json={})
    except ToolsetError:
        return
    assert "guest" in caplog.text or "nobody" in caplog.text


# LOW: a name that only the bridge may give is found when the profile is first asked for, not by `check`.
def test_k4_a_name_of_the_bridge_s_tools_is_a_mistake(line: CommandLine) -> None:
    section = {"profiles": {"work": {"surface": "search", "names": {"one_a": "search_tools"}}}}
    line.write("mcp.json", json.dumps({"toolset": section, "mcpServers": {"one": entry("a")}}))
    done = line.run("check", "mcp.json")
    assert done.returncode == 1 and "search_tools" in done.stdout + done.stderr, done.stdout


# LOW: a number among the patterns is taken for a text, and fits nothing.
def test_k4_a_number_is_no_pattern_of_tools(line: CommandLine) -> None:
    section = {"profiles": {"work": {"tools": [3]}}}
    line.write("mcp.json", json.dumps({"toolset": section, "mcpServers": {"one": entry("a")}}))
    assert line.run("check", "mcp.json").returncode == 1


# HIGH: skills of the program's own folder are in every profile, with their files, whatever `tools` say. Its
# own resources are not, and a policy decides about a skill as about a tool with its name (docs/skills.md).
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
