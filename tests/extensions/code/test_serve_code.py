"""Code mode from the command line and from configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.config import config_of
from tests.support.orders import OFFICE

from mcp_toolset import ToolsetServer, load_toolset
from mcp_toolset.cli.main import cli
from mcp_toolset.cli.mount import MountOptions, mount, own_bindings
from mcp_toolset.cli.target import ConfigFile
from mcp_toolset.errors import ConfigError

pytestmark = pytest.mark.anyio


def written(path: Path, **section: Any) -> Path:
    file = path / "mcp.json"
    servers = {"up": {"command": "no-such-program"}}
    file.write_text(json.dumps({"toolset": section, "mcpServers": servers}))
    return file


def names(server: ToolsetServer) -> list[str]:
    return [binding.name for binding in server.bindings()]


async def test_m6_serve_with_code_has_the_two_tools(tmp_path: Path) -> None:
    target = ConfigFile(str(written(tmp_path)))
    options = MountOptions(deferred=True, extensions={"code": True}, afresh=True)
    server = mount(target, options)
    async with server:
        assert names(server)[-2:] == ["run_code", "run_read_only_code"]
        assert own_bindings(server) == []
    without = mount(target, MountOptions(deferred=True, afresh=True))
    async with without:
        assert "run_code" not in names(without)


def test_m6_code_without_search_is_an_error_that_says_what_to_add(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["serve", str(written(tmp_path)), "--code"])
    assert result.exit_code == 2 and "add --deferred" in result.output


async def test_m6_a_configuration_turns_it_on_with_limits(tmp_path: Path) -> None:
    file = written(tmp_path, deferred=True, code={"max_compute_seconds": 5, "max_value_bytes": 100})
    server = ToolsetServer(load_toolset(file), keep=False)
    async with server:
        assert "run_code" in names(server)
        told = await server.call_tool("run_code", {"code": "list(range(100))", "grants": []})
    assert "`max_value_bytes` of code mode: 100 bytes" in told.text
    plain = ToolsetServer(load_toolset(written(tmp_path, deferred=True, code=False)), keep=False)
    async with plain:
        assert "run_code" not in names(plain)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ({"printed": 5}, "did you mean `max_printed`"),
        ({"max_compute_seconds": 0}, "max_compute_seconds"),
        ({"max_calls": 1.5}, "max_calls"),
        ([5], "code"),
    ],
)
def test_m6_a_limit_that_is_none_is_refused_with_its_place(code: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_of({"toolset": {"code": code}, "mcpServers": {}})


async def test_m6_a_long_value_is_kept_whole_where_long_results_are() -> None:
    server = ToolsetServer(OFFICE.deferred(code=True), large_results=30_000)
    async with server:
        told = await server.call_tool("run_code", {"code": "list(range(9000))", "grants": []})
    assert told.structured["value"][-1] == 8999
