"""Each tool's own places for hooks, in one toolset and in nested ones, served and in rounds alike (L16)."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_toolset import HookSet, RunNormally, ToolCall, ToolDefinition, Toolset, ToolsetServer, tool
from mcp_toolset.rounds import ToolRound

pytestmark = pytest.mark.anyio


@tool
async def read(path: str) -> str:
    """Read a file."""
    return path


@tool
async def write(path: str) -> str:
    """Write a file."""
    return path


class Files(Toolset):
    read = read
    write = write


class Work(Toolset):
    files = Files().prefixed("files")
    read = read


WORK = Work()
NAMES = ["files_read", "files_write", "read"]


def marking(hooks: HookSet, selector: Any, mark: str) -> HookSet:
    @hooks.execution(selector)
    async def marked(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally({"path": f"{input['path']}{mark}"})

    @hooks.description(selector)
    async def told(definition: ToolDefinition) -> str | None:
        return f"{definition.description} ({mark})"

    return hooks


async def served(hooks: HookSet) -> dict[str, tuple[str, str]]:
    async with ToolsetServer(WORK, hooks=hooks) as server:
        said = {shown["name"]: shown["description"] for shown in server.tools()}
        return {name: ((await server.call_tool(name, {"path": ""})).text, said[name]) for name in NAMES}


async def owned(hooks: HookSet) -> dict[str, str]:
    calls = [ToolCall(name, {"path": ""}, name) for name in NAMES]
    plan = await ToolRound.from_calls(calls, WORK.view()).apply(hooks)
    return {done.name: done.result.text for done in (await plan.run_pending()).results}


@pytest.mark.parametrize("place", NAMES)
async def test_l16_a_hook_in_the_place_of_one_tool_is_no_other_tool_s(place: str):
    hooks = marking(HookSet(), place, "!")
    found = await served(hooks)
    assert [name for name, (ran, _) in found.items() if ran == "!"] == [place]
    assert [name for name, (_, said) in found.items() if said.endswith("(!)")] == [place]
    assert [name for name, ran in (await owned(hooks)).items() if ran == "!"] == [place]


async def test_l16_a_nested_set_s_hooks_stay_those_of_its_tools_and_none_of_the_outer():
    inner = marking(marking(HookSet(), "read", "r"), "write", "w")
    hooks = marking(HookSet(), "read", "outer").nested("files", inner)
    assert await served(hooks) == {
        "files_read": ("r", "Read a file. (r)"),
        "files_write": ("w", "Write a file. (w)"),
        "read": ("outer", "Read a file. (outer)"),
    }
    assert await owned(hooks) == {"files_read": "r", "files_write": "w", "read": "outer"}


async def test_l16_l17_l26_execution_hooks_follow_one_another_and_the_last_description_stands():
    hooks = marking(marking(HookSet(), "read", "1"), "read", "2")
    assert (await served(hooks))["read"] == ("12", "Read a file. (2)")
    assert (await owned(hooks))["read"] == "12"


async def test_l16_a_tool_itself_names_its_place_wherever_it_is_nested():
    hooks = marking(HookSet(), Files.write, "!")
    assert [name for name, (ran, _) in (await served(hooks)).items() if ran] == ["files_write"]
