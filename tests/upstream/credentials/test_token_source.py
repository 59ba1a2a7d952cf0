"""The tokens for one server: got by a login, kept, renewed, and refused."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.authorization_server import AuthorizationServer
from tests.upstream.credentials.protected import Person, Protected, protected

from mcp_toolset import RemoteToolset, ToolsetServer
from mcp_toolset.config.server_auth import OAuth
from mcp_toolset.security.secrets.credential_store import MemoryCredentialStore
from mcp_toolset.testing import LOCAL_CONTEXT

pytestmark = pytest.mark.anyio


def mounted(server: Protected, **auth: Any) -> ToolsetServer:
    upstream = RemoteToolset(server.url, name="protected", auth=OAuth(**auth), protocol="modern")
    return ToolsetServer(upstream, list_patience=30, keep=False)


async def called(bridge: ToolsetServer) -> str:
    with anyio.fail_after(30):
        return (await bridge.call_as_host("whose", {}, context=LOCAL_CONTEXT)).text


async def test_i4_a_person_logs_in_once_and_calls_carry_the_token(issuer: AuthorizationServer) -> None:
    person, store = Person(), MemoryCredentialStore()
    async with protected(issuer) as server:
        async with mounted(server, page=person, store=store) as bridge:
            await bridge.settled()
            assert await called(bridge) == "it ran"
        assert len(person.visited) == 1
        async with mounted(server, store=store) as again:
            await again.settled()
            assert await called(again) == "it ran"
        assert [key.upstream for key in await store.list()] == [server.url]


async def test_i4_without_a_login_the_status_and_calls_say_how(issuer: AuthorizationServer) -> None:
    async with protected(issuer) as server:
        async with mounted(server, store=MemoryCredentialStore()) as bridge:
            await bridge.settled()
            assert "needs login: mcp-toolset login" in bridge.statuses()["protected"].reason
