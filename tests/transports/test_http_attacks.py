"""What hostile clients and clumsy hosts can do to the endpoint of streamable HTTP."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from starlette.applications import Starlette
from starlette.types import Message
from tests.support.bounds import bound, bounds
from tests.transports.test_http_endpoint import HEADERS as MODERN_HEADERS
from tests.transports.test_http_endpoint import META, Wire, endpoint, posted
from tests.transports.test_http_endpoint import call as modern_call
from tests.transports.test_legacy_sessions import (
    ELICITATION,
    HEADERS,
    INITIALIZE,
    SCHEMA,
    Session,
    Stage,
    call,
    note,
    rest,
    serving,
    session_of,
    waiting,
)

from mcp_toolset import Prompts, ToolContext, Toolset, ToolsetError, ToolsetServer

pytestmark = pytest.mark.anyio

HALF = "\ud800"


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def app(stage: Stage) -> AsyncIterator[Starlette]:
    server, built = serving(stage)
    async with server, built.router.lifespan_context(built):
        yield built


def connection_of(app: Starlette, session: Session) -> Any:
    found = endpoint(app).sessions.find(session.headers["mcp-session-id"], None)
    assert found is not None
    return found.connection


async def test_f27_a_call_whose_client_has_left_does_not_keep_its_session_for_ever(
    app: Starlette, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a session counts as idle: nobody can be waiting, and the call may never end."""
    bounds(monkeypatch, ping_interval=0.02)
    async with session_of(app) as session, anyio.create_task_group() as group:
        wire = Wire(call("wait"), session.headers)
        group.start_soon(app, wire.scope, wire.receive, wire.send)
        await stage.started.wait()
        rest(app, session)
        assert not stage.seen
        wire.gone.set()
        while session.headers["mcp-session-id"] not in endpoint(app).sessions._idle:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        rest(app, session)
        await stage.ended.wait()
    assert stage.seen == ["cancelled"]


async def test_handshakes_that_are_repeated_leave_nothing_behind(app: Starlette, stage: Stage) -> None:
    async with session_of(app) as session:
        for _ in range(16):
            assert (await session.post(INITIALIZE)).status_code == 200
            assert (await session.post(note("notifications/initialized"))).status_code == 202
        assert 0 < len(connection_of(app, session)._callbacks or ()) < 16
        assert (await session.post(call())).status_code == 200


async def test_f33_a_size_that_is_too_big_is_refused_before_the_body_is_read(app: Starlette) -> None:
    for digits in (b"1" * 5000, b"%d" % (bound("body_bytes") + 1)):
        wire = Wire(modern_call(), MODERN_HEADERS)
        wire.scope["headers"][-1] = (b"content-length", digits)
        await app(wire.scope, wire.receive, wire.send)
        assert wire.sent[0]["status"] == 413 and len(wire.unread) == 1


def in_parts(*parts: Message) -> Wire:
    """A request whose body comes so, and of which no size was told."""
    wire = Wire(b"", MODERN_HEADERS)
    wire.scope["headers"].pop()
    wire.unread = [*reversed(parts)]
    return wire


async def test_f33_a_body_in_crumbs_is_read_as_one(app: Starlette) -> None:
    body = json.dumps(modern_call()).encode()
    wire = in_parts(
        *({"type": "http.request", "body": body[at : at + 1], "more_body": True} for at in range(len(body))),
        {"type": "http.request", "body": b"", "more_body": False},
    )
    await app(wire.scope, wire.receive, wire.send)
    assert wire.sent[0]["status"] == 200


@pytest.mark.parametrize("last", [{"type": "http.disconnect"}, {"type": "http.request", "body": b"c"}])
async def test_f33_a_body_that_is_too_big_or_has_no_end_is_not_read_on(app: Starlette, last: Message) -> None:
    large = b"x" * (bound("body_bytes") // 2 + 1)
    left = last["type"] == "http.disconnect"
    parts: list[Message] = [{"type": "http.request", "body": large, "more_body": True}] * (1 if left else 2)
    wire = in_parts(*parts, last)
    await app(wire.scope, wire.receive, wire.send)
    assert [message.get("status") for message in wire.sent][:1] == ([] if left else [413])
    assert len(wire.unread) == (0 if left else 1)


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
    async with session_of(app) as session, session_of(app) as other, waiting(session, stage, 7) as answers:
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
    bounds(monkeypatch, drain=0.05)
    wire = Wire(modern_call("wait"), {**MODERN_HEADERS, "mcp-name": "wait"})
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(app, wire.scope, wire.receive, wire.send)
            await stage.started.wait()
            app.state.draining.stop()
    assert stage.seen == ["cancelled"]
    assert wire.sent[0]["status"] == 503 and not wire.sent[-1].get("more_body", False)


@pytest.mark.parametrize(
    "message",
    [{**modern_call(), "id": HALF}, modern_call(_meta={**META, "progressToken": HALF})],
    ids=["id", "progress token"],
)
async def test_what_could_not_be_sent_back_to_a_modern_client_is_refused(
    app: Starlette, message: dict[str, Any]
) -> None:
    """Half of a surrogate pair is read; no answer in UTF-8 can repeat it."""
    answer = await posted(app, MODERN_HEADERS, json.dumps(message).encode())
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, PARSE_ERROR)


@pytest.mark.parametrize("params", [[HALF], HALF, {"name": HALF, "_meta": META}, {"_meta": HALF}])
async def test_u113_halves_of_characters_in_odd_parameters_are_refused(app: Starlette, params: Any) -> None:
    message = {**modern_call(), "params": params}
    answer = await posted(app, MODERN_HEADERS, json.dumps(message).encode())
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] in (INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH) and len(error["message"]) > 15


async def test_u113_half_of_a_character_in_an_argument_of_a_prompt_is_the_mistake_of_its_client() -> None:
    prompts = Prompts()

    @prompts.add
    def translate(text: str) -> str:
        """Translate."""
        return f"Translate: {text}"

    server = ToolsetServer(Toolset(), prompts=prompts)
    built = server.http_app()
    headers = {**MODERN_HEADERS, "mcp-method": "prompts/get", "mcp-name": "translate"}

    def asked(text: str) -> bytes:
        params = {"name": "translate", "arguments": {"text": text}, "_meta": META}
        return json.dumps({"jsonrpc": "2.0", "id": 5, "method": "prompts/get", "params": params}).encode()

    async with server, built.router.lifespan_context(built):
        refused = await posted(built, headers, asked(f"a{HALF}"))
        answer = await posted(built, headers, asked("a\U0001f600"))
    assert refused.status_code == 400 and refused.json()["id"] == 5
    assert refused.json()["error"]["code"] == INVALID_PARAMS
    assert "send whole characters" in refused.json()["error"]["message"]
    assert answer.json()["result"]["messages"][0]["content"]["text"] == "Translate: a\U0001f600"


async def test_half_of_a_surrogate_pair_in_an_argument_of_a_modern_call_is_read(app: Starlette) -> None:
    answer = await posted(
        app, MODERN_HEADERS, json.dumps(modern_call(arguments={"a": 1, "b": HALF})).encode()
    )
    assert answer.status_code == 200
    assert answer.json()["result"]["isError"]


@pytest.mark.parametrize(
    "many", [b"[],", b"{},", b'"\\ud800",[],[],', b"1,"], ids=["lists", "objects", "halves", "numbers"]
)
async def test_u113_a_body_whose_values_would_hold_up_all_others_is_not_read(
    app: Starlette, many: bytes
) -> None:
    """Four MB may have two million values, which take seconds of the whole process."""
    dense = b"[%b0]" % (many * (3_900_000 // len(many)))
    body = json.dumps(modern_call(arguments={"a": 1, "b": "HERE"})).encode().replace(b'"HERE"', dense)
    refused = await posted(app, MODERN_HEADERS, body)
    async with session_of(app) as session:
        also = await posted(app, session.headers, body)
        assert (await session.post(call(number=3))).status_code == 200
    for answer in (refused, also):
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, PARSE_ERROR)
        assert "more values than can be read at once: 250,000" in answer.text


async def test_a_session_that_ends_while_its_client_says_hello_is_announced_nothing_for_ever(
    app: Starlette, stage: Stage
) -> None:
    """The client takes its 202 after it has ended the session."""
    assert stage.server is not None
    sessions = stage.server.answers.announcements._sessions
    async with session_of(app) as session:
        answer = await session.post(INITIALIZE, HEADERS)
        headers = {**HEADERS, "mcp-session-id": answer.headers["mcp-session-id"]}
        before = dict(sessions)
        wire, taken, sending = Wire(note("notifications/initialized"), headers), anyio.Event(), anyio.Event()

        async def send(_: Message) -> None:
            sending.set()
            await taken.wait()

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(app, wire.scope, wire.receive, send)
                await sending.wait()
                assert (await session.http.delete("/mcp", headers=headers)).status_code == 200
                taken.set()
        assert sessions == before


@pytest.mark.parametrize("said", ["x" * 200_000, {f"key {number}": {} for number in range(3000)}])
async def test_u113_a_handshake_that_is_too_long_to_be_kept_opens_no_session(
    app: Starlette, said: object
) -> None:
    """A session stays for half an hour, and there are thousands."""
    client = {"name": "client", "version": "1", "icons": [{"src": "data:," + "x" * 60_000}]}
    params = {**INITIALIZE["params"], "clientInfo": client}
    usual = await posted(app, HEADERS, json.dumps({**INITIALIZE, "params": params}).encode())
    assert "mcp-session-id" in usual.headers
    params = {**params, "capabilities": {"experimental": {"odd": {"said": said}}}}
    long = await posted(app, HEADERS, json.dumps({**INITIALIZE, "params": params}).encode())
    assert "mcp-session-id" not in long.headers
    assert "send shorter ones" in long.text


async def test_u113_requests_that_are_answered_hold_no_more_than_their_budget(
    app: Starlette, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, held_per_caller=100_000)
    async with session_of(app) as session, anyio.create_task_group() as group:
        long = {"odd": "x" * 60_000}
        group.start_soon(session.post, call("wait", _meta=long))
        await stage.started.wait()
        refused = await session.post(call(number=2, _meta=long))
        assert refused.status_code == 503
        assert "Too many long requests" in refused.text
        assert (await session.post(call(number=3))).status_code == 200
        stage.go_on.set()
        await stage.ended.wait()
        with anyio.fail_after(30):
            while (await session.post(call(number=4, _meta=long))).status_code != 200:  # noqa: ASYNC110
                await anyio.sleep(0.01)


async def test_u113_each_long_request_begins_in_a_turn_of_its_own(
    app: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten bodies that arrive together cost ten times as much as one, and others have their turns between."""
    bounds(monkeypatch, turn=-1.0)
    count, begun = 0, list[int]()

    def step() -> None:
        nonlocal count
        count += 1
        asyncio.get_running_loop().call_soon(step)

    whole = type(endpoint(app))._take_with_body

    async def noted(self: Any, *arguments: Any) -> None:
        begun.append(count)
        await whole(self, *arguments)

    monkeypatch.setattr(type(endpoint(app)), "_take_with_body", noted)
    step()
    async with session_of(app) as session, anyio.create_task_group() as group:
        begun.clear()
        for number in range(10):
            group.start_soon(session.post, call(number=number, _meta={"odd": "x" * 10_000}))
    assert len(set(begun[:10])) == 10


@pytest.mark.parametrize("message", [INITIALIZE, modern_call()], ids=["handshakes", "calls"])
async def test_u113_requests_that_come_at_once_begin_in_turns_of_the_loop(
    app: Starlette, message: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Others have their turns between them, and who comes after a burst does not wait for all of it."""
    count, begun = 0, list[tuple[int, Any]]()
    caplog.set_level("INFO", "mcp_toolset.server")

    def step() -> None:
        nonlocal count
        count += 1
        asyncio.get_running_loop().call_soon(step)

    whole = type(endpoint(app))._take_with_body

    async def noted(self: Any, scope: Any, *arguments: Any) -> None:
        begun.append((count, scope["number"]))
        await whole(self, scope, *arguments)

    monkeypatch.setattr(type(endpoint(app)), "_take_with_body", noted)
    step()
    headers = HEADERS if message is INITIALIZE else MODERN_HEADERS
    wires = [Wire(message, headers) for _ in range(400)]
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for number, wire in enumerate(wires):
                group.start_soon(app, wire.scope | {"number": number}, wire.receive, wire.send)
                if number == 398:
                    await checkpoint()
                    await checkpoint()
    turns_of = Counter(turn for turn, _ in begun)
    assert len(begun) == 400
    assert max(turns_of.values()) <= bound("begun_at_once")
    assert [number for _, number in begun].index(399) < 80
    assert [number for _, number in begun].index(0) < 80
    if message is INITIALIZE:
        told = [record.message for record in caplog.records if "what is served" in record.message]
        assert len(told) < 100
        assert "more clients ask what is served; at most 16 a second are named here" in told


async def test_u113_a_request_that_is_given_up_before_its_turn_takes_no_turn(
    app: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, whole = 0, type(endpoint(app))._take_with_body

    async def noted(self: Any, *arguments: Any) -> None:
        nonlocal begun
        begun += 1
        await whole(self, *arguments)

    monkeypatch.setattr(type(endpoint(app)), "_take_with_body", noted)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for wire in [Wire(INITIALIZE, HEADERS) for _ in range(100)]:
                group.start_soon(app, wire.scope, wire.receive, wire.send)
            await checkpoint()
            await checkpoint()
            group.cancel_scope.cancel()
    assert begun <= 2 * bound("begun_at_once")
    assert (await posted(app, HEADERS, json.dumps(INITIALIZE).encode())).status_code == 200


async def test_u113_a_request_to_listen_that_is_too_long_to_be_kept_is_refused(app: Starlette) -> None:
    wanted = {"resourceSubscriptions": [f"x://{number}" for number in range(5000)]}
    params = {"notifications": wanted, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": params}
    headers = {**MODERN_HEADERS, "mcp-method": "subscriptions/listen"}
    del headers["mcp-name"]
    told = await posted(app, headers, json.dumps(message).encode())
    assert told.status_code == 400
    assert "name fewer resources" in told.json()["error"]["message"]
