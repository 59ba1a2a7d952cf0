"""Why a server could not be connected to, as the status of its mount tells it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.support.asking import ERAS, Person, connected, text_of
from tests.support.warm import Warm
from tests.transports.client.raw_server import SOON, Request, raw_server

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio


class Refused(httpx2.Auth):
    """A login that nobody gets through."""

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        yield request
        raise RuntimeError("the login was declined")


async def unauthorized(request: Request) -> None:
    await request.answer(None, "401 Unauthorized")


async def offline(url: str, **options: Any) -> str:
    mount = RemoteToolset(url, name="up", **options)
    with anyio.fail_after(SOON):
        async with ToolsetServer(Toolset(mount)) as server:
            await server.settled()
            assert mount.status.state == "offline"
            return mount.status.reason


@pytest.mark.parametrize("protocol", ["auto", "legacy", "modern"])
async def test_a_login_that_fails_is_told_by_what_it_raised(protocol: Any) -> None:
    async with raw_server(unauthorized) as raw:
        reason = await offline(raw.url, auth=Refused(), protocol=protocol)
    assert reason == "RuntimeError: the login was declined"


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_host_that_no_name_can_be_is_told_as_no_connection(transport: Any) -> None:
    assert "ConnectError: " in await offline("http://no..name/mcp", transport=transport)


ONCE_ONLY = """
import os, sys
from mcp_toolset import Toolset, ToolsetServer, serve, tool

@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b

try:
    os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL))
except FileExistsError:
    sys.exit("shop: another process holds the till; close it first")
serve(ToolsetServer(Toolset(add)))
"""

AUDITED = """
import sys
from mcp_toolset import Toolset, ToolsetServer, serve, tool

@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b

serve(ToolsetServer(Toolset(add), audit=sys.argv[1]))
"""


@pytest.mark.needs("audit")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("program", "told"),
    [(ONCE_ONLY, "(stderr: shop: another process holds the till; close it first)"), (AUDITED, "3")],
)
async def test_u124_a_second_process_for_a_client_that_can_be_asked_works_or_says_why_not(
    program: str, told: str, era: str, tmp_path: Path, warm: Warm
) -> None:
    (tmp_path / "shop.py").write_text(program)
    command = [*warm.command(str(tmp_path / "shop.py")), str(tmp_path / "file")]
    server = ToolsetServer(RemoteToolset(command, name="shop", protocol="legacy"))
    async with connected(server, era, elicitation_callback=Person()) as client:
        await client.list_tools()
        result = await client.call_tool("add", {"a": 1, "b": 2})
    assert text_of(result).endswith(told)
