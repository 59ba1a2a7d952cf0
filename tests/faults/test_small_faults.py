"""Small faults: forged lines in logs, servers that live for seconds, children that take their time to end."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio
import pytest
from tests.faults.harness import SOON, mount, ready, tool, until
from tests.support.bounds import bounds

from mcp_toolset import Toolset, ToolsetServer
from mcp_toolset.concurrency.backoff import BRIEF, Backoff

pytestmark = pytest.mark.anyio


async def test_u48_a_remote_name_or_reason_cannot_forge_a_line_of_the_log(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="mcp_toolset")
    forged = "a\nERROR: all is lost\r\x1b[2K"
    async with ToolsetServer(Toolset(mount(log=str(log), tools=[tool(forged), tool("b")]))) as server:
        await until(ready(server))
        with anyio.fail_after(SOON):
            for shown in server.tools():
                await server.call_tool(shown["name"], {})
    said = [record.getMessage() for record in caplog.records if record.name.startswith("mcp_toolset")]
    assert said and not [line for line in said if "\n" in line or "\r" in line or "\x1b" in line]


def test_u48_a_server_that_lives_for_seconds_is_there_for_most_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, first_retry=0.5, longest_retry=30.0)
    backoff = Backoff()
    # It lives five seconds each time.
    waits = [backoff.after(5.0) for _ in range(20)]
    assert max(waits) <= 2.5
    # One that ends at once is left alone for longer and longer, and so is one that never came up.
    for held in (BRIEF / 2, float("-inf")):
        backoff = Backoff()
        assert [backoff.after(held) for _ in range(8)][-1] == 30.0
