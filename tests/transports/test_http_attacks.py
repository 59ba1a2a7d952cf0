"""What hostile clients and clumsy hosts can do to what is answered before the SDK's transport."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.types import Message
from tests.transports.test_http_endpoint import HEADERS as MODERN_HEADERS
from tests.transports.test_http_endpoint import Wire, endpoint
from tests.transports.test_http_endpoint import call as modern_call
from tests.transports.test_legacy_sessions import (
    ELICITATION,
    INITIALIZE,
    LEAST_ID,
    SCHEMA,
    Session,
    Stage,
    call,
    deadline_of,
    note,
    serving,
    session_of,
    waiting,
)

from mcp_toolset import ToolContext, Toolset, ToolsetServer
from mcp_toolset.context.connection import Connection
from mcp_toolset.errors import ToolsetError
from mcp_toolset.sdk.http_sessions import MAX_BODY
from mcp_toolset.transports.http import app as http
from mcp_toolset.transports.http import post as posted_requests
from mcp_toolset.transports.http.headers import Body, usual_head

pytestmark = pytest.mark.anyio

HEAD = [
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
]


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def app(stage: Stage) -> AsyncIterator[Starlette]:
    server, built = serving(stage)
    async with server, built.router.lifespan_context(built):
        yield built


def connection_of(stage: Stage, session: Session) -> Connection:
    assert stage.server is not None
    found = stage.server.lowlevel.over_http(session.headers["mcp-session-id"])
    assert found is not None
    return found


async def test_f27_a_call_whose_client_has_left_does_not_keep_its_session_for_ever(
    app: Starlette, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK would count such a session as idle: nobody can be waiting, and the call may never end."""
    monkeypatch.setattr(posted_requests, "PING_INTERVAL", 0.02)
    async with session_of(app) as session, anyio.create_task_group() as group:
        wire = Wire(call("wait"), session.headers)
        group.start_soon(app, wire.scope, wire.receive, wire.send)
        await stage.started.wait()
        held = endpoint(app)[1]._sessions._known[session.headers["mcp-session-id"].encode()]
        asked = anyio.Event()
        holding = held.hold

        async def hold(scope: Any) -> bool:
            asked.set()
            return await holding(scope)

        monkeypatch.setattr(held, "hold", hold)
        await asked.wait()
        wire.gone.set()
        await anyio.wait_all_tasks_blocked()
        idle, held._held_until = deadline_of(stage, session), -1.0
        idle.deadline = anyio.current_time() + 0.3
        await stage.ended.wait()
    assert stage.seen == ["cancelled"]


async def test_handshakes_that_are_repeated_leave_nothing_behind(app: Starlette, stage: Stage) -> None:
    async with session_of(app) as session:
        for _ in range(16):
            assert (await session.post(INITIALIZE)).status_code == 200
            assert (await session.post(note("notifications/initialized"))).status_code == 202
        connection: Any = connection_of(stage, session)
        assert 0 < len(connection._callbacks) < 16
        assert (await session.post(call())).status_code == 200


def test_f33_a_size_of_more_digits_than_python_reads_is_the_sdks_to_judge() -> None:
    assert usual_head([*HEAD, (b"content-length", b"1" * 5000)]) is None
    assert usual_head([*HEAD, (b"content-length", b"0" * 5000 + b"1")]) is None
    assert usual_head([*HEAD, (b"content-length", b"%d" % MAX_BODY)]) is not None


async def test_f33_a_body_in_crumbs_takes_no_more_room_than_in_one_piece() -> None:
    async def receive() -> Message:
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    parts: list[Message] = [
        {"type": "http.request", "body": b"%d" % digit, "more_body": digit < 9} for digit in range(10)
    ]
    body = Body(receive)
    assert await body.read() == b"0123456789"
    again = [await body.receive(), await body.receive()]
    assert again[0] == {"type": "http.request", "body": b"0123456789", "more_body": False}
    assert again[1]["type"] == "http.disconnect"


@pytest.mark.parametrize("end", [{"type": "http.disconnect"}, {"type": "http.request", "body": b"c"}])
async def test_f33_a_body_that_was_not_read_to_its_end_is_passed_on_as_it_came(end: Message) -> None:
    async def receive() -> Message:
        return parts.pop(0)

    large = b"x" * (MAX_BODY // 2 + 1)
    first: list[Message] = [
        {"type": "http.request", "body": large, "more_body": True},
        {"type": "http.request", "body": large, "more_body": True},
    ]
    gone = end["type"] == "http.disconnect"
    parts = [first[0], end] if gone else [*first, end]
    body = Body(receive)
    assert await body.read() is None
    assert body.left is gone
    taken = bytearray()
    while (message := await body.receive()).get("more_body", False):
        taken += message["body"]
    taken += message.get("body", b"")
    assert (message["type"], len(taken)) == (end["type"], len(large) if gone else 2 * len(large) + 1)


class Beside:
    """A tool that leaves a task of its own behind, which asks."""

    def __init__(self, group: TaskGroup) -> None:
        self.group = group
        self.asked = anyio.Event()
        self.told = anyio.Event()
        self.heard: list[object] = []

    async def leave(self, context: ToolContext) -> str:
        """Have something asked beside the call."""
        self.group.start_soon(self._ask, context)
        await self.asked.wait()
        return "left"

    async def _ask(self, context: ToolContext) -> None:
        try:
            self.heard.append(dict((await context.ask("Your name?", SCHEMA)).content))
        except ToolsetError as fault:
            self.heard.append(fault)
        self.told.set()


@pytest.mark.parametrize("answered", [True, False])
async def test_p5_a_question_that_outlives_its_call_is_answered_or_ends_with_the_session(
    answered: bool,
) -> None:
    """As over the SDK: the question went out before the answer, and its client may take its time."""
    async with anyio.create_task_group() as own:
        beside = Beside(own)
        server = ToolsetServer(Toolset(beside.leave), capabilities=("ask",))
        app = server.http_app()
        async with server, app.router.lifespan_context(app), session_of(app) as session:
            wire = Wire(call("leave"), session.headers)
            async with anyio.create_task_group() as group:
                group.start_soon(app, wire.scope, wire.receive, wire.send)
                while len(wire.sent) < 2:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                beside.asked.set()
            question = json.loads(wire.sent[1]["body"].split(b"data: ")[1])
            assert question["id"] > LEAST_ID
            if answered:
                answer = {"jsonrpc": "2.0", "id": question["id"], "result": ELICITATION}
                assert (await session.post(answer)).status_code == 202
            else:
                left = await session.http.delete("/mcp", headers=session.headers)
                assert left.status_code == 200
            await beside.told.wait()
    assert (beside.heard == [{"answer": "Ada"}]) is answered


@pytest.mark.parametrize("number", [None, 1.0])
async def test_f26_a_cancellation_with_an_id_that_is_none_is_one_still(
    app: Starlette, stage: Stage, number: object
) -> None:
    """Some clients write `"id": null` into every notification; the SDK takes it for one."""
    async with session_of(app) as session, waiting(session, stage, 7) as answers:
        cancelled = {**note("notifications/cancelled", requestId=7), "id": number}
        assert (await session.post(cancelled)).status_code == 202
    assert stage.seen == ["cancelled"]
    assert answers[0]["error"]["code"] == -32800


async def test_f26_a_session_cannot_cancel_or_answer_for_another(app: Starlette, stage: Stage) -> None:
    async with (
        session_of(app) as session,
        session_of(app) as other,
        waiting(session, stage, 7) as answers,
    ):
        asking = Wire(call("ask", number=8), session.headers)
        async with anyio.create_task_group() as group:
            group.start_soon(app, asking.scope, asking.receive, asking.send)
            while len(asking.sent) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            question = json.loads(asking.sent[1]["body"].split(b"data: ")[1])
            forged = {"action": "accept", "content": {"answer": "Eve"}}
            for from_other in (
                note("notifications/cancelled", requestId=7),
                note("notifications/cancelled", requestId=8),
                {"jsonrpc": "2.0", "id": question["id"], "result": forged},
            ):
                assert (await other.post(from_other)).status_code == 202
            own = {"jsonrpc": "2.0", "id": question["id"], "result": ELICITATION}
            assert (await session.post(own)).status_code == 202
            stage.go_on.set()
    assert stage.seen == ["finished"]
    assert answers[0]["result"]["content"][0]["text"] == "waited"
    assert b"Ada" in asking.sent[-1]["body"]


async def test_f44_a_modern_call_that_a_stop_ends_is_not_told_to_be_sent_again(
    app: Starlette, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 408 would say that it had not arrived."""
    monkeypatch.setattr(http, "_DRAIN", 0.05)
    wire = Wire(modern_call("wait"), {**MODERN_HEADERS, "mcp-name": "wait"})
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(app, wire.scope, wire.receive, wire.send)
            await stage.started.wait()
            app.state.draining.stop()
    assert stage.seen == ["cancelled"]
    assert wire.sent[0]["status"] == 503 and not wire.sent[-1].get("more_body", False)
