"""A scripted server in place of a mounted one, recorded calls, and the fixtures for pytest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest
from examples.testing import test_scripted as example
from tests.support.configured import text_of

from mcp_toolset import RemoteToolset, ToolResult, Toolset, ToolsetServer, tool
from mcp_toolset.errors import StateError, UnknownToolError
from mcp_toolset.serving.scripted import RecordedCall
from mcp_toolset.testing import CallRecorder, Client, ScriptedServer

pytest_plugins = ["mcp_toolset.serving.pytest_plugin"]
pytestmark = pytest.mark.anyio

BOUND = 60


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


test_e7_the_example_of_the_page_passes = example.test_ann_is_not_deleted


async def test_e7_a_client_of_the_fixture_is_connected_within_a_deadline_and_closed_after_it(
    mcp_client: Callable[..., Awaitable[Client]],
) -> None:
    server = ToolsetServer(Toolset(add))
    with anyio.fail_after(BOUND):
        client = await mcp_client(server, mode="legacy")
    assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
    with pytest.raises(StateError, match="already open"):
        await server.__aenter__()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_e7_answers_come_in_turn_and_the_last_one_stays(mode: str) -> None:
    crm = ScriptedServer("crm", "find", add)
    crm.script("find", "one", {"n": 2}, ToolResult.of_error("quota"), TimeoutError("slow"), "last")
    tools = RemoteToolset(crm, name="crm")
    with anyio.fail_after(BOUND):
        async with Client(ToolsetServer(tools), mode=mode) as client:
            results = [await client.call_tool("find", {"n": n}) for n in range(6)]
            assert [one.is_error for one in results] == [False, False, True, True, False, False]
            texts = [text_of(one) for one in results]
            assert texts[0] == "one" and texts[2] == "quota" and "slow" in texts[3]
            assert texts[4:] == ["last", "last"] and results[1].structured_content == {"n": 2}
            # A tool with a function runs it until an answer is scripted, and keeps its definition.
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
            crm.script("add", {"result": 7})
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 7}
            crm.script("add")
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
            assert (await client.call_tool("add", {"a": "x"})).is_error
    assert crm.calls.calls[-1] == RecordedCall("add", {"a": 1, "b": 2}), "what does not fit never arrives"


async def test_e7_a_call_that_is_not_scripted_says_so() -> None:
    crm = ScriptedServer("crm", "find")
    with anyio.fail_after(BOUND):
        async with Client(crm) as client:
            result = await client.call_tool("find", {})
    assert result.is_error and "no answer is scripted for find; call script('find', …)" in str(result.content)
    with pytest.raises(UnknownToolError, match="fnd"):
        crm.script("fnd", "text")


async def test_e7_an_assertion_that_fails_lists_the_calls() -> None:
    calls = CallRecorder()
    server = ToolsetServer(Toolset(add), middleware=[calls])
    calls.assert_not_called()
    with anyio.fail_after(BOUND):
        async with Client(server) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            await client.call_tool("add", {"a": 3, "b": 2})
    calls.assert_called("add", b=2)
    calls.assert_called_once("add", a=1)
    calls.assert_not_called("add", a=9)
    assert [one.arguments["a"] for one in calls.of("add", b=2)] == [1, 3]
    listed = r"; the calls were:\n  add\(a=1, b=2\)\n  add\(a=3, b=2\)$"
    for failing, said in (
        (lambda: calls.assert_called("add", a=9), r"^add\(a=9\) was not called"),
        (lambda: calls.assert_called_once("add"), r"^add\(\) was called 2 times, not once"),
        (lambda: calls.assert_not_called(), r"^add\(a=1, b=2\) was called"),
        (lambda: calls.assert_order("add"), "^the calls are not add"),
    ):
        with pytest.raises(AssertionError, match=said + listed):
            failing()
