"""The names of a hub's tools: from the file and their own server, never from who else is there (H23, F16)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.catalog.mounts import Mount
from tests.faults.harness import hostile, tool, until
from tests.support.config import config_of

from mcp_toolset import ToolRegistry, ToolsetServer, load_toolset
from mcp_toolset.catalog.pins.lockfile import LockFile
from mcp_toolset.config.models import ServerConfig
from mcp_toolset.hub import toolset as hub
from mcp_toolset.hub import toolset as mounts
from mcp_toolset.serving.serve import server_of

Listed = dict[str, list[str]]


@pytest.fixture(autouse=True)
def listed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Listed:
    """What the servers list: here lists stand for servers, since only their names matter."""
    lists: Listed = {}

    def remote(server: ServerConfig, lock: LockFile, path: Path | None = None) -> Mount:
        return Mount(server.name, *lists[server.name])

    if "real" not in request.node.name:
        for module in (hub, mounts):
            monkeypatch.setattr(module, "mounted", remote)
    return lists


def served(servers: dict[str, Any], lists: Listed, **section: Any) -> dict[str, str]:
    """What each public name leads to, as `server/tool`."""
    entries = {name: {"command": "x", **options} for name, options in servers.items()}
    config = config_of({"mcpServers": entries, "toolset": section}, source="/mcp.json", environ={})
    registry = ToolRegistry(load_toolset(config), client_prefix=config.client_prefix)
    return {one.name: f"{one.source}/{one.definition.name}" for one in registry.bindings()}


def faults(servers: dict[str, Any]) -> list[str]:
    """Why servers are misconfigured, in the order of the file."""
    entries = {name: {"command": "x", **options} for name, options in servers.items()}
    config = config_of({"mcpServers": entries}, source="/mcp.json", environ={})
    return [one.fault for one in load_toolset(config).config.misconfigured]


def test_h23_tools_carry_the_name_of_their_server_and_no_prefix_twice(listed: Listed) -> None:
    listed |= {"git": ["git_log", "status"], "my_time": ["now"], "a b": ["x"]}
    names = served({"git": {}, "my_time": {}, "a b": {}}, listed)
    assert list(names)[:3] == ["git_log", "git_status", "my_time__now"]
    assert re.fullmatch(r"a_b_[0-9a-f]{7}__x", list(names)[3])


def test_h23_a_server_that_lists_a_name_with_and_without_its_own_keeps_both(listed: Listed) -> None:
    for order in (["log", "git_log"], ["git_log", "log"]):
        listed["git"] = order
        names = served({"git": {}}, listed)
        assert names.pop("git_log") == "git/git_log"
        assert list(names.values()) == ["git/log"]


def test_h23_f16_a_b_c_is_told_from_a_b_c(listed: Listed) -> None:
    listed |= {"a": ["b_c"], "a_b": ["c"]}
    assert served({"a": {}, "a_b": {}}, listed) == {"a_b_c": "a/b_c", "a_b__c": "a_b/c"}


def test_h23_names_in_the_file_go_before_all_others(listed: Listed) -> None:
    listed |= {"a": ["y"], "b": ["x", "z"]}
    own = {"a": {"names": {"y": "b_x"}}}
    names = served({"b": {}, **own}, listed)
    assert names["b_x"] == "a/y" and names["b_z"] == "b/z"
    (other,) = (name for name, tool in names.items() if tool == "b/x")
    # The same name while the tool that has been given `b_x` is away.
    listed["a"] = []
    assert served({"b": {}, **own}, listed) == {other: "b/x", "b_z": "b/z"}


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        (
            {"a": {"prefix": "x"}, "b": {"prefix": "x_"}},
            "/mcp.json: servers 'a' and 'b' have the same prefix 'x'; give one",
        ),
        (
            {"a": {"names": {"t": "same"}}, "b": {"names": {"u": "same"}}},
            "'t' of server 'a' and 'u' of server 'b' are both to be named 'same'",
        ),
        (
            {"a": {"names": {"t": "search_tools"}}},
            "the deferred catalog and 't' of server 'a' are both to be named 'search_tools'",
        ),
    ],
)
def test_h9_what_the_file_names_twice_misconfigures_the_second_and_tells_both_places(
    servers: dict[str, Any], message: str, listed: Listed
) -> None:
    listed |= {"a": [], "b": []}
    (fault,) = faults(servers)
    assert re.search(message, fault)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": {"t": "with space"}}, "'t' of server 'a': a tool cannot be served as 'with space'"),
        ({"prefix": "a.b"}, "/mcp.json: server 'a': prefix 'a.b' cannot start"),
    ],
)
def test_h9_a_name_that_no_client_takes_misconfigures_its_server(
    options: dict[str, Any], message: str, listed: Listed
) -> None:
    listed["a"] = []
    (fault,) = faults({"a": options})
    assert re.search(message, fault)


def test_h23_a_disabled_server_takes_no_names(listed: Listed) -> None:
    listed["b"] = ["t"]
    servers = {"a": {"prefix": "b", "disabled": True, "names": {"x": "b_t"}}, "b": {}}
    assert served(servers, listed) == {"b_t": "b/t"}


def test_h23_the_file_says_what_a_client_puts_before_names(listed: Listed) -> None:
    listed["git"] = ["log", "x" * 50]
    names = list(served({"git": {}}, listed, client_prefix="mcp__hub__"))
    assert names[0] == "git_log" and len("mcp__hub__" + names[1]) == 64


tools = st.lists(st.text("ab_-.", min_size=1, max_size=5) | st.text(min_size=1), unique=True, max_size=5)
hubs = st.dictionaries(st.text("ab_-", min_size=1, max_size=4) | st.text(min_size=1).filter(str.strip), tools)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(lists=hubs, data=st.data())
def test_h23_what_a_server_adds_does_not_depend_on_who_else_is_there(
    lists: Listed, data: st.DataObject, listed: Listed
) -> None:
    listed.clear()
    listed.update(lists)
    everything = served({name: {} for name in lists}, listed)
    assert sorted(everything.values()) == sorted(f"{one}/{tool}" for one in lists for tool in lists[one])
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in everything)
    some = data.draw(st.permutations(list(lists)))[: data.draw(st.integers(0, len(lists)))]
    part = served({name: {} for name in some}, listed)
    assert part == {name: tool for name, tool in everything.items() if tool in set(part.values())}


@pytest.mark.anyio
async def test_h23_f3_names_of_real_servers_outlive_their_tools_and_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    lists = {"a": ["b_c", "change"], "a_b": ["c"]}
    commands = {name: hostile(tools=[tool(one) for one in tools]) for name, tools in lists.items()}
    entries = {name: {"command": line[0], "args": line[1:]} for name, line in commands.items()}
    file.write_text(json.dumps({"mcpServers": entries}))

    def names(server: ToolsetServer) -> list[str]:
        return [shown["name"] for shown in server.tools()]

    state = tmp_path / "state.json"
    async with server_of(file, state=state) as server:
        assert names(server) == ["a_b_c", "a_change", "a_b__c"]
        await server.choose({"a_b_c": False})
        # `change` makes the server list `other` and `echo` instead.
        await server.call_tool("a_change", {})
        await until(lambda: names(server) == ["a_other", "a_echo", "a_b__c"])
        assert ("a", "b_c") in server.registry.orphaned
    async with server_of(file, state=state) as server:
        assert names(server) == ["a_change", "a_b__c"]
