"""A change of a mounted server's status is told without compiling what is served."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.faults.harness import SOON, kill, mount, ready, until
from tests.support.bounds import bounds

from mcp_toolset import ToolRegistry, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio


async def test_u67_a_status_that_changes_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = 0
    refresh = ToolRegistry.refresh

    def counted(registry: ToolRegistry) -> int:
        nonlocal compiled
        compiled += 1
        return refresh(registry)

    monkeypatch.setattr(ToolRegistry, "refresh", counted)
    bounds(monkeypatch, first_retry=2.0)
    log = tmp_path / "log"
    up = mount(log=str(log))
    async with ToolsetServer(Toolset(up.prefixed("up"), mount("beside").prefixed("beside"))) as server:
        await server.settled()
        await until(lambda: ready(server)() and ready(server, "beside")())
        await anyio.wait_all_tasks_blocked()
        before, listed = compiled, server.tools()
        kill(log)
        await until(lambda: up.status.state == "offline")
        with anyio.fail_after(SOON):
            refused = await server.call_tool("up_echo", {})
        assert refused.is_error and "offline" in refused.text
        await anyio.wait_all_tasks_blocked()
        assert compiled == before
        assert server.tools() == listed
        await until(ready(server))
