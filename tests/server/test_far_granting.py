"""Two servers of one service share the grants of a store in another process, with clients of both eras."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from tests.support.asking import ERAS, text_of
from tests.support.far_store import FarStore

from mcp_toolset import ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.errors import StateError
from mcp_toolset.grants import GrantLedger

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def read(number: int) -> str:
    """Read an invoice."""
    return f"invoice {number}"


def server(store: FarStore, **ledger: Any) -> ToolsetServer:
    grants = GrantLedger(store, cache_ttl=600, **ledger)
    return ToolsetServer(Toolset(read).deferred(), grants=grants)


@pytest.mark.parametrize("mode", ERAS)
async def test_x1_a_client_is_granted_calls_and_is_refused(port: int, mode: Any):
    store = FarStore(port, f"client {mode}")
    with anyio.fail_after(120):
        async with server(store) as served, Client(served.lowlevel, mode=mode, cache=None) as client:
            found = await client.call_tool("resolve_tools", {"ids": ["read"]})
            assert found.structured_content is not None
            call = {"grant": found.structured_content["tools"][0]["grant"], "arguments": {"number": 7}}
            store.asked.clear()
            for _ in range(3):
                assert text_of(await client.call_tool("call_read_only_tool", call)) == "invoice 7"
            assert store.asked == []
            listed = [tool.name for tool in (await client.list_tools()).tools]
            assert ("read" in listed) == (mode == "legacy")
            if mode == "legacy":
                assert text_of(await client.call_tool("read", {"number": 8})) == "invoice 8"
            assert await served.grants.revoke_async(name="read") == 1
            assert (await client.call_tool("call_tool", call)).is_error
            if mode == "legacy":
                assert "was taken back" in text_of(await client.call_tool("read", {"number": 8}))
            else:
                with pytest.raises(MCPError):
                    await client.call_tool("read", {"number": 8})
            assert "read" not in [tool.name for tool in (await client.list_tools()).tools]


async def test_x1_a_handle_that_one_server_gave_is_counted_by_all(port: int):
    stores = [FarStore(port, "handles"), FarStore(port, "handles")]
    with anyio.fail_after(120):
        async with server(stores[0], bearer_uses=3) as one, server(stores[1], bearer_uses=3) as other:
            async with Client(one.lowlevel) as first, Client(other.lowlevel) as second:
                found = await first.call_tool("resolve_tools", {"ids": ["read"]})
                assert found.structured_content is not None
                call = {"grant": found.structured_content["tools"][0]["grant"], "arguments": {"number": 7}}
                answers = [
                    (await client.call_tool("call_tool", call)).is_error
                    for client in (first, second, second, first, second)
                ]
    assert answers == [False, False, False, True, True]


async def test_x1_a_principal_is_known_to_every_server(port: int):
    class Ann(ToolContext):
        principal = "ann"
        session = "s1"

    with anyio.fail_after(120):
        async with server(FarStore(port, "ann")) as one, server(FarStore(port, "ann")) as other:
            await one.call_tool("resolve_tools", {"ids": ["read"]}, context=Ann())
            assert other.unknown_to(Ann())
            await other.known_to(Ann())
            assert "read" in [tool["name"] for tool in other.listed(Ann())]
            assert not other.unknown_to(Ann())
            assert (await other.call_tool("read", {"number": 1}, context=Ann())).text == "invoice 1"
            found = await other.call_tool("search_tools", {"query": "read an invoice"}, context=Ann())
            assert "state" not in found.structured["hits"][0]
            with pytest.raises(StateError, match="revoke_all_async"):
                other.grants.revoke_all()
