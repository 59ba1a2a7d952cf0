"""Test rules for a mounted server, with a scripted server in its place; pytest runs this file."""

from collections.abc import Awaitable, Callable

import pytest

from mcp_toolset import HookSet, Reject, RemoteToolset, RunNormally, ToolCall, ToolsetServer
from mcp_toolset.testing import CallRecorder, Client, ScriptedServer

hooks = HookSet()


@hooks.execution("crm_delete")
async def keep_ann(call: ToolCall) -> RunNormally | Reject:
    return Reject("Ann stays") if call.arguments["customer"] == "Ann" else RunNormally(call.arguments)


def app(crm: object, calls: CallRecorder) -> ToolsetServer:
    """The server of the application; `crm` is the command of the real server, or a scripted one."""
    return ToolsetServer(RemoteToolset(crm, name="crm").prefixed("crm"), hooks=hooks, middleware=[calls])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_ann_is_not_deleted(
    mcp_client: Callable[..., Awaitable[Client]], mcp_calls: CallRecorder
) -> None:
    crm = ScriptedServer("crm", "find", "delete")
    crm.script("find", {"customers": ["Ann", "Bob"]}, TimeoutError("the database is slow"))
    crm.script("delete", "deleted")
    client = await mcp_client(app(crm, mcp_calls))

    found = await client.call_tool("crm_find", {"name": "*"})
    assert found.structured_content == {"customers": ["Ann", "Bob"]}
    assert (await client.call_tool("crm_find", {"name": "*"})).is_error

    assert (await client.call_tool("crm_delete", {"customer": "Ann"})).is_error
    crm.calls.assert_not_called("delete")
    assert not (await client.call_tool("crm_delete", {"customer": "Bob"})).is_error
    crm.calls.assert_called_once("delete", customer="Bob")
    mcp_calls.assert_order("crm_find", "crm_find", "crm_delete", "crm_delete")
