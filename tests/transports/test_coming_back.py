"""Legacy clients over HTTP that come back for the rest of a call (`GET` with `Last-Event-ID`)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from mcp import Client
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from tests.support.bounds import bounds
from tests.support.served import hosted, listening
from tests.transports.test_http_endpoint import body_of, endpoint
from tests.transports.test_legacy_sessions import ELICITATION, INITIALIZE, SCHEMA, Session, call, note

from mcp_toolset import HttpLimits, RemoteToolset, ToolContext, Toolset, ToolsetServer
from mcp_toolset.transports.http.post import KeptEvents, SessionEvents

pytestmark = pytest.mark.anyio
Event = tuple[str, Any]
"""The id of an event, and its message; `None` where it has none."""


class Work:
    """A tool that says something, waits, and goes on."""

    def __init__(self) -> None:
        self.go_on = anyio.Event()
        self.answer = "done"

    async def work(self, context: ToolContext) -> str:
        """Work, and say how it goes."""
        await context.log("info", "one")
        await self.go_on.wait()
        await context.log("info", "two")
        return self.answer

    async def ask(self, context: ToolContext) -> str:
        """Ask, after a word."""
        await context.log("info", "one")
        await self.go_on.wait()
        return str((await context.ask("Your name?", SCHEMA)).content["answer"])

    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


class Coming(Session):
    """A legacy session by hand, of a client that breaks off and comes back."""

    @asynccontextmanager
    async def events(self, method: str, last: str = "", **more: Any) -> AsyncGenerator[AsyncIterator[Event]]:
        headers = {**self.headers, **({"last-event-id": last} if last else {})}
        async with self.http.stream(method, "/mcp", headers=headers, **more) as response:
            kind = response.headers["content-type"]
            assert kind.startswith("text/event-stream"), await response.aread()
            yield events_of(response)

    async def begun(self, name: str = "work") -> list[Event]:
        """The first two events of a call, whose connection is broken off then."""
        async with self.events("POST", content=body_of(call(name))) as events:
            return [await anext(events), await anext(events)]

    async def rest(self, last: str) -> list[Event]:
        async with self.events("GET", last) as events:
            return [event async for event in events]

    async def refused(self, last: str) -> tuple[int, str]:
        answer = await self.http.get("/mcp", headers={**self.headers, "last-event-id": last})
        return answer.status_code, answer.text


async def events_of(response: httpx2.Response) -> AsyncIterator[Event]:
    name = ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(":")
        if field == "id":
            name = value.strip()
        if field == "data":
            yield name, json.loads(value) if value.strip() else None


def said(events: list[Event]) -> list[Any]:
    """What comes in events: log messages, and the text of the answer."""
    return [
        message["params"]["data"] if "params" in message else message["result"]["content"][0]["text"]
        for _, message in events
        if message is not None
    ]


@pytest.fixture
def work() -> Work:
    return Work()


@asynccontextmanager
async def serving(server: ToolsetServer, **options: Any) -> AsyncGenerator[tuple[Coming, KeptEvents]]:
    app = server.http_app(**options)
    with anyio.fail_after(60):
        async with server, listening(app) as url, httpx2.AsyncClient(base_url=url, timeout=60) as http:
            session = Coming(http)
            await session.open()
            yield session, endpoint(app)._kept


def toolset(work: Work) -> ToolsetServer:
    return ToolsetServer(Toolset(work.work, work.ask, work.add), capabilities=("ask",))


async def test_p5_a_client_whose_connection_broke_comes_back_for_the_rest(work: Work) -> None:
    async with serving(toolset(work)) as (session, _):
        (first, primed), (second, log) = await session.begun()
        assert primed is None and log["params"]["data"] == "one"
        work.go_on.set()
        rest = await session.rest(second)
        again = await session.rest(first)
    assert rest[0] == (second, None)
    assert said(rest) == ["two", "done"]
    assert said(again) == ["one", "two", "done"]
    assert len({name for name, _ in again}) == 4
    assert rest[1:] == again[2:]


async def test_p5_a_client_that_comes_back_early_is_sent_what_is_said_from_then_on(work: Work) -> None:
    async with serving(toolset(work)) as (session, _):
        _, (last, _) = await session.begun()
        async with session.events("GET", last) as events:
            assert await anext(events) == (last, None)
            work.go_on.set()
            assert said([event async for event in events]) == ["two", "done"]


async def test_p5_of_two_that_come_back_the_later_one_has_the_rest(work: Work) -> None:
    async with serving(toolset(work)) as (session, _):
        _, (last, _) = await session.begun()
        async with session.events("GET", last) as before, session.events("GET", last) as after:
            assert await anext(after) == (last, None)
            assert [event async for event in before] == [(last, None)]
            work.go_on.set()
            assert said([event async for event in after]) == ["two", "done"]


async def test_p5_a_question_reaches_a_client_that_has_come_back(work: Work) -> None:
    async with serving(toolset(work)) as (session, _):
        _, (last, _) = await session.begun("ask")
        async with session.events("GET", last) as events:
            await anext(events)
            work.go_on.set()
            _, asked = await anext(events)
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": ELICITATION}
            assert (await session.post(answer)).status_code == 202
            assert said([event async for event in events]) == ["Ada"]


async def test_p5_a_client_that_has_come_back_may_take_its_time_to_answer(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, coming_back=0, ping_interval=0.01)
    async with serving(toolset(work)) as (session, _), AsyncExitStack() as stack:
        async with session.events("POST", content=body_of(call("ask"))) as before:
            _, (last, _) = await anext(before), await anext(before)
            events = await stack.enter_async_context(session.events("GET", last))
            await anext(events)
        for number in range(10):
            # The server has seen meanwhile that the first connection is gone.
            assert (await session.post(call("add", number=f"add-{number}"))).status_code == 200
        work.go_on.set()
        _, asked = await anext(events)
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": ELICITATION}
        assert (await session.post(answer)).status_code == 202
        assert said([event async for event in events]) == ["Ada"]


async def test_p5_a_call_whose_client_has_stayed_away_asks_nobody(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, coming_back=0, ping_interval=0)
    async with serving(toolset(work)) as (session, _):
        _, (last, _) = await session.begun("ask")
        for number in range(10):
            # The server has seen meanwhile that the connection is gone.
            assert (await session.post(call("add", number=f"add-{number}"))).status_code == 200
        async with session.events("GET", last) as events:
            await anext(events)
            work.go_on.set()
            _, answer = await anext(events)
    assert answer["result"]["isError"], answer


async def test_p5_of_a_plain_call_nothing_is_kept(work: Work) -> None:
    async with serving(toolset(work)) as (session, kept):
        answer = await session.post(call("add"))
        assert answer.headers["content-type"] == "application/json"
        assert kept.size == 0


async def test_p5_an_older_client_gets_no_ids_and_nothing_is_kept_for_it(work: Work) -> None:
    work.go_on.set()
    async with serving(toolset(work)) as (session, kept):
        older = Coming(session.http)
        older.headers = {**session.headers, "mcp-protocol-version": "2025-06-18"}
        del older.headers["mcp-session-id"]
        hello = {**INITIALIZE["params"], "protocolVersion": "2025-06-18"}
        begun = await older.post({**INITIALIZE, "params": hello})
        older.headers["mcp-session-id"] = begun.headers["mcp-session-id"]
        await older.post(note("notifications/initialized"))
        async with older.events("POST", content=body_of(call("work"))) as events:
            found = [event async for event in events]
        assert said(found) == ["one", "two", "done"]
        assert {name for name, _ in found} == {""}
        assert kept.size == 0


async def test_p5_only_the_session_of_a_call_has_its_rest_and_only_while_it_is_open(work: Work) -> None:
    async with serving(toolset(work)) as (session, kept):
        _, (last, _) = await session.begun()
        work.go_on.set()
        assert said(await session.rest(last)) == ["two", "done"]
        other = Coming(session.http)
        await other.open()
        status, text = await other.refused(last)
        assert status == 410 and "call again" in text
        assert kept.size > 0
        await session.http.delete("/mcp", headers=session.headers)
        assert (await session.refused(last))[0] == 404
        assert kept.size == 0


async def test_p5_an_answer_that_is_too_big_to_be_kept_is_told_of(work: Work) -> None:
    work.answer = "x" * 5000
    async with serving(toolset(work), limits=HttpLimits(max_replay_bytes_per_session=2000)) as (
        session,
        kept,
    ):
        _, (last, _) = await session.begun()
        work.go_on.set()
        *_, (_, answer) = await session.rest(last)
        assert "max_replay_bytes_per_session" in answer["error"]["message"]
        assert answer["id"] == 1
        assert kept.size <= 2000


async def test_p5_newer_events_take_the_place_of_older_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptEvents(HttpLimits(max_replay_bytes=500, max_replay_bytes_per_session=300))
    one, other = SessionEvents(kept), SessionEvents(kept)
    first = one.log(1)
    for _ in range(9):
        first.add(b"x" * 50)
    assert one.size <= 300 and first.after(0)[-1][0] == 9
    assert [number for number, _ in first.after(0)] == [7, 8, 9]
    first.end(b"y" * 50)
    for _ in range(9):
        other.log(2).end(b"z" * 50)
    assert kept.size == one.size + other.size <= 500
    late = one.log(3)
    one.forget()
    assert one.logs.get(1) is None and one.size == 0 and kept.size == other.size
    # A call that ends with its session is answered after that.
    late.add(b"x")
    late.end(b"x" * 400)
    assert one.size == 0 and kept.size == other.size


async def test_p5_old_events_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, kept_events=0.0)
    kept = KeptEvents(HttpLimits())
    session = SessionEvents(kept)
    log = session.log(1)
    log.end(b"z")
    assert session.logs.get(log.name) is log
    with anyio.fail_after(30):
        while session.logs.get(log.name) is not None:
            await anyio.lowlevel.checkpoint()
    assert kept.size == 0


class Stored(EventStore):
    """The events of one server, all of them."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str:
        stream = self.events[int(last_event_id) - 1][0]
        for number, (name, message) in enumerate(self.events, 1):
            if number > int(last_event_id) and name == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


@asynccontextmanager
async def closing_server(go_on: anyio.Event) -> AsyncGenerator[str]:
    """A server of the SDK with a tool that closes the stream of its call early."""
    mcp = MCPServer("closing")

    @mcp.tool()
    async def poll(ctx: Context) -> str:
        """Close the stream, and go on."""
        await ctx.close_sse_stream()
        await go_on.wait()
        return "polled"

    async with hosted(mcp.streamable_http_app(event_store=Stored(), retry_interval=10)) as url:
        yield f"{url}/mcp"


async def test_p5_a_stream_that_a_mounted_server_closes_early_is_closed_to_the_client_too() -> None:
    go_on = anyio.Event()
    with anyio.fail_after(60):
        async with closing_server(go_on) as url:
            server = ToolsetServer(RemoteToolset(url, name="up"))
            async with serving(server) as (session, _):
                async with session.events("POST", content=body_of(call("poll"))) as events:
                    closed = [event async for event in events]
                assert [message for _, message in closed] == [None]
                go_on.set()
                assert said(await session.rest(closed[0][0])) == ["polled"]


async def test_p5_the_sdks_client_comes_back_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, come_back_after=10)
    go_on = anyio.Event()
    go_on.set()
    async with closing_server(go_on) as url:
        async with serving(ToolsetServer(RemoteToolset(url, name="up"))) as (session, _):
            async with Client(f"{session.http.base_url}/mcp", mode="legacy") as client:
                answer = await client.call_tool("poll", {})
    assert answer.content[0].text == "polled"  # type: ignore[union-attr]
