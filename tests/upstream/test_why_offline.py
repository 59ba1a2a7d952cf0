"""Why a server could not be connected to, as the status of its mount tells it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import httpx2
import pytest
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
