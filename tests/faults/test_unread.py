"""A client that asks and does not read: the work for it stops, its memory is bounded, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import ROOT, until
from tests.support.bounds import bound, bounds
from tests.transports.test_line_dispatcher import Params, Peer, request, result, speaking

from mcp_toolset.transports.requests import PacedRequest, calling

pytestmark = pytest.mark.anyio

MB = 1024 * 1024


class Slow:
    """The pipe of a client that reads when it is told to."""

    def __init__(self) -> None:
        self.gate = anyio.Event()

    @property
    def has_room(self) -> bool:
        return self.gate.is_set()

    async def room(self) -> None:
        await self.gate.wait()


def caller_of(pipe: Slow) -> PacedRequest:
    """A request of that client, which is answered."""
    caller = PacedRequest(pipe)  # pyright: ignore[reportArgumentType]
    caller.end()
    return caller


async def ask(peer: Peer, caller: PacedRequest | None, got: list[Any]) -> None:
    calling.set(caller)
    got.append(await peer.dispatcher.send_raw_request("m", {}, {"timeout": 0.2}))


async def test_u40_a_server_is_not_read_while_the_client_of_its_answers_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, unread_later=0.2)
    client, got = Slow(), list[Any]()
    async with speaking() as peer, anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(ask, peer, caller_of(client), got)
        numbers = [(await peer.receive())["id"] for _ in range(5)]
        await peer.send(result(numbers[0], text="x"))
        await until(lambda: len(got) == 1 and peer.dispatcher._held)
        await peer.send(*(result(number, text="y") for number in numbers[1:]))
        # Its time goes on meanwhile, and is not the server's.
        await anyio.sleep(0.3)
        assert len(got) == 1
        client.gate.set()
        await until(lambda: len(got) == 5)


async def test_u40_a_big_answer_waits_for_its_result_and_not_for_ever() -> None:
    client, got = Slow(), list[Any]()
    client.gate.set()
    open_still = PacedRequest(client)  # pyright: ignore[reportArgumentType]
    async with speaking() as peer, anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask, peer, open_still, got)
        numbers = [(await peer.receive())["id"] for _ in range(3)]
        await peer.send(*(result(number, text="x" * bound("big_answer")) for number in numbers))
        await until(lambda: len(got) == 3)


async def test_u40_requests_of_a_client_that_does_not_read_wait_and_a_cancellation_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, high_water=100_000)
    begun: list[int] = []

    async def big(context: Any, method: str, params: Params) -> dict[str, Any]:
        begun.append(params["n"] if params else 0)
        return {"text": "x" * 3_000_000}

    async with speaking(big, holds_back=True) as peer:
        await peer.send(*(request(n, n=n) for n in range(10)))
        await until(lambda: len(peer.dispatcher._requests) == 9)
        assert begun == [0]
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        await peer.send(cancel)
        await until(lambda: len(peer.dispatcher._requests) == 8)
        assert sorted([(await peer.receive())["id"] for _ in range(9)]) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert 5 not in begun


async def test_u40_results_beyond_the_budget_of_a_client_that_reads_nothing_are_given_up_and_said_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, high_water=100_000, unread_timeout=0.05, unread_bytes=10_000_000)
    gate = anyio.Event()

    async def big(context: Any, method: str, params: Params) -> dict[str, Any]:
        await gate.wait()
        return {"text": "x" * 3_000_000}

    async with speaking(big, holds_back=True) as peer:
        await peer.send(*map(request, range(10)))
        await until(lambda: len(peer.dispatcher._requests) == 10)
        gate.set()
        await until(lambda: peer.dispatcher._unread.size < 10_000_000 and len(peer.dispatcher._requests) < 9)
        answers = [await peer.receive() for _ in range(10)]
    dropped = [answer["error"]["message"] for answer in answers if "error" in answer]
    assert sorted(answer["id"] for answer in answers) == list(range(10))
    assert 1 <= len(dropped) <= 7 and "bytes was dropped" in dropped[0]


def figures(pid: int) -> tuple[int, int]:
    """The most memory that a process has had, in bytes, and the ticks that it has run."""
    status = Path(f"/proc/{pid}/status").read_text()
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024, int(ticks[11]) + int(ticks[12])


@contextmanager
def hub(folder: Path) -> Generator[subprocess.Popen[bytes]]:
    """A served configuration with one server that gives as much text as it is asked for."""
    command = [sys.executable, "-S", str(ROOT / "benchmarks" / "raw_upstream.py")]
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"raw": {"command": command[0], "args": command[1:]}}}))
    serve = [sys.executable, "-m", "mcp_toolset", "serve", str(config)]
    with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def call(number: int, **arguments: Any) -> bytes:
    message = request(number, "tools/call", name="raw_echo", arguments=arguments)
    return json.dumps(message).encode() + b"\n"


BEGIN = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


async def test_u40_a_bridge_does_not_grow_for_a_client_that_reads_later_and_it_gets_everything(
    tmp_path: Path,
) -> None:
    with hub(tmp_path) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request(0, "initialize", **BEGIN)).encode() + b"\n")
        process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n' + call(1, text="x"))
        process.stdin.flush()
        for _ in range(2):
            await anyio.to_thread.run_sync(process.stdout.readline)
        idle, ticks = figures(process.pid)
        process.stdin.write(b"".join(call(number, size=4 * MB + 1) for number in range(2, 42)))
        process.stdin.flush()
        with anyio.fail_after(60):
            while figures(process.pid)[1] != ticks or not ticks:
                ticks = figures(process.pid)[1]
                await anyio.sleep(0.5)
        seen = set[int]()
        with anyio.fail_after(60):
            await anyio.to_thread.run_sync(read, process, seen)
        assert seen == set(range(2, 42))
        # 160 MB were asked for.
        assert figures(process.pid)[0] - idle < 64 * MB


def read(process: subprocess.Popen[bytes], seen: set[int]) -> None:
    """Take answers until there are forty."""
    assert process.stdout is not None
    while len(seen) < 40 and (line := process.stdout.readline()):
        if len(line) > 4 * MB:
            seen.add(json.loads(line)["id"])
