"""One connection to an HTTP server: how far it reads ahead, and what may follow an answer on it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import tracemalloc
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import anyio
import httpcore2
import pytest
import uvloop
from tests.faults.harness import until
from tests.transports.client.raw_server import Allowance, Meter, Request, connected, http_client, running

from mcp_toolset.transports.pacing import AT_ONCE
from mcp_toolset.transports.plain_http import Socket

pytestmark = pytest.mark.anyio

BIG = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4000000\r\n\r\n" + b"x" * 4_000_000
)
READERS = [
    tracemalloc.Filter(True, f"*/{part}")
    for part in ("client/socket.py", "h11/*", "httpcore2/*", "selector_events.py")
]


@contextmanager
def flooding() -> Generator[str]:
    """The address of a server whose threads send a big body at once, and keep no copy of it."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection = stack.enter_context(listening.accept()[0])
                    threading.Thread(target=send, args=(connection,), daemon=True).start()

        def send(connection: socket.socket) -> None:
            with suppress(OSError):
                connection.recv(65536)
                connection.sendall(BIG)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"


@pytest.fixture
def traced() -> Generator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
async def test_u40_a_body_that_waits_for_its_turn_is_held_back_in_its_connection() -> None:
    with flooding() as url:
        async with http_client("up", url, {}) as client, running(client), anyio.create_task_group() as group:
            client._intake = intake = type(client._intake)(0)
            await (first := Meter(intake)).room(AT_ONCE + 1)
            for _ in range(30):
                group.start_soon(client.send_raw_request, "ping", None)
            await until(lambda: intake.waiting == 30)
            await anyio.wait_all_tasks_blocked()
            found = tracemalloc.take_snapshot().filter_traces(READERS).statistics("filename")
            assert sum(each.size for each in found) < 30 * 64 * 1024
            group.cancel_scope.cancel()
            first.give_back()


@pytest.mark.usefixtures("traced")
async def test_u40_what_drips_in_is_kept_in_no_more_than_its_size() -> None:
    connection = Socket(httpcore2.Origin(b"http", b"127.0.0.1", 80), Allowance())
    for _ in range(10_000):
        connection.get_buffer(-1)[0] = 65
        connection.buffer_updated(1)
    assert tracemalloc.get_traced_memory()[0] < 2 * 1024 * 1024
    assert await connection.read(65536) == b"A" * 10_000


def whole(result: dict[str, Any], number: int, form: str) -> bytes:
    """A whole reply in one of the forms that an answer may have."""
    answer = b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (number, json.dumps(result).encode())
    sent = b"data: " + answer + b"\n\n" if form == "events" else answer
    kind = b"text/event-stream" if form == "events" else b"application/json"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\n"
    if form == "sized":
        return head + b"content-length: %d\r\n\r\n" % len(sent) + sent
    return head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(sent), sent)


@pytest.mark.parametrize("form", ["sized", "chunked", "events"])
async def test_what_follows_an_answer_is_not_the_answer_to_the_next_request(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "mcp_toolset.upstream")

    async def handler(request: Request) -> None:
        if request.message["method"] == "first":
            await request.send(whole({"n": 1}, 1, form) + whole({"another's": 2}, 2, form))
        else:
            await request.answer(request.result({"mine": True}))

    async with connected(handler) as (client, raw, _):
        assert await client.send_raw_request("first", None) == {"n": 1}
        # The end of a stream is read after its answer has been handed on.
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            assert await client.send_raw_request("second", None) == {"mine": True}
        assert raw.connections == 2
    assert "bytes after its answer" in caplog.text


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_answers_of_every_size_arrive_over_one_connection_on_every_loop(loop: Any) -> None:
    async def handler(request: Request) -> None:
        size = request.message["params"]["size"]
        await request.answer(request.result({"text": "".join(map(chr, range(48, 58))) * size}))

    async def main() -> None:
        async with connected(handler) as (client, raw, _):
            for size in (0, 1_000, 1_638, 3_000, 30_000, 1, 400_000, 2):
                answer = await client.send_raw_request("ping", {"size": size})
                assert answer == {"text": "0123456789" * size}
            assert raw.connections == 1

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
