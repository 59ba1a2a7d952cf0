"""A connection of which a message could not be taken has ended, on both sides: half alive does not exist."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.faults.harness import SOON, mount, specials, until
from tests.transports.test_line_dispatcher import echo, request, speaking

from mcp_toolset import Toolset, ToolsetError, ToolsetServer
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.transports.line_dispatcher import LineDispatcher

pytestmark = pytest.mark.anyio

HOST = """
import asyncio
from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.transports.line_dispatcher import LineDispatcher

taken = LineDispatcher._receive_notification

def broken(self, method, params):
    if method == "notifications/poison":
        raise ValueError("the reader broke")
    taken(self, method, params)

LineDispatcher._receive_notification = broken

@tool
def add(a: int, b: int) -> int:
    return a + b

asyncio.run(ToolsetServer(Toolset(add), name="host").run_stdio())
"""
HELLO = request(
    1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "c", "version": "1"}
)


def poisoned(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have one callback raise for what is named `poison`."""
    taken: Callable[..., None] = getattr(LineDispatcher, name)

    def broken(self: LineDispatcher, *what: Any) -> None:
        if "poison" in json.dumps(what):
            raise ValueError("the reader broke")
        taken(self, *what)

    monkeypatch.setattr(LineDispatcher, name, broken)


@pytest.mark.parametrize("late", [False, True])
async def test_u1_a_callback_that_raises_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, late: bool
) -> None:
    poisoned(monkeypatch, "_take_request")
    # More than one slice of messages: the poison is then met in a turn of the loop of its own.
    before = [request(number) for number in range(2, 400 if late else 3)]
    with pytest.raises(BaseExceptionGroup) as raised:
        async with speaking(echo) as peer:
            async with anyio.create_task_group() as group:

                async def waits() -> None:
                    with pytest.raises(MCPError, match="Connection closed"):
                        await peer.dispatcher.send_raw_request("m", {})

                group.start_soon(waits)
                assert (await peer.receive())["method"] == "m"
                await peer.send(b"".join(json.dumps(one).encode() + b"\n" for one in before))
                await peer.send(request("poison"))
    assert raised.group_contains(
        ToolsetError, match="handling a message failed: ValueError: the reader broke"
    )
    assert "a connection was closed, because handling a message failed" in caplog.text


async def test_u1_an_upstream_whose_reader_raises_is_offline_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="mcp_toolset.upstream.up")
    remote = mount(tools=specials("ids"))
    reasons: list[str] = []
    async with ToolsetServer(Toolset(remote)) as server:
        await server.settled()
        remote.on_change(lambda: reasons.append(remote.status.reason))
        poisoned(monkeypatch, "_take_answer")
        with anyio.fail_after(SOON):
            failed = await server.call_tool("echo", {"n": "poison"})
        assert failed.is_error and "connection was lost" in failed.text
        await until(
            lambda: any("handling a message failed: ValueError: the reader broke" in one for one in reasons)
        )
        # The mount begins again, as after every loss.
        await until(lambda: remote.status.state == "ready")
        with anyio.fail_after(SOON):
            assert not (await server.call_tool("echo", {})).is_error


def test_u1_a_client_whose_reader_raises_sees_the_end_and_the_process_says_why() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOST], stdin=pipe, stdout=pipe, stderr=pipe) as host:
        late = threading.Timer(SOON, host.kill)
        late.start()
        assert host.stdin is not None and host.stdout is not None

        def send(*messages: dict[str, Any]) -> None:
            assert host.stdin is not None
            host.stdin.writelines(json.dumps(message).encode() + b"\n" for message in messages)
            host.stdin.flush()

        send(HELLO)
        assert json.loads(host.stdout.readline())["id"] == 1
        send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        send(request(2, "tools/call", name="add", arguments={"a": 1, "b": 2}))
        answer = json.loads(host.stdout.readline())
        assert answer["result"]["structuredContent"] == {"result": 3}
        send({"jsonrpc": "2.0", "method": "notifications/poison"})
        rest, errors = host.communicate(timeout=SOON)
        late.cancel()
    assert rest == b"" and host.returncode > 0
    assert b"handling a message failed: ValueError: the reader broke" in errors
