"""How many sessions with one server there may be."""

from __future__ import annotations

import socket

import anyio
import pytest
from tests.support.bounds import bounds

from mcp_toolset.errors import UpstreamTimeoutError
from mcp_toolset.upstream.routing import SessionKey, SessionOptions
from mcp_toolset.upstream.session import SessionPool
from mcp_toolset.upstream.target import link_to

pytestmark = pytest.mark.anyio


async def test_a_client_waits_while_all_sessions_that_there_may_be_are_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, sessions=2)
    with socket.create_server(("127.0.0.1", 0)) as silent, anyio.fail_after(40):
        link = link_to(f"http://127.0.0.1:{silent.getsockname()[1]}/mcp", name="up")
        pool = SessionPool(link, options=SessionOptions(), start_timeout=60, forwards=False)
        async with pool.running():
            for client in ("one", "two"):
                await pool.take(SessionKey("legacy", client=client), None, within=40)
            with pytest.raises(UpstreamTimeoutError, match="all its sessions stayed in use"):
                await pool.take(SessionKey("legacy", client="three"), None, within=0.05)
            assert len(pool) == 2
