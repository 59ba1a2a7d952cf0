"""A rule of a file that means a tool of a real server is applied, or named as one that fits nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.configured import Folder

from mcp_toolset.errors import UnknownToolError

pytestmark = pytest.mark.anyio

DENYING: dict[str, dict[str, Any]] = {
    "the tool's own name": {"deny": ["destroy"]},
    "server and tool": {"deny": ["a/destroy", "b/destroy"]},
    "a hint and the own name": {"deny": ["destructive:destroy"]},
    "the own name beside an allow for all": {"deny": ["destroy"], "allow": ["*"]},
    "an allow list without it": {"allow": ["*/look"]},
    "an ask by the own name beside an allow for all": {"ask": ["destroy"], "allow": ["*"]},
}


@pytest.mark.parametrize("name", DENYING)
async def test_u73_a_rule_by_any_name_of_a_tool_applies_at_every_server(name: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write(
        {"a": folder.entry("destroy", "look"), "b": folder.entry("destroy", "look")},
        permissions=DENYING[name],
        start="eager",
    )
    async with folder.server() as server:
        for tool in ("a_destroy", "b_destroy"):
            if name.startswith("an ask"):
                result = await server.call_tool(tool)
                assert result.is_error and "needs an approval" in result.text
            else:
                with pytest.raises(UnknownToolError):
                    await server.call_tool(tool)


async def test_u73_a_rule_for_a_tool_that_a_server_does_not_list_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write({"a": folder.entry("look")}, permissions={"deny": ["a/destory", "wipe"]}, start="eager")
    async with folder.server() as server:
        assert sorted(one.name for one in server.unbound()) == ["a/destory", "wipe"]


@pytest.mark.needs("limits")
async def test_u73_a_limit_by_a_tools_own_name_is_named_with_the_name_that_it_needs(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write(
        {"a": {**folder.entry("look"), "limits": {"lok": {"rate": "1/min"}, "look": {"rate": "9/min"}}}},
        limits={"look": {"rate": "1/min"}, "*": {"rate": "5/min"}, "a_look": {"calls": 3}},
        start="eager",
    )
    async with folder.server() as server:
        assert {(one.where, one.name, one.near) for one in server.unbound()} == {
            ("limits", "look", ("a_look",)),
            ("a.limits", "lok", ()),
        }


ODD = ("destroy.all", "déstroy", "destroy[all]", "what?")


@pytest.mark.parametrize("key", ["exclude", "excludeTools", "disabledTools"])
async def test_u73_tools_are_left_out_by_the_names_that_their_server_gives_them(
    key: str, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    folder.write({"a": folder.entry(*ODD, "look") | {key: list(ODD)}}, start="eager")
    async with folder.server() as server:
        assert [shown["name"] for shown in server.tools()] == ["a_look"]
        assert not server.unbound()


PATTERNS = {"déstroy": "dé*", "ns:destroy": "ns?destroy", "wipe all": "wipe?all", "a*b": "*b", "x.y": "?.y"}


async def test_u73_a_pattern_of_exclude_fits_the_name_that_the_server_gives(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    entry = folder.entry(*PATTERNS, "look") | {"exclude": list(PATTERNS.values())}
    folder.write({"a": entry}, start="eager")
    async with folder.server() as server:
        assert [shown["name"] for shown in server.tools()] == ["a_look"]
        assert not server.unbound()


@pytest.mark.parametrize("pattern", ["files[1]/*", "files[1]/destroy", "destructive:files[1]/*"])
async def test_u73_a_rule_names_a_server_with_brackets_as_the_file_does(pattern: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write({"files[1]": folder.entry("destroy")}, permissions={"deny": [pattern]}, start="eager")
    async with folder.server() as server:
        assert not server.tools() and not server.unbound()


@pytest.mark.needs("journal")
async def test_u73_a_pattern_of_the_journal_that_fits_no_tool_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write(
        {"a": folder.entry("destroy") | {"journal": {"*": "off", "destory": "once"}}},
        journal={"path": "calls.sqlite3", "tools": {"a_destroy": "once", "a/Destroy": "once"}},
        start="eager",
    )
    async with folder.server() as server:
        named = sorted((one.where, one.name) for one in server.unbound())
        assert named == [("a.journal", "destory"), ("journal", "a/Destroy")]


@pytest.mark.needs("journal")
async def test_u73_a_tool_of_idempotency_that_fits_no_tool_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    wrong = ("destory", "a_destroy", "Destroy", "des_*")
    keys = dict.fromkeys((*wrong, "destroy", "*", "destr*"), "_meta.key")
    folder.write(
        {"a": folder.entry("destroy") | {"idempotency": keys}},
        journal={"path": "calls.sqlite3"},
        start="eager",
    )
    async with folder.server() as server:
        named = sorted((one.where, one.name) for one in server.unbound())
        assert named == sorted(("a.idempotency", one) for one in wrong)
