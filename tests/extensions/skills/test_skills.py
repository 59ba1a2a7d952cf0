"""Skills of folders are served, and those of mounted servers are carried (SEP-2640)."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.commandline import CommandLine, line
from tests.extensions.skills import skill_server
from tests.extensions.skills.skill_server import MORE, SECOND, URI
from tests.interaction.raw_client import RawClient, raw_client

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, load_toolset, tool
from mcp_toolset.errors import DefinitionError, UnknownNameError
from mcp_toolset.extensions.skills.address_forms import forms_of
from mcp_toolset.extensions.skills.extension import Skills
from mcp_toolset.policy import Policy

__all__ = ["line"]

pytestmark = pytest.mark.anyio
ERAS = ("legacy", "modern")
SHOP = [sys.executable, skill_server.__file__, "modern", "shop"]
SKILLS = "io.modelcontextprotocol/skills"
SAID = "name: git-workflow\ndescription: Use when you commit.\nmetadata:\n  since: 2026-01-02"
GIT = f"---\n{SAID}\n---\r\n# Commit\r\n"


@pytest.fixture(params=ERAS)
def client_era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=ERAS)
def server_era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "skills"
    for name, content in {
        "git-workflow/SKILL.md": GIT.encode(),
        "git-workflow/references/names.md": b"Names.\n",
        "git-workflow/pixel.png": bytes(range(256)),
        "git-workflow/.hidden": b"no",
        "team/tidy/SKILL.md": b"---\nname: tidy\ndescription: Use it to tidy up.\n---\n",
    }.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return place


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@asynccontextmanager
async def served(tools: Toolset, era: str, **options: Any) -> AsyncGenerator[RawClient]:
    with anyio.fail_after(60):
        async with ToolsetServer(tools, keep=False, **options) as server:
            await server.settled()
            async with raw_client(server, era) as client:
                yield client


def mounted(era: str, *names: str, odd: str = "") -> Toolset:
    def command(name: str) -> list[str]:
        return [sys.executable, skill_server.__file__, era, name, *(["--odd"] if name == odd else [])]

    return Toolset(*[RemoteToolset(command(name), name=name).prefixed(name) for name in names], name="hub")


async def declared(client: RawClient) -> dict[str, Any]:
    said = client.welcome or await client.ask("server/discover")
    return said["capabilities"]


async def every(client: RawClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = await client.ask("skills/list", **cursor)
        found += page["skills"]
        if "nextCursor" not in page:
            return found
        cursor = {"cursor": page["nextCursor"]}


def content_of(read: dict[str, Any]) -> bytes:
    (content,) = read["contents"]
    return content["text"].encode() if "text" in content else base64.b64decode(content["blob"])


async def verified(client: RawClient, entry: dict[str, Any]) -> int:
    """Read every file of a skill as a host does, which compares it with its digest; the number of files."""
    for file in entry["resources"]:
        read = await client.ask("resources/read", uri=file["uri"])
        content = content_of(read)
        assert read["contents"][0]["uri"] == file["uri"]
        assert (len(content), f"sha256:{hashlib.sha256(content).hexdigest()}") == (
            file["size"],
            file["digest"],
        )
    return len(entry["resources"])


async def test_g3_skills_of_a_folder_are_listed_and_read_as_their_digests_say(
    folder: Path, client_era: str
) -> None:
    async with served(Toolset(add), client_era, skills=folder) as client:
        said = await declared(client)
        assert said["extensions"][SKILLS] == {"directoryRead": True} and "resources" in said
        git, tidy = await every(client)
        assert git["uri"] == "skill://git-workflow/SKILL.md" and tidy["uri"] == "skill://team/tidy/SKILL.md"
        # A date is the text of the file, as JSON has none.
        assert git["frontmatter"] == {
            "name": "git-workflow",
            "description": "Use when you commit.",
            "metadata": {"since": "2026-01-02"},
        }
        assert await verified(client, git) == 3 and await verified(client, tidy) == 1
        got = await client.ask("skills/get", uri=git["uri"])
        assert got["skill"] == git and ("ttlMs" in got) is (client_era == "modern")
        listed = {one["uri"]: one for one in (await client.ask("resources/list"))["resources"]}
        assert (
            listed[git["uri"]]["name"] == "git-workflow" and listed[git["uri"]]["mimeType"] == "text/markdown"
        )


async def test_g3_directories_are_read(folder: Path, client_era: str) -> None:
    async with served(Toolset(add), client_era, skills=folder) as client:
        root = await client.ask("resources/directory/read", uri="skill://git-workflow")
        assert [(one["name"], one["mimeType"]) for one in root["resources"]] == [
            ("git-workflow", "text/markdown"),
            ("pixel.png", "image/png"),
            ("references", "inode/directory"),
        ]
        below = await client.ask("resources/directory/read", uri="skill://git-workflow/references")
        assert [one["uri"] for one in below["resources"]] == ["skill://git-workflow/references/names.md"]
        for wrong in (
            "skill://git-workflow/SKILL.md",
            "skill://none",
            "skill://git-workflow/../git-workflow",
        ):
            assert (await client.ask("resources/directory/read", uri=wrong))["error"]["code"] == -32602


@pytest.mark.parametrize(
    "uri",
    [
        "skill://none/SKILL.md",
        "skill://git-workflow/pixel.png",
        "skill://git-workflow/../team/tidy/SKILL.md",
        "",
    ],
)
async def test_g3_what_is_no_skill_is_invalid(uri: str, folder: Path, client_era: str) -> None:
    async with served(Toolset(add), client_era, skills=folder) as client:
        assert (await client.ask("skills/get", uri=uri))["error"]["code"] == -32602
        assert (await client.ask("skills/list", cursor="far away"))["error"]["code"] == -32602


async def test_g3_a_changed_file_has_another_digest(folder: Path) -> None:
    async with served(Toolset(add), "modern", skills=folder) as client:
        before = (await every(client))[0]
        (folder / "git-workflow/SKILL.md").write_text(GIT + "And push.\n")
        (folder / "git-workflow/new.txt").write_text("new")
        after = (await every(client))[0]
        assert after["resources"] != before["resources"] and await verified(client, after) == 4


BROKEN = {
    "no-front": "# Just text",
    "Upper": "---\nname: Upper\ndescription: d\n---\n",
    "other-name": "---\nname: another\ndescription: d\n---\n",
    "no-description": "---\nname: no-description\n---\n",
    "not-yaml": "---\nname: [\ndescription: d\n---\n",
    "no-number": "---\nname: no-number\ndescription: d\nx: .inf\n---\n",
    "python": "---\nname: python\ndescription: d\nx: !!python/object/apply:os.system [true]\n---\n",
    "bomb": "---\nname: bomb\ndescription: d\na: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
    "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d]\n---\n",
}


async def test_g3_what_breaks_the_rules_is_left_out_with_a_reason(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, text in BROKEN.items():
        (folder / name).mkdir()
        (folder / name / "SKILL.md").write_text(text)
    many, large = folder / "many", folder / "large"
    for place in (many, large):
        place.mkdir()
        (place / "SKILL.md").write_text(f"---\nname: {place.name}\ndescription: d\n---\n")
    for number in range(512):
        (many / f"{number}.txt").write_text("x")
    with (large / "file").open("wb") as file:
        file.truncate(16 * 1024 * 1024)
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    (folder / "git-workflow/link").symlink_to(secret)
    with caplog.at_level(logging.WARNING, logger="mcp_toolset.server"):
        async with served(Toolset(add), "modern", skills=folder) as client:
            assert [one["frontmatter"]["name"] for one in await every(client)] == ["git-workflow", "tidy"]
            assert "error" in await client.ask("resources/read", uri="skill://git-workflow/link")
    told = "\n".join(record.getMessage() for record in caplog.records)
    for name in (*BROKEN, "many", "large"):
        assert f"{folder / name} is left out" in told
    assert "513 files" in told and "16,777,216 are allowed" in told


async def test_g3_skills_of_a_mounted_server_are_carried(client_era: str, server_era: str) -> None:
    async with served(mounted(server_era, "shop"), client_era) as client:
        assert (await declared(client))["extensions"][SKILLS] == {"directoryRead": True}
        refunds, tidy = await every(client)
        # A single server's addresses stay, and so do digests and members that nobody knows.
        theirs = skill_server.entry(URI, "shop")
        assert refunds == {**theirs, "_meta": {"mcp-toolset/server": "shop"}} and tidy["uri"] == SECOND
        assert await verified(client, refunds) == 2 and await verified(client, tidy) == 1
        assert (await client.ask("skills/get", uri=URI))["skill"] == refunds
        below = await client.ask("resources/directory/read", uri="skill://refunds")
        assert [one["uri"] for one in below["resources"]] == [URI, "skill://refunds/policy"]
        assert (await client.ask("skills/get", uri="skill://none/SKILL.md"))["error"]["code"] == -32602


async def test_g3_skills_of_one_name_at_two_servers_stay_two(client_era: str, server_era: str) -> None:
    async with served(mounted(server_era, "east", "west"), client_era) as client:
        found = {one["uri"]: one for one in await every(client)}
        assert [*found] == [
            f"skill://{name}/{rest}" for name in ("east", "west") for rest in (URI[8:], SECOND[8:])
        ]
        for name in ("east", "west"):
            skill = found[f"skill://{name}/refunds/SKILL.md"]
            assert skill["frontmatter"] == skill_server.entry(URI, name)["frontmatter"]
            digests = [(one["digest"], one["size"]) for one in skill["resources"]]
            assert digests == [
                (one["digest"], one["size"]) for one in skill_server.entry(URI, name)["resources"]
            ]
            assert await verified(client, skill) == 2
            assert (await client.ask("skills/get", uri=skill["uri"]))["skill"] == skill
            below = await client.ask("resources/directory/read", uri=f"skill://{name}/refunds")
            assert [one["uri"] for one in below["resources"]] == [
                skill["uri"],
                f"skill://{name}/refunds/policy",
            ]
        # The address of one server alone leads to no other one.
        assert "error" in await client.ask("resources/read", uri="skill://north/refunds/SKILL.md")


async def test_g3_a_skill_of_a_folder_is_beside_one_of_a_server(folder: Path, client_era: str) -> None:
    own = folder / "refunds"
    own.mkdir()
    (own / "SKILL.md").write_text("---\nname: refunds\ndescription: Our own way.\n---\n")
    async with served(mounted("modern", "shop"), client_era, skills=folder) as client:
        found = [one for one in await every(client) if one["frontmatter"]["name"] == "refunds"]
        assert [one["uri"] for one in found] == [URI, f"shop+{URI}"]
        assert [await verified(client, one) for one in found] == [1, 2]
        texts = [content_of(await client.ask("resources/read", uri=one["uri"])) for one in found]
        assert b"Our own way" in texts[0] and b"as shop does" in texts[1]


async def test_g3_a_folder_with_the_address_of_a_server_is_left_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = folder / "east" / "refunds"
    own.mkdir(parents=True)
    (own / "SKILL.md").write_text("---\nname: refunds\ndescription: Not of east.\n---\n")
    async with served(mounted("modern", "east", "west"), "modern", skills=folder) as client:
        skill = next(one for one in await every(client) if one["uri"] == "skill://east/refunds/SKILL.md")
        assert await verified(client, skill) == 2
    assert "the mounted server east has its address" in caplog.text


async def test_g3_entries_that_break_the_rules_are_left_out(
    client_era: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(mounted("modern", "east", "west", odd="west"), client_era) as client:
        names = [
            (one["_meta"]["mcp-toolset/server"], one["frontmatter"]["name"]) for one in await every(client)
        ]
        assert names == [("east", "refunds"), ("east", "tidy"), ("west", "tidy")]
    reasons = (
        "513 files",
        "bytes",
        "not in its folder",
        "own SKILL.md",
        "digest",
        "twice",
        "no files",
        "hidden text",
    )
    for reason in (*reasons, "no description", "its name is 'Other'", "none of a SKILL.md"):
        assert reason in caplog.text


async def test_g3_a_policy_decides_about_skills(folder: Path, client_era: str) -> None:
    policy = Policy(deny=["east_refunds", "git-workflow", "west_*"])
    async with served(mounted("modern", "east", "west"), client_era, skills=folder, policy=policy) as client:
        names = [one["uri"] for one in await every(client)]
        assert names == ["skill://team/tidy/SKILL.md", "skill://east/team/tidy/SKILL.md"]
        hidden = [
            "skill://git-workflow/SKILL.md",
            *(f"skill://{one}/refunds/SKILL.md" for one in ("east", "west")),
        ]
        for uri in (*hidden, f"skill://east/{MORE[8:]}"):
            assert (await client.ask("skills/get", uri=uri))["error"]["code"] == -32602
            assert "not found" in (await client.ask("resources/read", uri=uri))["error"]["message"]
            above = uri.rpartition("/")[0]
            assert (await client.ask("resources/directory/read", uri=above))["error"]["code"] == -32602
        listed = (await client.ask("resources/list"))["resources"]
        assert [one["uri"] for one in listed] == ["skill://team/tidy/SKILL.md"]


async def test_g3_a_client_that_comes_before_the_servers_finds_their_skills(client_era: str) -> None:
    with anyio.fail_after(60):
        server = ToolsetServer(mounted("modern", "east", "west"), keep=False)
        async with server.opened(), raw_client(server, client_era) as client:
            assert (await declared(client))["extensions"][SKILLS] == {"directoryRead": True}
            assert len(await every(client)) == 4


async def test_g3_a_search_finds_skills(folder: Path, client_era: str) -> None:
    tools = mounted("modern", "east", "west").deferred()
    async with served(tools, client_era, skills=folder) as client:
        found = await client.ask(
            "tools/call", name="search_tools", arguments={"query": "refunds of the west"}
        )
        others = json.loads(found["content"][0]["text"])["others"]
        assert others[0] == {
            "kind": "skill",
            "name": "refunds",
            "description": "How west does refunds.",
            "address": "skill://west/refunds/SKILL.md",
            "how": "read its address as a resource, and follow it",
            "server": "west",
        }
        none = await client.ask("tools/call", name="search_tools", arguments={"query": "pay"})
        assert "others" not in json.loads(none["content"][0]["text"])


async def test_g3_a_file_names_the_folder_or_turns_skills_off(folder: Path) -> None:
    file = folder.parent / "mcp.json"
    program, *arguments = [sys.executable, skill_server.__file__, "legacy", "shop"]
    hub = {"mcpServers": {"shop": {"command": program, "args": arguments}}}
    for said, count in (("skills", 4), ({"folder": "skills"}, 4), (True, 2)):
        file.write_text(json.dumps({"toolset": {"skills": said}, **hub}))
        async with served(load_toolset(file), "modern") as client:
            assert len(await every(client)) == count
    file.write_text(json.dumps({"toolset": {"skills": False}, **hub}))
    async with served(load_toolset(file), "modern") as client:
        assert SKILLS not in (await declared(client)).get("extensions", {})
        assert (await client.ask("skills/list"))["error"]["code"] == -32601


async def test_g3_long_lists_have_pages_that_split_no_skill(folder: Path) -> None:
    for number in range(230):
        place = folder / "many" / f"skill-{number:03}"
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(f"---\nname: skill-{number:03}\ndescription: d\n---\n")
    async with served(Toolset(add), "modern", skills=folder) as client:
        page = await client.ask("skills/list")
        assert len(page["skills"]) == 100 and "nextCursor" in page
        names = [one["uri"] for one in await every(client)]
        assert len(names) == len({*names}) == 232


def test_g3_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="there is no folder"):
        Skills(tmp_path / "nowhere")


MUTE = """
import json, sys

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


async def test_g3_a_server_that_does_not_say_its_skills_holds_up_no_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Waiting again would be told by the deadline of the test.
    monkeypatch.setattr("mcp_toolset.extensions.skills.extension.SEARCH_WAIT", 1.0)
    (tmp_path / "mute.py").write_text(MUTE)
    mute = RemoteToolset([sys.executable, str(tmp_path / "mute.py")], name="mute").prefixed("mute")
    tools = Toolset(Toolset(add).deferred(), mute, RemoteToolset(SHOP, name="shop").prefixed("shop"))
    async with ToolsetServer(tools, keep=False) as server:
        await server.settled()
        async with raw_client(server, "modern", {"extensions": {SKILLS: {}}}) as client:
            with anyio.fail_after(12):
                for _ in range(20):
                    found = await client.ask(
                        "tools/call", name="search_tools", arguments={"query": "refunds"}
                    )
                    assert "skill://shop/refunds/SKILL.md" in json.dumps(found)
                assert (await client.ask("tools/call", name="mute_pay", arguments={})) is not None
            assert server.statuses()["mute"].is_up


async def test_g3_a_skill_that_comes_late_is_found_by_a_later_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.skills.extension.SEARCH_WAIT", 0.0)
    tools = Toolset(Toolset(add).deferred(), RemoteToolset(SHOP, name="shop").prefixed("shop"))
    async with served(tools, "modern") as client:
        looked, found = 0, ""
        while "skill://refunds/SKILL.md" not in found:
            answer = await client.ask("tools/call", name="search_tools", arguments={"query": "refunds"})
            looked, found = looked + 1, json.dumps(answer)
        assert looked > 1


async def test_g3_a_program_denies_its_own_skill_by_its_name(folder: Path, client_era: str) -> None:
    policy = Policy(deny=["tidy"])
    async with served(Toolset(add), client_era, skills=folder, policy=policy) as client:
        assert [one["frontmatter"]["name"] for one in await every(client)] == ["git-workflow"]
    with pytest.raises(UnknownNameError, match="tydi"):
        async with served(Toolset(add), client_era, skills=folder, policy=Policy(deny=["tydi"])):
            pass


async def test_g3_a_rule_about_a_skill_is_not_said_to_have_no_effect(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"skills": str(folder), "permissions": {"deny": ["tidy", "untidy"]}}
    servers = {"shop": {"command": SHOP[0], "args": SHOP[1:]}}
    file = folder.parent / "mcp.json"
    file.write_text(json.dumps({"toolset": settings, "mcpServers": servers}))
    caplog.set_level(logging.WARNING)
    async with served(load_toolset(file), "modern") as client:
        assert "tidy" not in {one["frontmatter"]["name"] for one in await every(client)}
    assert "'untidy'" in caplog.text and "'tidy'" not in caplog.text


async def test_g3_a_rule_about_a_skill_of_a_mounted_server_waits_until_skills_are_listed(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = {"deny": ["shop_refunds", "shop/refunds", "shop_refundz", "shop_reed"]}
    profiles = {"work": {"tools": ["shop_refunds", "shop/*"]}}
    settings = {"permissions": rules, "profiles": profiles}
    servers = {"shop": {"command": SHOP[0], "args": SHOP[1:]}}
    file = folder.parent / "mcp.json"
    file.write_text(json.dumps({"toolset": settings, "mcpServers": servers}))
    caplog.set_level(logging.WARNING)
    with anyio.fail_after(60):
        async with ToolsetServer(load_toolset(file), keep=False) as server:
            await server.settled()
            assert await server.extensions["profiles"].view("work", None) is not None
            assert "has no effect" not in caplog.text
            async with raw_client(server, "modern") as client:
                await every(client)
            told = [one.getMessage() for one in caplog.records if "has no effect" in one.getMessage()]
    assert len(told) == 2 and "'shop_refundz'" in told[0] and "'shop_reed'" in told[1]


@pytest.mark.parametrize(
    ("deny", "hidden", "none"),
    [
        ("shop_refunds", "skill://refunds/SKILL.md", "skill://nothing/SKILL.md"),
        ("store/*", "skill://store/refunds/SKILL.md", "skill://nobody/refunds/SKILL.md"),
    ],
)
@pytest.mark.parametrize("method", ["skills/get", "resources/read", "resources/directory/read"])
async def test_g3_a_denied_skill_is_not_told_from_one_that_is_not_there(
    method: str, deny: str, hidden: str, none: str, client_era: str
) -> None:
    names = ["shop"] if deny == "shop_refunds" else ["shop", "store"]
    async with served(mounted("modern", *names), client_era, policy=Policy(deny=[deny])) as client:
        said = json.dumps((await client.ask(method, uri=hidden))["error"])
        missing = json.dumps((await client.ask(method, uri=none))["error"])
    assert said.replace(hidden, "X") == missing.replace(none, "X")


def test_g3_check_finds_a_folder_that_is_not_there(line: CommandLine) -> None:
    document = {"toolset": {"skills": "skils"}, "mcpServers": {"up": {"command": "true"}}}
    line.write("mcp.json", json.dumps(document))
    done = line.run("check", "mcp.json")
    assert done.returncode == 1 and "skils" in done.stdout + done.stderr


@pytest.mark.parametrize("said", ["", 5, ["skills", ""], b"skills", [5]])
def test_g3_a_value_that_is_no_folder_is_refused(
    said: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    with pytest.raises(DefinitionError, match="takes the path of a folder"):
        ToolsetServer(Toolset(add), keep=False, skills=said)


LAMP = """
from mcp_toolset import Toolset, serve, tool

@tool
def light() -> str:
    "Light a lamp."
    return "on"

serve(Toolset(light))
"""


@pytest.mark.needs("profiles")
async def test_g3_a_file_of_the_only_skills_of_a_profile_has_the_address_by_which_it_was_read(
    client_era: str, tmp_path: Path
) -> None:
    (tmp_path / "lamp.py").write_text(LAMP)
    lamp = RemoteToolset([sys.executable, str(tmp_path / "lamp.py")], name="lamp").prefixed("lamp")
    profiles = {"one": {"tools": ["shop/*", "lamp/*"]}}
    tools = Toolset(lamp, mounted("modern", "shop", "store"))
    with anyio.fail_after(60):
        async with ToolsetServer(tools, keep=False, profiles=profiles) as server:
            await server.settled()
            view: Any = await server.extensions["profiles"].view("one", None)
            async with raw_client(view, client_era) as client:
                (entry, *_) = await every(client)
                assert await verified(client, entry) > 0 and entry["uri"].startswith("skill://shop/")


async def test_g3_a_later_page_does_not_look_at_the_folder_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.skills.extension.PAGE", 1)
    looks: list[Path] = []
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda place: looks.append(place) or walk(place))
    async with served(Toolset(add), "modern", skills=folder) as client:
        page = await client.ask("skills/list")
        looked = len(looks)
        last = await client.ask("skills/list", cursor=page["nextCursor"])
        assert len(last["skills"]) == 1 and len(looks) == looked > 0


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    place = tmp_path / "nested"
    for path, about in (("nest", "Outer"), ("nest/inner", "Inner"), ("payroll", "SALARIES of all")):
        (place / path).mkdir(parents=True)
        said = f"---\nname: {path.rpartition('/')[2]}\ndescription: {about}\n---\n"
        (place / path / "SKILL.md").write_text(said)
    return place


@asynccontextmanager
async def with_policy(nested: Path, era: str, count: int, *denied: str) -> AsyncGenerator[RawClient]:
    """A server with these skills, its own if `count` is 0, else those of so many mounted servers."""
    names = ["shop", "store"][:count]
    policy = Policy(deny=[f"{prefix}{one}" for prefix in ("shop_", "store_")[: count or 1] for one in denied])
    if not names:
        own = Policy(deny=list(denied))
        async with served(Toolset(add), era, skills=nested, policy=own) as client:
            yield client
        return
    async with AsyncExitStack() as stack:
        mounts: list[Toolset] = []
        for name in names:
            inner = await stack.enter_async_context(ToolsetServer(Toolset(add), keep=False, skills=nested))
            mounts.append(RemoteToolset(inner, name=name).prefixed(name))
        client = await stack.enter_async_context(served(Toolset(*mounts, name="hub"), era, policy=policy))
        yield client


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_g3_a_denied_skill_is_in_no_list(nested: Path, client_era: str, count: int) -> None:
    async with with_policy(nested, client_era, count, "payroll") as client:
        listed = await client.ask("resources/list")
        assert "nest/SKILL.md" in json.dumps(listed)
        for answer in (listed, await client.ask("skills/list")):
            assert "payroll" not in json.dumps(answer) and "SALARIES" not in json.dumps(answer)


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_g3_a_skill_without_a_denied_part_lists_what_can_be_read(
    nested: Path, client_era: str, count: int
) -> None:
    async with with_policy(nested, client_era, count, "inner") as client:
        skills = [one for one in await every(client) if one["frontmatter"]["name"] == "nest"]
        for entry in skills:
            got = await client.ask("skills/get", uri=entry["uri"])
            assert got["skill"]["resources"] == entry["resources"]
            assert await verified(client, entry) == 1
            place = entry["uri"].removesuffix("/SKILL.md")
            below = await client.ask("resources/directory/read", uri=place)
            assert [one["uri"] for one in below["resources"]] == [entry["uri"]]
        assert len(skills) == max(count, 1)


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_g3_what_is_in_a_denied_skill_is_denied(nested: Path, client_era: str, count: int) -> None:
    async with with_policy(nested, client_era, count, "nest") as client:
        assert {one["frontmatter"]["name"] for one in await every(client)} == {"payroll"}
        assert "inner" not in json.dumps(await client.ask("resources/list"))
        root = "skill://shop/" if count == 2 else "skill://"
        for method in ("skills/get", "resources/read"):
            answer = await client.ask(method, uri=f"{root}nest/inner/SKILL.md")
            assert answer["error"]["code"] in (-32602, -32002)


@asynccontextmanager
async def decoding(era: str, *names: str, policy: Policy) -> AsyncGenerator[RawClient]:
    """Servers that decode the addresses that they are asked for."""
    command = [sys.executable, skill_server.__file__, "modern"]
    mounts = [RemoteToolset([*command, name, "--decodes"], name=name).prefixed(name) for name in names]
    async with served(Toolset(*mounts, name="hub"), era, policy=policy) as client:
        yield client


ENCODED = [
    "skill://r%65funds/SKILL.md",
    "skill://r%2565funds/policy/limits.md",
    "skill:%2F%2Frefunds%2FSKILL.md",
    "%73kill://refunds/SKILL.md",
]


@pytest.mark.parametrize("uri", ENCODED)
async def test_g3_a_denied_skill_is_not_found_by_an_encoded_address(uri: str, client_era: str) -> None:
    # The modern era has `subscriptions/listen` in place of `resources/subscribe`.
    methods = ["resources/read", *(["resources/subscribe"] if client_era == "legacy" else [])]
    for method in methods:
        async with decoding(client_era, "shop", policy=Policy(deny=["shop_nothing"])) as client:
            assert "error" not in await client.ask(method, uri=uri)
        async with decoding(client_era, "shop", policy=Policy(deny=["shop_refunds"])) as client:
            assert (await client.ask(method, uri=uri))["error"]["message"] == "Resource not found"


async def test_g3_an_encoded_directory_of_a_denied_skill_is_none(client_era: str) -> None:
    for denied in ("nothing", "refunds"):
        async with decoding(client_era, "shop", policy=Policy(deny=[f"shop_{denied}"])) as client:
            answer = await client.ask("resources/directory/read", uri="skill://r%65funds")
            assert ("error" in answer) is (denied == "refunds")


@pytest.mark.parametrize("names", [("shop",), ("shop", "store")])
async def test_g3_the_templates_of_a_denied_skill_are_in_no_list_and_have_no_values(
    names: tuple[str, ...], client_era: str
) -> None:
    root = "skill://shop/" if len(names) == 2 else "skill://"
    about = {"argument": {"name": "file", "value": ""}}

    async with decoding(client_era, *names, policy=Policy(deny=["shop_refunds"])) as client:
        listed = (await client.ask("resources/templates/list"))["resourceTemplates"]
        shops = [one["uriTemplate"] for one in listed if one["uriTemplate"].startswith(root)]
        assert f"{root}{{skill}}/{{file}}" in shops and "funds" not in json.dumps(shops)
        for path in ("refunds/{file}", "r%65funds{/file}", "{skill}/{file}"):
            reference = {"type": "ref/resource", "uri": root + path}
            chosen = {"context": {"arguments": {"skill": "refunds"}}} if "{skill}" in path else {}
            refused = await client.ask("completion/complete", ref=reference, **about, **chosen)
            assert refused["error"]["code"] == -32602
            assert refused["error"]["message"] == f"Unknown resource template: {root}{path}"
        other = {"type": "ref/resource", "uri": root + "{skill}/{file}"}
        chosen = {"context": {"arguments": {"skill": "tidy"}}}
        answer = await client.ask("completion/complete", ref=other, **about, **chosen)
        assert answer["completion"]["values"] == ["limits.md"]


async def test_g3_a_stream_of_changes_has_none_of_a_denied_skill() -> None:
    uris = ["skill://r%65funds/SKILL.md", SECOND]
    async with decoding("modern", "shop", policy=Policy(deny=["shop_refunds"])) as client:
        await client.begin("subscriptions/listen", notifications={"resourceSubscriptions": uris})
        told = await client.told("notifications/subscriptions/acknowledged")
        assert told["notifications"]["resourceSubscriptions"] == [SECOND]


@pytest.mark.parametrize(
    ("uri", "folder", "fits"),
    [
        ("docs://payr%6fll/SKILL.md", "docs://payroll/", True),
        ("DOCS://Payroll/SKILL.md", "docs://payroll/", True),
        ("docs://refunds/../payroll/SKILL.md", "docs://payroll/", True),
        ("docs://a/../payroll/SKILL.md", "docs://a/payroll/", True),
        ("docs://.//payroll//x.md", "docs://payroll/", True),
        ("docs://refunds/%252e%252e/payroll/x.md", "docs://payroll/", True),
        ("docs://nest/%69nner/z.md", "docs://nest/inner/", True),
        ("docs://pay\troll/x.md", "docs://payroll/", True),
        ("docs://payroll", "docs://payroll/", True),
        ("docs://payroll2/x.md", "docs://payroll/", False),
        ("files://payroll/x.md", "docs://payroll/", False),
        ("docs://team/Inner/x.md", "docs://team/inner/", False),
        ("docs://payroll", "docs://payroll/sub/", False),
    ],
)
def test_g3_an_address_is_in_a_folder_however_it_is_written(uri: str, folder: str, fits: bool) -> None:
    folders = {one for form in forms_of(uri) for one in form.folders()}
    assert (not folders.isdisjoint(forms_of(folder))) is fits
