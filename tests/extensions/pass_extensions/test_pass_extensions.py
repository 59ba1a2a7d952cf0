"""Extensions that the bridge does not know pass between clients and servers that both declare them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.pass_extensions import lamp_server
from tests.extensions.pass_extensions.lamp_server import LAMPS, ROOM
from tests.interaction.raw_client import RawClient, raw_client

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, load_toolset
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.policy import Policy

pytestmark = pytest.mark.anyio
ERAS = ("legacy", "modern")
MINE = {"extensions": {LAMPS: {"mine": 1}}, "experimental": {ROOM: {}}}


@pytest.fixture(params=ERAS)
def client_era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=ERAS)
def server_era(request: pytest.FixtureRequest) -> str:
    return request.param


def command(era: str, name: str) -> list[str]:
    return [sys.executable, lamp_server.__file__, era, name]


def mounted(era: str, *names: str) -> Toolset:
    mounts = [RemoteToolset(command(era, name), name=name).prefixed(name) for name in names]
    return Toolset(*mounts, name="hub")


@asynccontextmanager
async def bridged(
    tools: Toolset, era: str, capabilities: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[RawClient]:
    with anyio.fail_after(60):
        async with ToolsetServer(tools, keep=False, **options) as server:
            await server.settled()
            async with raw_client(server, era, MINE if capabilities is None else capabilities) as client:
                yield client


async def declared(client: RawClient) -> dict[str, Any]:
    """What the server says of its extensions, at the handshake."""
    said = client.welcome or await client.ask("server/discover")
    found: dict[str, Any] = said["capabilities"]
    servers = {one["name"]: one for one in said.get("_meta", {}).get("mcp-toolset/servers", ())}
    return {**{kind: found.get(kind, {}) for kind in ("extensions", "experimental")}, "servers": servers}


async def test_u88_g5_an_extension_of_both_sides_is_declared_to_both(
    client_era: str, server_era: str
) -> None:
    async with bridged(mounted(server_era, "up"), client_era) as client:
        said = await declared(client)
        assert said["extensions"][LAMPS] == {"of": "up", "most": 9} and said["experimental"] == {
            ROOM: {"big": True}
        }
        assert said["servers"]["up"]["extensions"] == {LAMPS: {"of": "up", "most": 9}}
        told = await client.ask("com.example/lamps/told")
        assert told["of"] == "up" and told["declared"]["extensions"][LAMPS] == {"mine": 1}
        assert told["declared"]["experimental"] == {ROOM: {}}


async def test_g5_results_errors_and_meta_cross_as_they_are(client_era: str, server_era: str) -> None:
    async with bridged(mounted(server_era, "up"), client_era) as client:
        glow = await client.ask("com.example/lamps/glow")
        assert glow["_meta"]["com.example/lamps"] == {"lit": 1} and glow["content"][0]["text"] == "ok"
        called = await client.ask("tools/call", name="up_glow", arguments={})
        assert called["_meta"]["com.example/lamps"] == {"lit": 1}
        failed = (await client.ask("com.example/lamps/broken", lamp=4))["error"]
        assert failed == {"code": -31007, "message": "no bulb", "data": {"lamp": 4}}


async def test_u88_g5_notifications_cross_both_ways(client_era: str, server_era: str) -> None:
    async with bridged(mounted(server_era, "up"), client_era) as client:
        await client.begin("com.example/lamps/glow")
        assert await client.told("notifications/com.example/lamps/glowing") == {"of": "up"}
        await client.send(method="notifications/com.example/lamps/moved", params=moved(client, "hall"))
        for _ in range(100):
            if (await client.ask("com.example/lamps/told"))["told"] == ["hall"]:
                return
        raise AssertionError("the notification has not arrived")


def moved(client: RawClient, where: str, **meta: Any) -> dict[str, Any]:
    able = (
        {"io.modelcontextprotocol/clientCapabilities": client.capabilities} if client.era == "modern" else {}
    )
    version = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"} if client.era == "modern" else {}
    return {"where": where, "_meta": {**version, **able, **meta}}


async def test_u88_g5_a_server_s_own_request_reaches_the_client_of_the_call(
    client_era: str, server_era: str
) -> None:
    async with bridged(mounted(server_era, "up"), client_era) as client:
        number = await client.begin("com.example/lamps/ask")
        if client_era == "legacy":
            asked = await client.until(
                lambda message: message.get("method") == "com.example/lamps/brightness"
            )
            assert asked["params"]["lamp"] == 1
            await client.send(id=asked["id"], result={"brightness": 7})
            answer = await client.until(lambda message: message.get("id") == number and "result" in message)
            assert answer["result"]["brightness"] == 7
            return
        answer = (await client.until(lambda message: message.get("id") == number))["result"]
        assert answer["resultType"] == "input_required"
        ((key, asked),) = answer["inputRequests"].items()
        assert asked["method"] == "com.example/lamps/brightness" and asked["params"]["lamp"] == 1
        again = {"inputResponses": {key: {"brightness": 7}}, "requestState": answer["requestState"]}
        assert (await client.ask("com.example/lamps/ask", **again))["brightness"] == 7


async def test_g5_what_one_side_alone_declares_does_not_pass(client_era: str, server_era: str) -> None:
    async with bridged(
        mounted(server_era, "up"), client_era, {"extensions": {"org.other/own": {}}}
    ) as client:
        said = await declared(client)
        # A client learns what it could declare.
        assert LAMPS in said["extensions"] and ROOM in said["experimental"]
        assert "org.other/own" not in said["extensions"]
        assert (await client.ask("com.example/lamps/told"))["error"]["code"] == -32601


async def test_g5_a_client_with_an_extension_is_told_of_servers_that_are_still_starting(
    client_era: str,
) -> None:
    with anyio.fail_after(60):
        server = ToolsetServer(mounted("modern", "up"), keep=False)
        async with server.opened(), raw_client(server, client_era, MINE) as client:
            assert LAMPS in (await declared(client))["extensions"]
            assert (await client.ask("com.example/lamps/told"))["of"] == "up"


async def test_g5_extensions_pass_through_two_bridges(client_era: str, server_era: str) -> None:
    async with ToolsetServer(mounted(server_era, "lamp"), keep=False) as inner:
        await inner.settled()
        hub = Toolset(RemoteToolset(inner, name="hub").prefixed("hub"))
        async with bridged(hub, client_era) as client:
            assert LAMPS in (await declared(client))["extensions"]
            told = await client.ask("com.example/lamps/told")
            assert told["of"] == "lamp" and told["declared"]["extensions"][LAMPS] == {"mine": 1}


async def test_g5_of_two_servers_with_one_extension_a_request_names_its_own(
    client_era: str, server_era: str
) -> None:
    async with bridged(mounted(server_era, "east", "west"), client_era) as client:
        said = await declared(client)
        # Only what both say is said of both together.
        assert said["extensions"][LAMPS] == {"most": 9}
        assert {name: one["extensions"][LAMPS]["of"] for name, one in said["servers"].items()} == {
            "east": "east",
            "west": "west",
        }
        refused = (await client.ask("com.example/lamps/told"))["error"]
        assert refused["code"] == -32602 and "east or west" in refused["message"]
        assert "mcp-toolset/server" in refused["message"]
        for name in ("east", "west"):
            assert (await client.ask("com.example/lamps/told", _meta={"mcp-toolset/server": name}))[
                "of"
            ] == name
        wrong = (await client.ask("com.example/lamps/told", _meta={"mcp-toolset/server": "north"}))["error"]
        assert wrong["code"] == -32602 and "east, west" in wrong["message"]


@pytest.mark.parametrize(
    "method",
    [
        *("tools/own", "tasks/get", "sampling/createMessage", "notifications/x", "roots/list"),
        *("Tools/list", "rpc.discover", "io.modelcontextprotocol/told"),
    ],
)
async def test_g5_a_method_that_mcp_has_or_keeps_never_passes(method: str, client_era: str) -> None:
    async with bridged(mounted("modern", "up"), client_era) as client:
        refused = (await client.ask(method))["error"]
        assert "no bulb" not in refused["message"] and "up:" not in refused["message"]


ADMIN = "com.other/admin"
BOTH = {"extensions": {LAMPS: {}, ADMIN: {}}}
FOREIGN = [
    *("admin/reset", "com.other/admin/reset", "com.other/admin", "com.other/more", "foo/bar", "reset"),
    *(
        "tools.call",
        " tools/call",
        "tools\u200b/call",
        "lamps /on",
        "l\u0430mps/on",
        "lamps//on",
        "lamps/" + "x" * 300,
    ),
]
MALFORMED = [one for one in FOREIGN if one not in ("foo/bar", "reset")]


async def reached(client: RawClient, methods: list[str]) -> list[str]:
    """Those of some methods that the server got, as requests or as notifications."""
    for method in methods:
        await client.ask(method)
        await client.send(method=f"notifications/{method}", params=moved(client, "x"))
    await client.send(method="notifications/com.example/lamps/moved", params=moved(client, "end"))
    for _ in range(100):
        told = await client.ask("com.example/lamps/told")
        if "end" in told["told"]:
            return [one for one in told["heard"] if one.removeprefix("notifications/") in methods]
    raise AssertionError("the last notification has not arrived")


# "A list names what passes, and nothing else does": an extension of both sides that the list does not name
# has methods too, and a name may be of no extension at all.
@pytest.mark.parametrize("place", ["toolset", "entry", "policy"])
@pytest.mark.needs("approvals")
async def test_g5_only_methods_of_what_a_list_names_pass(
    tmp_path: Path, client_era: str, server_era: str, place: str
) -> None:
    program, *arguments = [*command(server_era, "up"), ADMIN]
    limits = {"pass_extensions": ["com.example/*"]}
    toolset = {} if place == "entry" else limits
    toolset |= {"permissions": {"deny": ["up_danger"]}} if place == "policy" else {}
    entry = {"command": program, "args": arguments, **(limits if place == "entry" else {})}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"toolset": toolset, "mcpServers": {"up": entry}}))
    async with bridged(load_toolset(file), client_era, BOTH) as client:
        assert ADMIN not in (await declared(client))["extensions"]
        assert await reached(client, FOREIGN) == []
        named = await client.ask("com.other/admin/reset", _meta={"mcp-toolset/server": "up"})
        assert named["error"]["code"] == -32601
        assert await reached(client, ["lamps/on"]) == ["lamps/on", "notifications/lamps/on"]


# Without a list a method may have any name, but not that of another extension, of another vendor, or one
# that looks like another name.
async def test_g5_without_a_list_no_method_of_an_extension_of_one_side_passes(
    client_era: str, server_era: str
) -> None:
    mount = RemoteToolset([*command(server_era, "up"), ADMIN], name="up").prefixed("up")
    async with bridged(Toolset(mount, name="hub"), client_era, {"extensions": {LAMPS: {}}}) as client:
        assert await reached(client, MALFORMED) == []
        free = ["foo/bar", "com.example/other"]
        assert await reached(client, free) == [each for one in free for each in (one, f"notifications/{one}")]


async def test_g5_a_server_asks_a_client_by_no_method_that_a_list_does_not_name() -> None:
    mount = RemoteToolset([*command("legacy", "up"), ADMIN], name="up").prefixed("up")
    tools = Toolset(mount, name="hub")
    async with bridged(tools, "legacy", BOTH, pass_extensions=["com.example/*"]) as client:
        for method in ("admin/reset", "com.other/admin/reset", "foo/bar"):
            answer = await client.ask("com.example/lamps/asks", by=method)
            assert answer["refused"] == -32601


@pytest.mark.needs("approvals")
async def test_g5_behind_a_policy_only_what_is_named_passes(client_era: str) -> None:
    for names, passes in ((None, False), (["com.example/*"], True), (["org.other/*"], False)):
        policy = Policy(deny=["delete_*"])
        async with bridged(
            mounted("modern", "up"), client_era, policy=policy, pass_extensions=names
        ) as client:
            answer = await client.ask("com.example/lamps/told")
            assert ("told" in answer) is passes


async def test_g5_a_server_that_a_policy_hides_gets_nothing(client_era: str) -> None:
    policy = Policy(deny=["west_*"])
    tools = mounted("modern", "east", "west")
    async with bridged(tools, client_era, policy=policy, pass_extensions=True) as client:
        said = await declared(client)
        assert said["extensions"][LAMPS]["of"] == "east" and [*said["servers"]] == ["east"]
        assert (await client.ask("com.example/lamps/told"))["of"] == "east"
        refused = (await client.ask("com.example/lamps/told", _meta={"mcp-toolset/server": "west"}))["error"]
        assert refused["message"].endswith("you declare; east has")


@pytest.mark.parametrize(
    ("toolset", "entry", "passes"),
    [
        ({}, {}, True),
        ({"pass_extensions": False}, {}, False),
        ({}, {"pass_extensions": False}, False),
        ({"pass_extensions": False}, {"pass_extensions": True}, False),
        ({"pass_extensions": ["org.other/*"]}, {}, False),
        ({"pass_extensions": ["org.other/*"]}, {"pass_extensions": [LAMPS]}, True),
    ],
)
async def test_g5_a_file_says_what_passes(
    tmp_path: Path, toolset: dict[str, Any], entry: dict[str, Any], passes: bool
) -> None:
    program, *arguments = command("legacy", "up")
    file = tmp_path / "mcp.json"
    server = {"command": program, "args": arguments, **entry}
    file.write_text(json.dumps({"toolset": toolset, "mcpServers": {"up": server}}))
    async with bridged(load_toolset(file), "modern") as client:
        assert (LAMPS in (await declared(client))["extensions"]) is passes
        assert ("told" in await client.ask("com.example/lamps/told")) is passes


@pytest.mark.parametrize("before", [[LAMPS], True, None])
async def test_g5_a_file_that_passes_nothing_any_more_holds_at_once(
    tmp_path: Path, client_era: str, before: object
) -> None:
    program, *arguments = command("legacy", "up")
    file = tmp_path / "mcp.json"

    def write(passes: object) -> None:
        toolset = {} if passes is None else {"pass_extensions": passes}
        entry = {"command": program, "args": arguments}
        file.write_text(json.dumps({"toolset": toolset, "mcpServers": {"up": entry}}))

    write(before)
    with anyio.fail_after(60):
        async with ToolsetServer(load_toolset(file), keep=False) as server:
            await server.settled()
            async with raw_client(server, client_era, MINE) as client:
                assert "told" in await client.ask("com.example/lamps/told")
                write(False)
                assert "pass_extensions" in str(await server.reload(timeout=30))
                for method in ("com.example/lamps/told", "com.other/admin/reset"):
                    assert "told" not in await client.ask(method)
                write([LAMPS])
                await server.reload(timeout=30)
                assert "told" in await client.ask("com.example/lamps/told")


NO_PATTERNS = [
    "!com.example/*",
    "",
    "com.example/{a,b}",
    "com.example/a,com.b/c",
    "com.example/.*",
    "a b",
    "[x",
]


@pytest.mark.parametrize("pattern", NO_PATTERNS)
def test_g5_a_pattern_in_another_notation_is_a_mistake(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="pass_extensions"):
        ToolsetServer(mounted("modern", "up"), keep=False, pass_extensions=["*", pattern])
    for toolset, entry in (
        ({"pass_extensions": [pattern]}, {}),
        ({"pass_extensions": {"names": [pattern]}}, {}),
        ({}, {"pass_extensions": [pattern]}),
    ):
        assert "pass_extensions" in fault_of_file(tmp_path / "mcp.json", toolset, entry)


@pytest.mark.parametrize(
    ("toolset", "entry"),
    [
        ({"pass_extensions": None}, {}),
        ({"pass_extensions": {"names": None}}, {}),
        ({}, {"pass_extensions": None}),
    ],
)
def test_g5_null_is_a_mistake_and_passes_nothing(
    toolset: dict[str, Any], entry: dict[str, Any], tmp_path: Path
) -> None:
    assert "is null" in fault_of_file(tmp_path / "mcp.json", toolset, entry)


@pytest.mark.parametrize("said", [5, {LAMPS}, [5], LAMPS])
def test_g5_a_program_is_told_that_a_value_is_no_list_of_identifiers(said: Any) -> None:
    with pytest.raises(DefinitionError, match="pass_extensions"):
        ToolsetServer(mounted("modern", "up"), keep=False, pass_extensions=said)


def fault_of_file(file: Path, toolset: dict[str, Any], entry: dict[str, Any]) -> str:
    """Why a file, or the entry in it, is refused; empty if it is not."""
    file.write_text(json.dumps({"toolset": toolset, "mcpServers": {"up": {"command": "true", **entry}}}))
    try:
        return "".join(one.fault for one in load_config(file).servers)
    except ConfigError as fault:
        return str(fault)
