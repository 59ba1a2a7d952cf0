"""HTTP+SSE: one event stream for each client, and the POSTs that belong to it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Message
from tests.support.bounds import bounds
from tests.support.served import listening as served_app
from tests.support.served import served
from tests.transports.test_http_endpoint import META, body_of
from tests.transports.test_http_endpoint import call as modern_call
from tests.transports.test_legacy_sessions import ELICITATION, INITIALIZE, Stage, call, events, note, serving

from mcp_toolset import HttpLimits, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.errors import StateError
from mcp_toolset.transports.http.budgets import Unsent, weight_of
from mcp_toolset.transports.http.sse import EventStream

pytestmark = pytest.mark.anyio
TASKS = "io.modelcontextprotocol/tasks"
JSON = {"content-type": "application/json"}


class Wire:
    """A client: its stream, and where it posts."""

    def __init__(self, http: httpx2.AsyncClient, path: str, heard: AsyncIterator[dict[str, Any]]) -> None:
        self.http, self.path, self._heard = http, path, heard

    async def post(self, message: Any, path: str = "", headers: Any = JSON) -> httpx2.Response:
        return await self.http.post(path or self.path, headers=headers, content=body_of(message))

    async def hear(self) -> dict[str, Any]:
        return await anext(self._heard)

    async def greet(self) -> None:
        assert (await self.post(INITIALIZE)).status_code == 202
        assert (await self.hear())["result"]["protocolVersion"] == "2025-11-25"
        assert (await self.post(note("notifications/initialized"))).status_code == 202


@asynccontextmanager
async def listening(http: httpx2.AsyncClient, prefix: str = "") -> AsyncGenerator[Wire]:
    async with http.stream("GET", f"{prefix}/sse") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.aiter_lines()
        async for line in lines:
            if line.startswith("data: "):
                break
        yield Wire(http, line.removeprefix("data: "), events(_Rest(lines)))  # type: ignore[arg-type]


class _Rest:
    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    def aiter_lines(self) -> AsyncIterator[str]:
        return self._lines


@pytest.fixture
def stage() -> Stage:
    return Stage()


@asynccontextmanager
async def over_http(stage: Stage, around: Any = None, **options: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    server, app = serving(stage, **options)
    shown: Any = app if around is None else around(app)
    shown.state = app.state
    with anyio.fail_after(60):
        async with server, served_app(shown) as url, httpx2.AsyncClient(base_url=url, timeout=60) as http:
            yield http


async def test_p5_calls_reports_and_questions_go_on_one_stream_in_order(stage: Stage) -> None:
    async with over_http(stage) as http, listening(http) as wire:
        await wire.greet()
        await wire.post(call("count", {"until": 2}, number=1, _meta={"progressToken": "t"}))
        heard = [await wire.hear() for _ in range(4)]
        assert [message.get("method") for message in heard] == [
            "notifications/progress",
            "notifications/progress",
            "notifications/message",
            None,
        ]
        await wire.post(call("ask", number=2))
        question = await wire.hear()
        await wire.post({"jsonrpc": "2.0", "id": question["id"], "result": ELICITATION})
        assert (await wire.hear())["result"]["content"][0]["text"] == "Ada"


async def test_the_modern_era_is_spoken_on_it_too(stage: Stage) -> None:
    async with over_http(stage) as http, listening(http) as wire:
        await wire.post({**modern_call(), "id": "m"})
        answer = await wire.hear()
        assert answer["id"] == "m" and answer["result"]["resultType"] == "complete"
        await wire.post({"jsonrpc": "2.0", "id": 2, "method": "server/discover", "params": {"_meta": META}})
        assert (await wire.hear())["result"]["supportedVersions"] == ["2026-07-28"]


async def test_u113_a_message_whose_values_would_hold_up_all_others_is_not_taken(stage: Stage) -> None:
    async with over_http(stage) as http, listening(http) as wire:
        await wire.greet()
        dense = json.dumps(call(number=7)).encode()[:-1] + b',"x":[%b0]}' % (b"[]," * 500_000)
        assert (await wire.post(dense)).status_code == 400
        await wire.post(call(number=8))
        assert (await wire.hear())["id"] == 8


async def test_f27_a_client_that_leaves_cancels_its_calls_and_its_session_is_gone(stage: Stage) -> None:
    async with over_http(stage) as http:
        async with listening(http) as wire:
            await wire.greet()
            await wire.post(call("wait"))
            await stage.started.wait()
        await stage.ended.wait()
        assert stage.seen == ["cancelled"]
        while (await wire.post(call())).status_code != 404:  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_f26_a_notification_cancels_a_call_and_no_answer_comes(stage: Stage) -> None:
    async with over_http(stage) as http, listening(http) as wire:
        await wire.greet()
        await wire.post(call("wait", number=7))
        await stage.started.wait()
        await wire.post({**note("notifications/cancelled", requestId=7), "id": None})
        await stage.ended.wait()
        await wire.post(call(number=8))
        assert (await wire.hear())["id"] == 8


async def test_f30_a_client_posts_to_its_own_stream_alone(stage: Stage) -> None:
    users: list[str] = []

    def around(app: ASGIApp) -> ASGIApp:
        async def authenticated(scope: Any, receive: Any, send: Any) -> None:
            if users and scope["type"] == "http":
                token = AccessToken(token="t", client_id=users[-1], scopes=[])
                scope = {**scope, "user": AuthenticatedUser(token)}
            await app(scope, receive, send)

        return authenticated

    users.append("ann")
    async with over_http(stage, around) as http, listening(http) as wire:
        await wire.greet()
        users.append("bob")
        assert (await wire.post(call())).status_code == 404
        users.clear()
        assert (await wire.post(call())).status_code == 404
        users.append("ann")
        assert (await wire.post(call(number=5))).status_code == 202
        assert (await wire.hear())["id"] == 5


@pytest.mark.parametrize(
    ("path", "headers", "content", "status"),
    [
        ("/messages/", JSON, b"{}", 400),
        ("/messages/?session_id=x", JSON, b"{}", 400),
        (f"/messages/?session_id={'0' * 32}", JSON, b"{}", 404),
        ("", {"content-type": "text/plain"}, b"{}", 400),
        ("", JSON, b"{", 400),
        ("", JSON, b"[]", 400),
        ("", JSON, b" " * (4 * 1024 * 1024 + 1), 413),
        ("", {**JSON, "host": "evil.example"}, b"{}", 421),
    ],
)
async def test_f33_a_post_that_is_no_message_is_refused_and_harms_no_stream(
    stage: Stage, path: str, headers: Any, content: bytes, status: int
) -> None:
    async with over_http(stage) as http, listening(http) as wire:
        assert (await wire.post(content, path, headers)).status_code == status
        assert (await http.put(wire.path, headers=JSON, content=b"{}")).status_code == 405
        await wire.greet()
        await wire.post(call(number=3))
        assert (await wire.hear())["id"] == 3


async def test_a_head_opens_no_stream(stage: Stage) -> None:
    async with over_http(stage) as http:
        answer = await http.head("/sse")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        # It is over, so that the connection takes another request.
        assert (await http.head("/sse")).status_code == 200


async def test_f33_a_message_that_waited_for_room_is_not_taken_once_its_client_has_left(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, few = anyio.Event(), EventStream.few

    async def noted(stream: EventStream) -> None:
        waits.set()
        await few(stream)

    bounds(monkeypatch, sse_answers=0)
    monkeypatch.setattr(EventStream, "few", noted)
    async with over_http(stage) as http:
        answers = list[int]()

        async def post(wire: Wire) -> None:
            answers.append((await wire.post(call("wait"))).status_code)

        async with anyio.create_task_group() as group:
            async with listening(http) as wire:
                group.start_soon(post, wire)
                await waits.wait()
                assert not answers
        assert answers == [404] and not stage.started.is_set()


async def test_mounted_under_a_prefix_it_names_where_its_clients_post(stage: Stage) -> None:
    server, app = serving(stage)
    outer = Starlette(routes=[Mount("/tools", app=app)], lifespan=app.router.lifespan_context)
    outer.state.draining, outer.state.request_timeout = app.state.draining, app.state.request_timeout
    with anyio.fail_after(60):
        async with (
            server,
            served_app(outer) as url,
            httpx2.AsyncClient(base_url=url, timeout=60) as http,
            listening(http, "/tools") as wire,
        ):
            assert wire.path.startswith("/tools/messages/?session_id=")
            await wire.greet()
            begun = {"accept": "application/json, text/event-stream", **JSON}
            assert (await http.post("/tools/mcp", headers=begun, json=INITIALIZE)).status_code == 200


async def test_u40_a_client_that_has_left_holds_no_room(stage: Stage) -> None:
    sent, unsent, ended = list[bytes](), Unsent(HttpLimits()), list[str]()

    async def send(message: Message) -> None:
        sent.append(message["body"])
        raise OSError("the client has left")

    stream = EventStream(send, unsent, "peer")
    stream.start(lambda chunk: None, lambda: ended.append("ended"))
    for _ in range(3):
        stream.write_line(b"x" * 1000)
    assert unsent.size > 3000 and stream.waiting == 3
    with anyio.fail_after(30):
        await stream.run()
    stream.write_line(b"more")
    assert len(sent) == 1 and ended == ["ended"] and stream.is_cut()
    assert unsent.size == 0 and stream.waiting == 0 and not stream.has_room


async def test_u113_a_call_that_reports_without_a_pause_ends_when_its_client_has_left() -> None:
    begun, ended, reports = anyio.Event(), anyio.Event(), list[int]()

    @tool
    async def restless(context: ToolContext) -> str:
        """Report again and again."""
        begun.set()
        try:
            for step in range(100_000):
                await context.progress(step)
                reports.append(step)
        finally:
            ended.set()
        return "all was reported"

    async with served(ToolsetServer(Toolset(restless))) as url:
        async with httpx2.AsyncClient(base_url=url, timeout=60) as http, listening(http) as wire:
            await wire.greet()
            await wire.post(call("restless", _meta={"progressToken": "t" * 1_000}))
            await begun.wait()
        await ended.wait()
    assert len(reports) < 100_000


async def test_u113_a_body_with_more_values_than_are_read_at_once_is_told_the_bound(stage: Stage) -> None:
    async with over_http(stage) as http, listening(http) as wire:
        refused = await wire.post(call("add", {"a": [1] * 300_000}))
        assert refused.status_code == 400 and "250,000" in refused.text


@pytest.mark.parametrize("id", [None, 1.5, True, [], {}])
async def test_u113_a_request_with_an_id_that_is_none_is_refused(id: object, stage: Stage) -> None:
    """Nobody would ever answer it; a notification with such an id is one, as some clients write it."""
    async with over_http(stage) as http, listening(http) as wire:
        await wire.greet()
        refused = await wire.post({**call(), "id": id})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32600)
        assert (await wire.post({**note("notifications/initialized"), "id": id})).status_code == 202


@pytest.mark.needs("tasks")
async def test_u113_a_task_that_was_begun_over_it_counts_for_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, held_per_caller=100_000)
    go_on = anyio.Event()

    @tool(task="optional")
    async def work(what: str) -> str:
        await go_on.wait()
        return "done"

    declared = {**META, "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}
    params = {"name": "work", "arguments": {"what": "x" * 60_000}, "_meta": declared}
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with (
        served(ToolsetServer(Toolset(work))) as url,
        httpx2.AsyncClient(base_url=url, timeout=60) as http,
        listening(http) as wire,
    ):
        await wire.post(message)
        assert (await wire.hear())["result"]["resultType"] == "task"
        refused = await wire.post({**message, "id": 2})
        assert refused.status_code == 503 and "Too many long requests" in refused.text
        go_on.set()
        while (await wire.post({**message, "id": 3})).status_code != 202:
            await anyio.lowlevel.checkpoint()


def test_u40_a_result_weighs_about_what_its_json_does() -> None:
    value = {"content": [{"type": "text", "text": "x" * 10_000}], "structuredContent": {"n": list(range(50))}}
    assert 0.8 < weight_of(value) / len(json.dumps(value)) < 1.3


async def test_no_stream_is_opened_while_the_application_does_not_run(stage: Stage) -> None:
    _, app = serving(stage)
    transport = httpx2.ASGITransport(app)
    with anyio.fail_after(30):
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            with pytest.raises(StateError, match="lifespan"):
                await http.get("/sse")


@pytest.mark.parametrize("limits", [{"max_sessions_per_peer": 2}, {"max_sessions": 2}])
async def test_u46_streams_are_kept_to_the_limit_and_make_room_when_their_clients_leave(
    stage: Stage, limits: dict[str, int]
) -> None:
    async with over_http(stage, limits=HttpLimits(**limits)) as http, listening(http) as first:
        await first.greet()
        async with listening(http):
            refused = await http.get("/sse")
            assert refused.status_code == 503 and f"{next(iter(limits))} is 2" in refused.text
            # It is refused itself: no client that listens is ended for another.
            await first.post(call())
            assert (await first.hear())["id"] == 1
        while True:
            async with http.stream("GET", "/sse") as again:
                if again.status_code == 200:
                    break
