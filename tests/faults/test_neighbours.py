"""One mount among others: what it does to the hub by being slow, by its name, or by its tools' names."""

from __future__ import annotations

import anyio
import pytest
from tests.faults.harness import SOON, mount, names, tool, until
from tests.support.bounds import bounds

from mcp_toolset import HookSet, ToolDefinition, Toolset, ToolsetServer
from mcp_toolset import tool as local_tool
from mcp_toolset.errors import NameConflictError
from mcp_toolset.tools.definition import qualified

pytestmark = pytest.mark.anyio


@local_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_f5_opening_does_not_wait_for_a_server_that_never_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, opening=3)
    hung = mount("hung", silent=["server/discover"], start_timeout=600)
    began = anyio.current_time()
    async with ToolsetServer(Toolset(add, mount("up"), hung)) as server:
        assert anyio.current_time() - began < SOON
        await until(lambda: "echo" in names(server))


async def test_f16_a_mounted_search_tools_does_not_stop_a_hub_that_defers() -> None:
    async with ToolsetServer(
        Toolset(mount("a", tools=[tool("search_tools")]), mount("b").deferred())
    ) as server:
        assert len(set(names(server))) == 5


async def test_f16_a_server_that_lists_search_tools_later_does_not_kill_the_hub() -> None:
    # `change` lists "other" and "echo"; the fixed tool is made equal to "other" by a rename
    up = mount("a", tools=[tool("echo"), tool("change")]).renamed({"other": "search_tools"})
    async with ToolsetServer(Toolset(up, mount("b").deferred())) as server:
        await server.call_tool("change", {})
        await until(lambda: len(names(server)) == 6)
        assert not (await server.call_tool("search_tools", {"query": "x"})).is_error


def test_f16_two_mounts_of_one_name_are_refused() -> None:
    with pytest.raises(NameConflictError, match="two mounts are named 'up'"):
        ToolsetServer(Toolset(mount("up").prefixed("a"), mount("up").prefixed("b")))


async def test_f16_a_name_that_a_server_made_to_equal_a_qualified_one_loses_no_tool() -> None:
    # "one" and "two" both list "x"; "one" also lists what its own "x" will be called.
    forged = qualified("one_x", "one\nx")
    one = mount("one", tools=[tool("x"), tool(forged)])
    async with ToolsetServer(Toolset(one, mount("two", tools=[tool("x")]))) as server:
        assert len(names(server)) == len(set(names(server))) == 3


async def test_f39_description_hooks_that_hang_wait_together_not_in_turn() -> None:
    hooks = HookSet(timeout=0.5)

    @hooks.description("*")
    async def asleep(definition: ToolDefinition) -> str | None:
        await anyio.sleep_forever()

    with anyio.fail_after(SOON):
        async with ToolsetServer(
            Toolset(add, mount(tools=[tool(f"t{i}") for i in range(30)])), hooks=hooks
        ) as server:
            assert names(server) == []
