"""A server that is stopped by a SIGTERM lets calls in flight end first, those of mounted servers too."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.support.every_run import in_every_run

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")]

TOOLS = """
import time
from pathlib import Path
from mcp_toolset import serve, tool

@tool
def wait(path: str) -> str:
    '''Wait until a number of seconds is written to a named pipe, and for these.'''
    said = Path(path).read_text()
    time.sleep(float(said))
    return "done"

serve(wait)
"""


def until_closed(port: int) -> None:
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return


LONG = 3.5
"""Seconds that are more than calls in flight are given without `--drain`."""


@in_every_run({"legacy False", "auto True"}, lambda case: f"{case['mode']} {case['mounted']}")
@pytest.mark.parametrize(
    ("mode", "mounted", "seconds"),
    [("legacy", False, LONG), ("auto", False, 0), ("legacy", True, 0), ("auto", True, 0)],
)
async def test_u101_a_call_in_flight_ends_before_a_server_that_is_stopped(
    tmp_path: Path, mounted: bool, mode: str, seconds: float
) -> None:
    (tmp_path / "app.py").write_text(TOOLS)
    entry = {"command": sys.executable, "args": [str(tmp_path / "app.py")]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"far": entry}}))
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    target = tmp_path / ("mcp.json" if mounted else "app.py")
    words = ["serve", str(target), "--transport", "http", "--port", "0", "--drain", "60"]
    process = await anyio.open_process([sys.executable, "-m", "mcp_toolset", *words], stderr=subprocess.PIPE)
    results: list[Any] = []
    async with process:
        assert process.stderr is not None
        said = b""
        with anyio.fail_after(60):
            while not (address := re.search(rb"(http://127.0.0.1:(\d+)\S*)\n", said)):
                said += await process.stderr.receive()
            url, port = address[1].decode(), int(address[2])
            async with anyio.create_task_group() as group:

                async def call() -> None:
                    async with Client(url, mode=mode) as client:
                        (name,) = [tool.name for tool in (await client.list_tools()).tools]
                        results.append(await client.call_tool(name, {"path": pipe}))

                group.start_soon(call)
                # The pipe can be opened once the tool reads it.
                writing = await anyio.to_thread.run_sync(os.open, pipe, os.O_WRONLY, abandon_on_cancel=True)
                process.send_signal(signal.SIGTERM)
                await anyio.to_thread.run_sync(until_closed, port, abandon_on_cancel=True)
                os.write(writing, b"%g" % seconds)
                os.close(writing)
            assert await process.wait() == 0
    (result,) = results
    assert not result.is_error and result.content[0].text == "done"
