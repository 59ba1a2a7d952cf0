"""A hub as a process: how it stops, what it leaves, and what its standard output carries."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from tests.faults.harness import HERE, ROOT, SOON, alive, hostile, pid_of, received, specials, until
from tests.support.piped import handshake

pytestmark = pytest.mark.anyio
INITIALIZE = handshake(1)


def hub_command(**options: Any) -> list[str]:
    return [sys.executable, str(HERE / "hub.py"), json.dumps(options)]


@contextmanager
def hub(**options: Any) -> Generator[subprocess.Popen[bytes]]:
    command, env = hub_command(**options), {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    # Unbuffered output would hide what is still in a buffer when serving ends.
    env.pop("PYTHONUNBUFFERED", None)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[bytes], *messages: Any) -> None:
    assert process.stdin is not None
    for message in messages:
        process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def told(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The next answer: what is mounted joins while the hub serves, so that news may come before it."""
    assert process.stdout is not None
    while "id" not in (message := json.loads(process.stdout.readline())):
        assert "method" in message, message
    return message


def call(name: str, number: int = 2, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Upstreams:
    """Two mounts of a hub: one that behaves, one that ignores its end and has a child that does too."""

    def __init__(self, where: Path) -> None:
        self.good, self.bad = where / "good", where / "bad"
        self.commands = {
            "good": hostile(log=str(self.good)),
            "bad": hostile(log=str(self.bad), stubborn=True, tools=specials("child")),
        }

    @property
    def pids(self) -> list[int]:
        return [pid_of(self.good), pid_of(self.bad)]

    async def started(self) -> None:
        """An answer of one does not wait for the other."""
        await until(lambda: all(received(log) for log in (self.good, self.bad)))


async def gone(pids: list[int]) -> None:
    """What is killed has to be scheduled once more before it is gone."""
    await until(lambda: not any(map(alive, pids)))


@pytest.fixture
def upstreams(tmp_path: Path) -> Upstreams:
    return Upstreams(tmp_path)


@pytest.mark.parametrize("way", ["SIGTERM", "stdin closed", "stdout closed"])
async def test_f44_a_stdio_hub_ends_in_time_with_all_its_children(way: str, upstreams: Upstreams) -> None:
    grace = {} if way == "SIGTERM" else {"grace": 0.5}
    with hub(transport="stdio", mounts=upstreams.commands, **grace) as process:
        tell(process, INITIALIZE, INITIALIZED, call("bad_child"))
        assert told(process)["id"] == 1
        grandchild = int(told(process)["result"]["content"][0]["text"])
        tell(process, call("good_hang", 3))
        await upstreams.started()
        pids = [*upstreams.pids, grandchild]
        assert all(map(alive, pids))
        if way == "stdin closed":
            assert process.stdin is not None
            process.stdin.close()
        elif way == "stdout closed":
            assert process.stdout is not None and process.stdin is not None
            process.stdout.close()
            tell(process, call("shout", 4, how="nothing"))
            process.stdin.close()
        else:
            process.send_signal(getattr(signal, way))
        # Two seconds after the end of input and two after SIGTERM: that child ignores both.
        assert process.wait(timeout=SOON) == 0
        await gone(pids)
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


async def test_u117_sighup_ends_an_http_hub_in_time_with_all_its_children(upstreams: Upstreams) -> None:
    with hub(transport="http", mounts=upstreams.commands, grace=0.5) as process:
        assert process.stderr is not None
        process.stderr.readline()
        await upstreams.started()
        pids = upstreams.pids
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=SOON) == 0
        await gone(pids)
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize(("transport", "number"), [("http", signal.SIGTERM), ("sse", signal.SIGINT)])
async def test_f44_an_http_hub_ends_in_time_with_all_its_children(
    transport: Any, number: signal.Signals, upstreams: Upstreams
) -> None:
    with hub(transport=transport, mounts=upstreams.commands, grace=0.5) as process:
        assert process.stderr is not None
        # The socket listens by then: what comes before the server has started is answered afterwards.
        url = process.stderr.readline().decode().split()[-1]
        target = sse_client(f"{url}/sse") if transport == "sse" else f"{url}/mcp"
        with anyio.move_on_after(60):
            async with Client(target, mode="legacy", cache=None) as client:
                result = await client.call_tool("bad_child", {})
                grandchild = int(result.content[0].text)  # pyright: ignore[reportAttributeAccessIssue]
                async with anyio.create_task_group() as group:
                    group.start_soon(silently, client, "good_hang")
                    await upstreams.started()
                    await until(lambda: '"hang"' in upstreams.good.read_text())
                    pids = [*upstreams.pids, grandchild]
                    process.send_signal(number)
                    await until(lambda: process.poll() is not None)
                    group.cancel_scope.cancel()
        assert process.returncode == 0
        await gone(pids)
        assert b"Traceback" not in process.stderr.read()


async def silently(client: Client, name: str) -> None:
    try:
        await client.call_tool(name, {})
    # The hub is stopped under this call: whatever the client library makes of that is not the point.
    except Exception:
        return


async def test_u45_f44_children_of_a_killed_hub_die_with_it(upstreams: Upstreams) -> None:
    with hub(transport="stdio", mounts=upstreams.commands) as process:
        tell(process, INITIALIZE, INITIALIZED, call("bad_child"))
        assert told(process)["id"] == 1
        grandchild = int(told(process)["result"]["content"][0]["text"])
        await upstreams.started()
        pids = [*upstreams.pids, grandchild]
        process.kill()
        process.wait()
    await gone(pids)


WAYS = ("unflushed", "flushed", "descriptor", "stream", "child", "child_left")


def test_f45_nothing_but_the_protocol_reaches_standard_output() -> None:
    with hub(transport="stdio") as process:
        tell(process, INITIALIZE, INITIALIZED)
        assert told(process)["id"] == 1
        for number, way in enumerate(WAYS, 2):
            tell(process, call("shout", number, how=way))
            answer = told(process)
            assert (answer["id"], answer["result"]["content"][0]["text"]) == (number, way)
        tell(process, call("shout", 99, how="read"))
        assert told(process)["result"]["content"][0]["text"] == "''"
        out, err = process.communicate(timeout=60)
    assert out == b""
    for words in (
        b"left in the buffer",
        b"printed",
        b"the descriptor",
        b"the stream",
        b"first stream",
        b"by a child",
    ):
        assert words in err
    assert process.returncode == 0


@pytest.mark.long
async def test_f46_clients_that_come_and_go_leave_no_child(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = hub_command(transport="stdio", mounts={"up": hostile(log=str(log))})
    parameters = StdioServerParameters(
        command=command[0], args=command[1:], env={"PYTHONPATH": str(ROOT), "MCP_TOOLSET_CACHE": "off"}
    )
    with anyio.fail_after(40):
        for _ in range(3):
            async with Client(parameters, cache=None) as client:
                assert not (await client.call_tool("up_echo", {})).is_error
    started = [entry["started"] for entry in received(log) if "started" in entry]
    assert len(started) == 3
    await until(lambda: not any(map(alive, started)))
