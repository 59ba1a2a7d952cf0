"""A list that changes while the server is being mounted: what is served is the list as it is afterwards."""

from __future__ import annotations

import sys

import anyio
import pytest
from tests.faults.harness import HERE
from tests.interaction.raw_client import RawClient, raw_client
from tests.support.bounds import bounds

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio


async def until_listed(client: RawClient, kind: str) -> None:
    """Wait until the list is the new one; it is announced before, if it was the old one."""
    with anyio.fail_after(30):
        while [each["name"] for each in (await client.ask(f"{kind}/list"))[kind]] != ["new"]:
            await client.told(f"notifications/{kind}/list_changed")


@pytest.mark.parametrize("acknowledged", ["soon", "late"])
async def test_u39_a_change_between_a_list_and_its_stream_is_not_missed(
    acknowledged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if acknowledged == "late":
        bounds(monkeypatch, listen_acknowledged=0.01)
    command = [sys.executable, "-S", str(HERE / "changing_stdio.py"), acknowledged]
    mounted = Toolset(RemoteToolset(command, name="up", protocol="modern"), name="hub")
    async with ToolsetServer(mounted, keep=False) as server:
        await server.settled()
        async with raw_client(server, "legacy") as client:
            for kind in ("tools", "resources", "prompts"):
                await until_listed(client, kind)
