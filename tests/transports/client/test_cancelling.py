"""Requests over HTTP that are cancelled at each of their awaits, and what is left of them: nothing."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from tests.faults.harness import descriptors, until
from tests.transports.client.raw_server import Request, http_client, raw_server, running, sse_client

pytestmark = pytest.mark.anyio
STEPS = 60


async def handler(request: Request) -> None:
    if "id" not in request.message:
        return await request.answer(None, "202 Accepted")
    if request.message["params"]["events"]:
        await request.begin_events()
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
            await request.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
        await request.event(request.result())
        return await request.chunk(b"")
    await request.answer(request.result())


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("library", [False, True])
async def test_a_request_can_be_cancelled_at_any_moment(events: bool, library: bool) -> None:
    finished = 0
    before = descriptors()
    async with raw_server(handler) as raw:
        # An address with a user in it is left to httpx2.
        url = raw.url.replace("127.0.0.1", "me:pass@127.0.0.1") if library else raw.url
        async with http_client("up", url, {}) as client, running(client):
            for steps in range(STEPS):
                async with anyio.create_task_group() as group:

                    async def call() -> None:
                        nonlocal finished
                        await client.send_raw_request("tools/call", {"events": events})
                        finished += 1

                    group.start_soon(call)
                    for _ in range(steps):
                        await anyio.lowlevel.checkpoint()
                    group.cancel_scope.cancel()
                assert not client._waiting
            assert finished < STEPS
            assert await client.send_raw_request("tools/call", {"events": events}) == {"ok": True}
            # What is told of cancellations, and the ends of streams that are still read.
            await until(lambda: not client._handling.busy)
            assert (client._carrier._plain is None) is library
    await until(lambda: descriptors() <= before)


async def test_a_connection_can_be_cancelled_at_any_moment_of_its_beginning() -> None:
    async def streaming(request: Request) -> None:
        if request.verb == "GET":
            await request.begin_events()
            await request.chunk(b"event: endpoint\ndata: /messages\n\n")
            await request.gone()

    before = descriptors()
    async with raw_server(streaming) as raw:
        for steps in range(40):
            async with anyio.create_task_group() as group:

                async def connect() -> None:
                    async with sse_client("up", raw.url, {}) as client, running(client):
                        await anyio.sleep_forever()

                group.start_soon(connect)
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
    await until(lambda: descriptors() <= before)
