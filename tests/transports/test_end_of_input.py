"""A stdio client that closes its input after its last request: the requests in flight are still answered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from tests.faults.harness import until
from tests.transports.test_line_dispatcher import Params, request, speaking

pytestmark = pytest.mark.anyio

LONG = 600.0
"""Seconds that no test waits."""

PROGRAM = """
import anyio
from mcp_toolset import Toolset, ToolsetServer, tool

@tool
async def later() -> str:
    \"\"\"Answer once the input has ended.\"\"\"
    await anyio.sleep(0.2)
    return "done"

async def main() -> None:
    async with ToolsetServer(Toolset(later)) as server:
        await server.run_stdio(drain=60.0)

anyio.run(main)
"""


async def never(context: Any, method: str, params: Params) -> dict[str, Any]:
    await anyio.sleep_forever()
    return {}


async def test_a_request_in_flight_at_the_end_of_input_is_answered() -> None:
    gate = anyio.Event()

    async def gated(context: Any, method: str, params: Params) -> dict[str, Any]:
        await gate.wait()
        return {"text": "done"}

    async with speaking(gated, holds_back=True, drain=LONG) as peer:
        await peer.send(request(1), request(2))
        await until(lambda: len(peer.dispatcher._requests) == 2)
        peer.close()
        await until(peer.dispatcher._ended.is_set)
        gate.set()
        answers = [await peer.receive(), await peer.receive()]
        await until(lambda: peer.dispatcher._closed)
    assert [answer["result"] for answer in answers] == [{"text": "done"}] * 2


async def test_a_client_that_has_closed_its_output_too_is_not_waited_for() -> None:
    async with speaking(never, holds_back=True, drain=LONG) as peer:
        await peer.send(request(1))
        await until(lambda: peer.dispatcher._requests)
        peer.close()
        await until(peer.dispatcher._ended.is_set)
        assert not peer.dispatcher._closed
        peer.stop_reading()
        await until(lambda: peer.dispatcher._closed)


async def test_a_request_that_does_not_end_is_waited_for_a_bounded_time() -> None:
    async with speaking(never, holds_back=True, drain=0.05) as peer:
        await peer.send(request(1))
        await until(lambda: peer.dispatcher._requests)
        peer.close()
        assert (await peer.receive())["error"]["code"] == types.CONNECTION_CLOSED
        await until(lambda: peer.dispatcher._closed)


async def test_a_stream_of_changes_is_not_waited_for() -> None:
    async with speaking(never, holds_back=True, drain=LONG) as peer:
        await peer.send(request(1, "subscriptions/listen"))
        await until(lambda: peer.dispatcher._requests)
        peer.close()
        assert (await peer.receive())["error"]["code"] == types.CONNECTION_CLOSED
        await until(lambda: peer.dispatcher._closed)


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_what_is_written_to_a_program_at_once_is_answered(kind: str, tmp_path: Path) -> None:
    program, messages = tmp_path / "app.py", tmp_path / "messages"
    program.write_text(PROGRAM)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    sent = [
        request(1, "initialize", **hello),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request(2, "tools/call", name="later", arguments={}),
    ]
    messages.write_text("".join(json.dumps(message) + "\n" for message in sent))
    command = [sys.executable, str(program)]
    if kind == "pipe":
        done = subprocess.run(command, input=messages.read_bytes(), capture_output=True, timeout=60)
    else:
        with messages.open("rb") as file:
            done = subprocess.run(command, stdin=file, capture_output=True, timeout=60)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["content"] == [{"type": "text", "text": "done"}]
    assert (done.returncode, done.stderr) == (0, b"")


LATE = """
import sys
import anyio
from mcp_toolset import serve
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.cli.main import main

serve._LAST_WORD = 60
settled = ToolsetServer.settled

async def late(server):
    await anyio.sleep(0.3)
    await settled(server)

ToolsetServer.settled = late
sys.exit(main(["serve", "--", "no-such-command"]))
"""


def test_the_failed_start_of_the_only_server_is_told_though_the_input_has_ended() -> None:
    command = [sys.executable, "-c", LATE]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=90)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"command not found: no-such-command" in done.stderr
