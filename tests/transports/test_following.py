"""The standing stream of a legacy session over HTTP: what belongs to no call, in order and for one reader."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from starlette.types import Message
from tests.support.served import listening
from tests.transports.test_coming_back import Coming
from tests.transports.test_http_endpoint import endpoint
from tests.transports.test_legacy_sessions import INITIALIZE, call

from mcp_toolset import HttpLimits, Toolset, ToolsetServer
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.transports.http import post as following
from mcp_toolset.transports.http.post import KeptEvents, SessionEvents
from mcp_toolset.transports.http.sessions import LegacySession

pytestmark = pytest.mark.anyio
CHANGED = "notifications/tools/list_changed"
Opened = tuple[Coming, LegacySession]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@asynccontextmanager
async def opened(version: str = "2025-11-25", **options: Any) -> AsyncGenerator[Opened]:
    """A client's side of a session, and the server's."""
    async with ToolsetServer(Toolset(add)) as server:
        app = server.http_app(**options)
        with anyio.fail_after(60):
            async with listening(app) as url, httpx2.AsyncClient(base_url=url, timeout=60) as http:
                client = Coming(http)
                hello = {**INITIALIZE["params"], "protocolVersion": version}
                answer = await client.post({**INITIALIZE, "params": hello})
                client.headers |= {"mcp-protocol-version": version}
                client.headers |= {"mcp-session-id": answer.headers["mcp-session-id"]}
                found = endpoint(app).sessions.find(answer.headers["mcp-session-id"], None)
                assert found is not None
                yield client, found


async def test_f30_there_is_one_standing_stream_and_another_is_refused_until_it_ends() -> None:
    async with opened() as (client, session):
        async with client.events("GET") as events:
            assert await anext(events) == ("0-0", None)
            refused = await client.http.get("/mcp", headers=client.headers)
            assert refused.status_code == 409
            assert "Only one SSE stream" in refused.json()["error"]["message"]
            await session.connection.notify(CHANGED)
            assert (await anext(events))[1]["method"] == CHANGED
        while session.standing.is_open:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        async with client.events("GET") as events:
            assert await anext(events) == ("0-1", None)


async def test_p5_what_is_said_while_no_stream_is_open_comes_once_there_is_one() -> None:
    async with opened() as (client, session):
        for number in range(3):
            await session.connection.notify("notifications/message", {"data": number})
        async with client.events("GET") as events:
            await anext(events)
            found = [await anext(events) for _ in range(3)]
            assert [message["params"]["data"] for _, message in found] == [0, 1, 2]
        # Who lost the last two comes back for them, whether or not the server has seen that it had left.
        async with client.events("GET", last=found[0][0]) as events:
            assert [await anext(events) for _ in range(3)] == [(found[0][0], None), *found[1:]]


async def test_p5_a_client_that_comes_back_takes_the_stream_over() -> None:
    async with opened() as (client, session):
        async with client.events("GET") as before:
            assert await anext(before) == ("0-0", None)
            async with client.events("GET", last="0-0") as after:
                await anext(after)
                assert [event async for event in before] == []
                await session.connection.notify(CHANGED)
                assert (await anext(after))[1]["method"] == CHANGED


async def test_p5_an_id_that_is_still_to_come_is_no_reason_to_miss_anything() -> None:
    async with opened() as (client, session):
        async with client.events("GET", last="0-99") as events:
            assert await anext(events) == ("0-0", None)
            await session.connection.notify(CHANGED)
            assert (await anext(events))[0] == "0-1"


async def test_p5_an_older_client_gets_no_ids_on_its_standing_stream() -> None:
    async with opened("2025-06-18") as (client, session):
        await session.connection.notify(CHANGED)
        async with client.events("GET", last="0-0") as events:
            assert [await anext(events)] == [("", {"jsonrpc": "2.0", "method": CHANGED})]


async def test_p5_a_question_outside_of_calls_goes_on_the_standing_stream() -> None:
    async with opened(json_response=True) as (client, session):
        answers = list[Any]()

        async def ask() -> None:
            answers.append(await session.connection.send_raw_request("roots/list", None))
            with pytest.raises(MCPError) as refused:
                await session.connection.send_raw_request("roots/list", None)
            answers.append(refused.value.message)

        async with anyio.create_task_group() as group, client.events("GET") as events:
            await anext(events)
            group.start_soon(ask)
            _, question = await anext(events)
            assert question["method"] == "roots/list"
            said = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}
            assert (await client.post(said)).status_code == 202
            await anext(events)
            await client.http.delete("/mcp", headers=client.headers)
            # The stream ends with the session, and whoever waits for an answer is told.
            assert [event async for event in events] == []
        assert answers == [{"roots": []}, "Connection closed"]


async def test_f44_a_server_that_stops_ends_a_standing_stream_at_once() -> None:
    async with ToolsetServer(Toolset(add)) as server:
        app = server.http_app()
        with anyio.fail_after(60):
            async with listening(app) as url, httpx2.AsyncClient(base_url=url, timeout=60) as http:
                client = Coming(http)
                await client.open()
                async with client.events("GET") as events:
                    await anext(events)
                    app.state.draining.stop()
                    assert [event async for event in events] == []
                assert (await client.post(call())).status_code == 200


async def test_a_silent_stream_is_kept_alive_and_ends_with_its_client() -> None:
    sent, left = list[bytes](), anyio.Event()

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))
        if sent.count(following.PING) == 2:
            left.set()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    log = SessionEvents(KeptEvents(HttpLimits())).standing(numbered=True)
    with anyio.fail_after(30):
        await following.StandingStream(log).send(receive, send, [], 0.01)
    assert sent[:4] == [b"", log.priming(), following.PING, following.PING]


async def test_p5_of_many_events_the_new_ones_alone_are_looked_at() -> None:
    log = SessionEvents(KeptEvents(HttpLimits())).standing(numbered=True)
    for _ in range(1000):
        log.add(b"{}")
    assert [number for number, _ in log.after(997)] == [998, 999, 1000]
    assert log.after(1000) == [] and len(log.after(0)) == 1000
