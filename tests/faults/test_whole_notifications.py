"""What a server says in a call reaches the client as the server has put it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from tests.faults.harness import mount, specials

from mcp_toolset import Toolset, ToolsetServer

pytestmark = pytest.mark.anyio


async def test_u39_progress_keeps_integers_and_meta_and_custom_notifications_cross() -> None:
    heard: list[dict[str, Any]] = []
    async with ToolsetServer(Toolset(mount(tools=specials("custom")))) as server:
        await server.settled()
        with anyio.fail_after(30):
            async with (
                create_client_server_memory_streams() as (mine, theirs),
                anyio.create_task_group() as group,
            ):
                lowlevel = server.lowlevel
                group.start_soon(lowlevel.run, *theirs, lowlevel.create_initialization_options())

                async def send(**message: Any) -> None:
                    whole = jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message})
                    await mine[1].send(SessionMessage(whole))

                async def until_answered(number: int) -> None:
                    while True:
                        item = await mine[0].receive()
                        assert isinstance(item, SessionMessage)
                        heard.append(item.message.model_dump(by_alias=True, exclude_unset=True))
                        if heard[-1].get("id") == number:
                            return

                info = {"name": "raw", "version": "1"}
                hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
                await send(id=1, method="initialize", params=hello)
                await until_answered(1)
                await send(method="notifications/initialized")
                heard.clear()
                call = {"name": "custom", "arguments": {}, "_meta": {"progressToken": "mine"}}
                await send(id=2, method="tools/call", params=call)
                await until_answered(2)
                group.cancel_scope.cancel()
    notes = [each for each in heard if "method" in each and not each["method"].endswith("list_changed")]
    said = [(each["method"], each["params"]) for each in notes]
    meta = {"example.com/step": "a"}
    assert said == [
        ("notifications/progress", {"progressToken": "mine", "progress": 1, "total": 2, "_meta": meta}),
        ("notifications/example/spoken", {"what": "anything"}),
    ]
    assert type(said[0][1]["progress"]) is int
