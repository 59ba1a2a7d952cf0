"""Policies, limits and the journal select tools by their tags."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError

from mcp_toolset import Toolset, ToolsetServer, load_toolset, tool
from mcp_toolset.errors import DefinitionError, UnknownNameError
from mcp_toolset.policy import Policy
from mcp_toolset.testing import Client


@tool(tags=["money", "eu"])
def pay() -> str:
    """Pay."""
    return "paid"


@tool
def read() -> str:
    """Read."""
    return "read"


@tool(name="money")
def named_money() -> str:
    """Tell a name that is no tag."""
    return "name"


TOOLS = Toolset(pay, read, named_money)


async def names(server: ToolsetServer) -> list[str]:
    with anyio.fail_after(30):
        async with Client(server) as client:
            return [one.name for one in (await client.list_tools()).tools]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (Policy(deny=["tag:money"]), ["read", "money"]),
        (Policy(deny=["tag:mon*"]), ["read", "money"]),
        (Policy(allow=["tag:eu"]), ["pay"]),
        (Policy(deny=["money"]), ["pay", "read"]),
    ],
)
async def test_u107_a_policy_selects_tools_by_tags(policy: Policy, left: list[str]):
    assert await names(ToolsetServer(TOOLS, policy=policy)) == left


@pytest.mark.anyio
async def test_u107_a_denied_tag_makes_the_tool_unknown_to_a_call():
    with anyio.fail_after(30):
        async with Client(ToolsetServer(TOOLS, policy=Policy(deny=["tag:money"]))) as client:
            with pytest.raises(MCPError, match="nknown tool"):
                await client.call_tool("pay")
            read: Any = await client.call_tool("read")
            assert read.content[0].text == "read"


@pytest.mark.anyio
async def test_u107_a_tag_of_the_toolset_counts_wherever_it_is_nested():
    tools = Toolset(Toolset(read).tagged("money").prefixed("x"), named_money)
    assert await names(ToolsetServer(tools, policy=Policy(deny=["tag:money"]))) == ["money"]


@pytest.mark.anyio
async def test_u107_a_configuration_selects_tools_by_tags(tmp_path: Path):
    program = tmp_path / "app.py"
    program.write_text(
        "from mcp_toolset import serve, tool\n\n\n"
        "@tool\ndef read() -> str:\n    return 'read'\n\n\n"
        "serve(read)\n"
    )
    file = tmp_path / "mcp.json"
    entry = {"command": sys.executable, "args": [str(program)]}

    async def listed(permissions: dict[str, list[str]]) -> list[str]:
        file.write_text(json.dumps({"mcpServers": {"app": entry}, "toolset": {"permissions": permissions}}))
        return await names(ToolsetServer(Toolset(load_toolset(file).tagged("money"), named_money)))

    assert await listed({"deny": ["tag:money"]}) == ["money"]
    assert await listed({"deny": ["tag:other"]}) == ["app_read", "money"]


@pytest.mark.needs("limits")
@pytest.mark.anyio
async def test_u107_limits_select_tools_by_tags():
    from mcp_toolset.policy import Limits

    with anyio.fail_after(30):
        async with Client(ToolsetServer(TOOLS, limits={"tag:money": Limits(calls="1/day")})) as client:
            assert [(await client.call_tool("pay")).is_error for _ in range(2)] == [False, True]
            assert [(await client.call_tool("read")).is_error for _ in range(2)] == [False, False]


def test_u107_a_tag_that_names_nothing_or_is_misspelt_is_an_error():
    with pytest.raises(DefinitionError, match="names no tool"):
        Policy(deny=["tag:"])
    with pytest.raises(DefinitionError, match="did you mean `tag:money`"):
        Policy(deny=["tags:money"])


@pytest.mark.anyio
async def test_u107_a_pattern_of_tags_that_no_tool_has_is_an_error():
    with pytest.raises(UnknownNameError, match="tag:nothing") as told:
        await names(ToolsetServer(TOOLS, policy=Policy(deny=["tag:nothing", "tag:money"])))
    assert "tag:money" not in str(told.value)
