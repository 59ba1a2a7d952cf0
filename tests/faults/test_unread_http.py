"""Budgets of answers for a client that does not read: those of HTTP upstream servers, and for SSE clients."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.lowlevel import checkpoint
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from starlette.types import Message
from tests.faults.harness import until
from tests.support.bounds import bounds
from tests.support.piped import handshake
from tests.support.served import served
from tests.transports.test_http_endpoint import HEADERS, META

from mcp_toolset import HttpLimits, Toolset, ToolsetServer, tool
from mcp_toolset.protocol import eras
from mcp_toolset.transports.http import sse as sse
from mcp_toolset.transports.http.budgets import Unsent

pytestmark = pytest.mark.anyio

MB = 1024 * 1024


@tool
def text(size: int) -> str:
    """As much text as is asked for."""
    return "x" * size


def serving(*members: Any, **limits: int) -> AbstractAsyncContextManager[str]:
    return served(ToolsetServer(Toolset(text, *members)), limits=HttpLimits(**limits))


async def test_u40_results_for_an_sse_client_that_does_not_read_have_a_budget_and_one_that_reads_gets_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = list[dict[str, Any]]()
    made = list[Any]()
    init = sse.EventStream.__init__

    def noted(self: Any, *arguments: Any) -> None:
        made.append(self)
        init(self, *arguments)

    monkeypatch.setattr(sse.EventStream, "__init__", noted)
    async with serving(max_unread_bytes_per_peer=20 * MB) as url, httpx2.AsyncClient(timeout=None) as http:
        async with http.stream("GET", f"{url}/sse") as stream:
            lines = stream.aiter_lines()

            async def data() -> str:
                async for line in lines:
                    if line.startswith("data: "):
                        return line[6:]
                raise EOFError

            path = await data()
            await http.post(url + path, json=handshake())
            await data()
            await http.post(url + path, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
            for number in range(1, 11):
                params = {"name": "text", "arguments": {"size": 8 * MB}}
                call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
                await http.post(url + path, json=call)
            await until(lambda: made[0]._unsent.size > 8 * MB and made[0].waiting > 5)
            assert made[0]._unsent.size < 30 * MB
            while len(answers) < 10:
                answers.append(json.loads(await data()))
        assert sorted(answer["id"] for answer in answers) == list(range(1, 11))
        dropped = [answer["error"]["message"] for answer in answers if "error" in answer]
        assert 1 <= len(dropped) <= 8 and "max_unread_bytes_per_peer is" in dropped[0]
        async with sse_client(f"{url}/sse") as streams, ClientSession(*streams) as session:
            await session.initialize()
            for _ in range(4):
                result = await session.call_tool("text", {"size": 800_000})
                assert not result.is_error


async def test_u40_nothing_more_is_taken_of_an_sse_client_for_which_many_answers_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, sse_answers=2)
    go_on, sent = anyio.Event(), list[bytes]()

    async def send(message: Message) -> None:
        await go_on.wait()
        sent.append(message["body"])

    stream = sse.EventStream(send, Unsent(HttpLimits()), "peer")
    taken = list[int]()

    async def take() -> None:
        for number in range(3):
            await stream.few()
            taken.append(number)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for number in range(2):
                stream.write_line(b"%d" % number)
            group.start_soon(stream.run)
            group.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            assert not taken
            go_on.set()
            await until(lambda: taken == [0, 1, 2])
            group.cancel_scope.cancel()
    assert sent == [b"event: message\r\ndata: %d\r\n\r\n" % number for number in range(2)]
    assert stream._unsent.size == 0


AT_ONCE = """
import sys
from mcp_toolset import Toolset, tool

@tool
def text(size: int) -> str:
    "As much text as is asked for."
    return "x" * size

@tool
def resident() -> int:
    "Bytes of memory that this process has."
    return int(open("/proc/self/statm").read().split()[1]) * 4096

tools = Toolset(text, resident)
"""


@asynccontextmanager
async def process(tmp_path: Path) -> AsyncGenerator[int]:
    """A server in a process of its own; its port."""
    (tmp_path / "app.py").write_text(AT_ONCE)
    serve = ["serve", str(tmp_path / "app.py"), "--transport", "http", "--port", "0"]
    words = [sys.executable, "-m", "mcp_toolset", *serve]
    async with await anyio.open_process(words, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        said = b""
        while not (found := re.search(rb"http://127.0.0.1:(\d+)/mcp", said)):
            said += await child.stderr.receive()
        try:
            yield int(found[1])
        finally:
            child.terminate()


def posted(name: str, arguments: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    params = {"name": name, "arguments": arguments, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {header: value for header, value in HEADERS.items() if header != "host"}
    return {**headers, "mcp-name": name}, json.dumps(message).encode()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that keeps large blocks")
async def test_u113_the_memory_of_results_that_nobody_reads_goes_back_to_the_system(tmp_path: Path) -> None:
    """The threads of synchronous tools have arenas of their own, each of which would keep a freed result."""
    headers, body = posted("text", {"size": 20 * MB})
    with anyio.fail_after(60):
        async with process(tmp_path) as port:
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            head = f"host: 127.0.0.1:{port}\r\n{head}content-length: {len(body)}\r\n\r\n"
            request = b"POST /mcp HTTP/1.1\r\n" + head.encode() + body

            async def resident() -> int:
                headers, body = posted("resident", {})
                async with httpx2.AsyncClient(timeout=None) as http:
                    answer = await http.post(f"http://127.0.0.1:{port}/mcp", headers=headers, content=body)
                return int(answer.json()["result"]["content"][0]["text"])

            before = await resident()
            for _ in range(2):
                async with AsyncExitStack() as stack:
                    streams = [
                        await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
                        for _ in range(10)
                    ]
                    for stream in streams:
                        await stream.send(request)
                    for stream in streams:
                        assert (await stream.receive(12))[:8] == b"HTTP/1.1"
            after = await resident()
            for _ in range(100):
                if after - before < 60 * MB:
                    break
                await anyio.sleep(0.02)
                after = await resident()
    assert after - before < 60 * MB


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_u113_a_result_without_room_is_dropped_before_it_is_written(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, write = list[int](), eras.json_of

    def noted(value: Any) -> bytes:
        json = write(value)
        written.append(len(json))
        return json

    monkeypatch.setattr(eras, "json_of", noted)
    async with serving(max_unread_bytes_per_peer=10 * MB) as url, httpx2.AsyncClient(timeout=None) as http:
        headers, body = posted("text", {"size": 8 * MB})
        if version == "2025-11-25":
            plain = {name: value for name, value in headers.items() if not name.startswith("mcp-")}
            begun = await http.post(f"{url}/mcp", headers=plain, json=handshake(0, version))
            headers = plain | {
                "mcp-session-id": begun.headers["mcp-session-id"],
                "mcp-protocol-version": version,
            }
        async with http.stream("POST", f"{url}/mcp", headers=headers, content=body) as first:
            answers = [await http.post(f"{url}/mcp", headers=headers, content=body) for _ in range(5)]
            assert len(await first.aread()) > 8 * MB
    assert [answer.status_code for answer in answers] == [503] * 5
    assert all(answer.json()["id"] == 1 for answer in answers)
    assert all("max_unread_bytes_per_peer is" in answer.json()["error"]["message"] for answer in answers)
    assert sum(size > MB for size in written) == 1


@pytest.mark.parametrize(("door", "size", "at_once"), [("/mcp", 3 * MB, 1), ("/sse", 900_000, 3)])
async def test_u113_long_results_that_are_ready_together_are_written_in_turns_of_the_loop_of_their_own(
    door: str, size: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, ready, write, go = 0, 0, eras.json_of, anyio.Event()
    written = list[int]()

    @tool
    async def together(size: int) -> str:
        """A long text, once all of them are wanted."""
        nonlocal ready
        ready += 1
        await go.wait()
        return "x" * size

    def noted(value: Any) -> bytes:
        json = write(value)
        if len(json) > size:
            written.append(turn)
        return json

    monkeypatch.setattr(eras, "json_of", noted)
    headers, body = posted("together", {"size": size})
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(together, max_unread_bytes_per_peer=40 * MB))
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=None))
        session = None
        if door == "/sse":
            streams = await stack.enter_async_context(sse_client(f"{url}/sse"))
            session = await stack.enter_async_context(ClientSession(*streams))
            await session.initialize()
        group = await stack.enter_async_context(anyio.create_task_group())

        async def count() -> None:
            nonlocal turn
            while True:
                turn += 1
                await checkpoint()

        async def ask() -> None:
            if session is None:
                answer = await http.post(f"{url}{door}", headers=headers, content=body)
                assert answer.status_code == 200
            else:
                await session.call_tool("together", {"size": size})

        async with anyio.create_task_group() as asking:
            for _ in range(9):
                asking.start_soon(ask)
            await until(lambda: ready == 9)
            group.start_soon(count)
            go.set()
        group.cancel_scope.cancel()
    assert len(written) == 9
    assert max(Counter(written).values()) <= at_once


def test_u113_a_result_of_many_values_is_not_looked_through_before_it_is_written() -> None:
    looked = 0

    class Looked(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            nonlocal looked
            for each in super().__iter__():
                looked += 1
                yield each

    unsent = Unsent(HttpLimits(max_unread_bytes_per_peer=MB))
    unsent.add("peer", MB)
    rows = {"rows": [Looked([1]) for _ in range(100_000)], "content": [{"type": "text", "text": "x" * MB}]}
    assert "max_unread_bytes_per_peer is" in str(unsent.refused("peer", rows))
    assert unsent.refused("peer", {"text": "short", "rows": rows["rows"]}) is None
    assert looked < 20_000
