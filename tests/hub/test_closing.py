"""A connection that ends is a status; closing one that was asked for logs nothing."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import anyio
import pytest
from tests.faults.harness import until
from tests.support.configured import BOUND, Folder, said

from mcp_toolset import ToolsetServer
from mcp_toolset.context.offer_kinds import PROMPTS, RESOURCES
from mcp_toolset.tools.call import LOCAL_CONTEXT
from mcp_toolset.upstream import lists

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def stopped(server: ToolsetServer) -> None:
    """End the mounted server as a terminal's Ctrl-C does that reaches every process."""
    _, process = await said(server, "up_a")
    os.kill(int(process), signal.SIGINT)
    await until(lambda: server.statuses()["up"].state == "offline")


async def test_u7_a_close_that_was_asked_for_is_silent(
    folder: Folder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MIN_TTL", 0)
    folder.write({"up": folder.entry("a", uri="plain://r", prompt="p", quiet=True)})
    with anyio.fail_after(BOUND):
        async with folder.server() as server:
            await stopped(server)
            for kind in (RESOURCES, PROMPTS):
                await server.offering.page(kind, None, LOCAL_CONTEXT)
    assert warned(caplog) == []
