"""The program of docs/replicas.md: a grant of one replica is valid at another one."""

from pathlib import Path

import pytest
from examples.replicas.served import server
from tests.support.valkey import valkey_process

from mcp_toolset.config import load_config

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.anyio


async def test_r1_two_replicas_of_the_page_share_grants() -> None:
    with valkey_process() as store:
        async with server(store.url) as one, server(store.url) as other:
            resolved = await one.call_tool("resolve_tools", {"ids": ["read_invoice"]})
            grant = resolved.structured["tools"][0]["grant"]
            called = await other.call_tool("call_tool", {"grant": grant, "arguments": {"number": 7}})
            assert called.text == "invoice 7"


@pytest.mark.needs("single_mounts")
def test_r5_the_configuration_of_the_page_has_a_single_server() -> None:
    (server,) = load_config(ROOT / "examples" / "replicas" / "single.json").servers
    assert server.extensions["single"].single and not server.fault
