"""One entry of a configuration that cannot be used is that server's state; every other server is served."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import until
from tests.support.config import config_of
from tests.support.configured import BOUND, Folder, names, said

from mcp_toolset.config.models import HubConfig
from mcp_toolset.errors import ConfigError
from mcp_toolset.hub.reload import watching

BAD: dict[str, tuple[Any, str, str]] = {
    "unset variable": ({"command": "x", "args": ["${NOT_SET_HERE}"]}, "args[0]", "set NOT_SET_HERE"),
    "mistyped command": ({"comand": "x"}, "bad.comand", "did you mean `command`?"),
    "wrong type": ({"command": ["x"]}, "bad.command", "write `command` as a string"),
    "no folder": ({"command": "x", "cwd": "not/there"}, "'bad': `cwd`", "create it or correct `cwd`"),
    "prefix": ({"command": "x", "prefix": "a.b"}, "'bad'", "cannot start"),
    "same prefix": ({"command": "x", "prefix": "good"}, "'good' and 'bad'", "another `prefix`"),
    "fixed name": ({"command": "x", "names": {"t": "search_tools"}}, "'bad'", "rename one of them"),
    "forwarding": ({"command": "x", "forward_authorization": True}, "'bad'", "over streamable HTTP"),
    "no entry": ([], "bad", "write it as { … }"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.needs("upstream_access")
@pytest.mark.anyio
async def test_u13_each_bad_entry_is_a_state_with_reason_and_mend(folder: Folder) -> None:
    bad = {f"bad {what}": entry for what, (entry, _, _) in BAD.items() if "prefix" not in what}
    folder.write({**bad, "good": folder.entry("a")})
    with anyio.fail_after(BOUND):
        async with folder.server() as server:
            await server.settled()
            states = {name: status.state for name, status in server.statuses().items()}
            assert states == {**dict.fromkeys(bad, "misconfigured"), "good": "ready"}
            assert (await said(server, "good_a"))[0]
            for name in bad:
                reason = server.statuses()[name].reason
                assert str(folder.config) in reason and BAD[name.removeprefix("bad ")][2] in reason


@pytest.mark.needs("upstream_access")
@pytest.mark.parametrize("what", BAD)
def test_u13_the_reason_names_the_place_and_the_mend(folder: Folder, what: str) -> None:
    entry, place, mend = BAD[what]
    folder.write({"good": folder.entry("a"), "bad": entry})
    toolset = folder.server().configured
    assert toolset is not None
    (bad,) = toolset.config.misconfigured
    assert bad.name == "bad" and place in bad.fault and mend in bad.fault


@pytest.mark.anyio
async def test_u13_a_reload_turns_it_good_and_bad_again(folder: Folder) -> None:
    folder.write({"bad": {"comand": "x"}, "good": folder.entry("a")})
    with anyio.fail_after(2 * BOUND):
        async with folder.server() as server:
            await server.settled()
            before = await said(server, "good_a")
            folder.write({"bad": folder.entry("b"), "good": folder.entry("a")})
            assert (await server.reload(timeout=BOUND)).added == ("bad",)
            assert server.statuses()["bad"].state == "ready"
            assert sorted(names(server)) == ["bad_b", "good_a"]
            folder.write({"bad": {"comand": "x"}, "good": folder.entry("a")})
            report = await server.reload(timeout=BOUND)
            assert report.misconfigured == ("bad",) and "misconfigured bad" in str(report)
            assert server.statuses()["bad"].state == "misconfigured"
            assert await said(server, "good_a") == before


@pytest.mark.anyio
async def test_u13_a_folder_that_is_made_later_is_noticed(folder: Folder) -> None:
    folder.write({"late": {**folder.entry("b"), "cwd": "later"}})
    with anyio.fail_after(BOUND):
        async with folder.server() as server, watching(server, every=0.05):
            assert server.statuses()["late"].state == "misconfigured"
            (folder.path / "later").mkdir()
            await until(lambda: server.statuses()["late"].state == "ready")


def read(entry: dict[str, Any], **outer: Any) -> HubConfig:
    table = {"mcpServers": {"up": {"command": "x", **entry}}, **outer}
    return config_of(table, source="/home/me/mcp.json", environ={})


MISTYPED = {
    "exlude": "exclude",
    "prefx": "prefix",
    "defered": "deferred",
    "timout": "timeout",
    "startTimeout": "start_timeout",
    "env_file": "envFile",
    "Command": "command",
    "evn": "env",
    "headrs": "headers",
    "include-tools": "includeTools",
    "disable": "disabled",
    "alwaysAlow": "alwaysAllow",
}


@pytest.mark.parametrize(("written", "meant"), MISTYPED.items())
def test_u14_a_key_near_a_known_one_is_an_error_of_its_entry(written: str, meant: str) -> None:
    (up,) = read({written: ["x"]}).servers
    assert up.fault == f"/home/me/mcp.json: mcpServers.up.{written}: unknown key; did you mean `{meant}`?"


@pytest.mark.parametrize("key", ["tolset", "Toolset", "mcpServer", "input"])
def test_u14_a_key_near_one_of_the_file_is_an_error(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: unknown key; did you mean"):
        read({}, **{key: {}})


@pytest.mark.parametrize("key", ["defered", "hiden_text", "zzz"])
def test_u14_an_unknown_key_of_our_own_section_is_an_error(key: str) -> None:
    with pytest.raises(ConfigError, match=f"toolset.{key}: unknown option"):
        read({}, toolset={key: 1})


def test_u14_any_other_unknown_key_is_a_warning() -> None:
    config = read({"shoe_size": 1, "weather": 2})
    assert config.servers[0].fault == ""
    (warning,) = config.warnings
    place = "/home/me/mcp.json: mcpServers.up"
    assert warning.startswith(f"{place}: unknown keys are ignored: `shoe_size`, `weather`;")


KNOWN = ["alwaysAllow", "autoApprove", "type", "icon", "trust", "gallery", "_note", "$x", "//"]


def test_u14_keys_of_other_clients_and_comments_are_no_warning() -> None:
    config = read(dict.fromkeys(KNOWN), globalShortcut="Ctrl+Space")
    assert config.warnings == () and config.servers[0].fault == ""


@pytest.mark.anyio
async def test_u14_a_warning_is_told_once(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="mcp_toolset.hub")
    folder.write({"up": {**folder.entry("a"), "shoe_size": 1}})
    with anyio.fail_after(BOUND):
        async with folder.server() as server:
            await server.reload()
            folder.write({"up": {**folder.entry("a"), "shoe_size": 2}})
            await server.reload()
    told = [record.getMessage() for record in caplog.records if "unknown keys" in record.getMessage()]
    assert len(told) == 1 and "`shoe_size`" in told[0]
