"""Bodies that stall half-way, and the deadlines of the calls beside them."""

from __future__ import annotations

import anyio
import pytest
from tests.faults.harness import until
from tests.support.bounds import bound
from tests.transports.client.raw_server import EVENTS, JSON, Request, RequestTimedOut, connected

pytestmark = pytest.mark.anyio
MAX_INTAKE = bound("http_intake")

BEGIN = b'{"jsonrpc":"2.0","id":1,"result":{"text":"'


@pytest.mark.parametrize("stalled", ["json", "events", "compressed"])
async def test_u112_deadlines_count_while_a_big_answer_stalls(stalled: str) -> None:
    stop = anyio.Event()

    async def handler(request: Request) -> None:
        if request.message["method"] == "stalls":
            head = EVENTS if stalled == "events" else JSON
            coding, data = b"", b"x" * (MAX_INTAKE + 1)
            if stalled == "compressed":
                import zlib

                packer = zlib.compressobj(wbits=31)
                coding = b"content-encoding: gzip\r\n"
                data = packer.compress(BEGIN + data) + packer.flush(zlib.Z_SYNC_FLUSH)
            begin = b"" if stalled == "compressed" else (b"data: " if stalled == "events" else b"") + BEGIN
            await request.send(head + coding + b"content-length: 99999999\r\n\r\n" + begin, data)
            await stop.wait()
        elif request.message["method"] == "big":
            await request.answer({**request.result(), "padding": "x" * (2 * MAX_INTAKE)})
        else:
            await request.answer(request.result())

    async with connected(handler) as (client, _, _):
        async with anyio.create_task_group() as group:
            outcomes = dict[str, object]()

            async def call(method: str, timeout: float) -> None:
                try:
                    outcomes[method] = await client.send_raw_request(method, {}, {"timeout": timeout})
                except RequestTimedOut as fault:
                    outcomes[method] = fault

            group.start_soon(call, "stalls", 6)
            await until(lambda: client._intake.size > MAX_INTAKE)
            group.start_soon(call, "big", 1)
            # What is in memory anyway needs no turn.
            await call("small", 5)
            assert outcomes == {"small": {"ok": True}}
            await until(lambda: len(outcomes) == 3)
        assert isinstance(outcomes["big"], RequestTimedOut)
        assert isinstance(outcomes["stalls"], RequestTimedOut)
        assert client._intake.size == client._intake.waiting == 0
        assert await client.send_raw_request("big", {}, {"timeout": 30}) == {"ok": True}
        stop.set()
