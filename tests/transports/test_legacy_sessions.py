"""Calls in legacy sessions over HTTP: answered as the SDK would, but with JSON where nothing comes first."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from pydantic import FileUrl
from starlette.applications import Starlette
from starlette.authentication import SimpleUser, UnauthenticatedUser
from starlette.types import ASGIApp
from tests.support.asking import Model, Person, text_of
from tests.support.bounds import bounds
from tests.support.served import listening
from tests.transports.test_http_endpoint import Wire, body_of, endpoint, sdk_app

from mcp_toolset import HookSet, Reject, ToolContext, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

HEADERS = {
    "host": "127.0.0.1:8000",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2025-11-25",
}
BASE = "http://127.0.0.1:8000"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "clientInfo": {"name": "test", "version": "1"},
        "capabilities": {"elicitation": {"form": {}}},
    },
}
LIST = {"jsonrpc": "2.0", "id": "l", "method": "tools/list"}
ELICITATION = {"action": "accept", "content": {"answer": "Ada"}}
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}}


class Stage:
    """The tools of a server, and what became of their calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.started = anyio.Event()
        self.go_on = anyio.Event()
        self.ended = anyio.Event()
        self.server: ToolsetServer | None = None

    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def fail(self) -> str:
        """Fail."""
        raise ValueError("no power")

    def forbidden(self) -> str:
        """Do what nobody may."""
        return "done"

    async def count(self, context: ToolContext, until: int = 3) -> str:
        """Report some steps, and a word."""
        for step in range(until):
            await context.progress(step + 1, until, "counting")
        await context.log("info", f"to {until}")
        return f"counted to {until}"

    async def ask(self, context: ToolContext) -> str:
        """Ask for a name."""
        return str((await context.ask("Your name?", SCHEMA)).content["answer"])

    async def consult(self, context: ToolContext) -> str:
        """Ask the client's model, and for its folders."""
        sample = await context.sample("Who?")
        return f"{sample.text} in {len(await context.roots())}"

    async def wait(self) -> str:
        """Wait until it may go on."""
        self.started.set()
        try:
            await self.go_on.wait()
            self.seen.append("finished")
        except anyio.get_cancelled_exc_class():
            self.seen.append("cancelled")
            raise
        finally:
            self.ended.set()
        return "waited"


def call(name: str = "add", arguments: Any = None, number: Any = 1, **more: Any) -> dict[str, Any]:
    given = {"a": 1, "b": 2} if arguments is None and name == "add" else arguments or {}
    params = {"name": name, "arguments": given, **more}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@pytest.fixture
def stage() -> Stage:
    return Stage()


def serving(stage: Stage, *, deferred: bool = False, **options: Any) -> tuple[ToolsetServer, Starlette]:
    hooks = HookSet()

    @hooks.execution("forbidden")
    async def refuse(call: Any, input: Any) -> Reject:
        return Reject("not allowed")

    tools = (stage.add, stage.fail, stage.forbidden, stage.count, stage.ask, stage.consult, stage.wait)
    toolset = Toolset(*tools)
    server = ToolsetServer(
        toolset.deferred() if deferred else toolset, hooks=hooks, capabilities=("ask", "sample", "roots")
    )
    stage.server = server
    return server, server.http_app(**options)


@pytest.fixture
async def app(stage: Stage) -> AsyncIterator[Starlette]:
    server, built = serving(stage)
    async with server, built.router.lifespan_context(built):
        yield built


class Session:
    """A legacy session by hand."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.headers = dict(HEADERS)

    async def open(self) -> Session:
        self.headers["host"] = self.http.base_url.netloc.decode()
        answer = await self.post(INITIALIZE)
        assert answer.status_code == 200
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        assert (await self.post(note("notifications/initialized"))).status_code == 202
        return self

    async def post(self, message: Any, headers: Any = None) -> httpx2.Response:
        given = headers if headers is not None else self.headers
        return await self.http.post("/mcp", headers=given, content=body_of(message))

    @asynccontextmanager
    async def stream(self, message: Any) -> AsyncGenerator[AsyncIterator[dict[str, Any]]]:
        async with self.http.stream(
            "POST", "/mcp", headers=self.headers, content=body_of(message)
        ) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            yield events(response)


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


async def events(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line[6:])


def sent(answer: httpx2.Response) -> list[dict[str, Any]]:
    if answer.headers["content-type"] == "application/json":
        return [answer.json()]
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


@asynccontextmanager
async def waiting(session: Session, stage: Stage, number: int = 1) -> AsyncGenerator[list[dict[str, Any]]]:
    """A call of `wait` that has begun; it is awaited at the end of the block, and is its answers then."""
    answers: list[dict[str, Any]] = []

    async def wait() -> None:
        answers.extend(sent(await session.post(call("wait", number=number))))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await stage.started.wait()
        yield answers


@asynccontextmanager
async def session_of(app: ASGIApp) -> AsyncGenerator[Session]:
    """A session in process: a request is over when its handler is."""
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        with anyio.fail_after(60):
            yield await Session(client).open()


@asynccontextmanager
async def served(stage: Stage, **options: Any) -> AsyncGenerator[str]:
    """A server that listens."""
    server, app = serving(stage, **options)
    with anyio.fail_after(60):
        async with server, listening(app) as url:
            yield url


@asynccontextmanager
async def over_http(stage: Stage, **options: Any) -> AsyncGenerator[Session]:
    async with served(stage, **options) as url:
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            yield await Session(client).open()


Headers = dict[str, str] | list[tuple[str, str]]


def usual(headers: dict[str, str]) -> Headers:
    return headers


def having(**changed: str | None) -> Callable[[dict[str, str]], Headers]:
    """The usual headers with some of them changed, or left out."""

    def build(headers: dict[str, str]) -> Headers:
        merged = {**headers, **{name.replace("_", "-"): value for name, value in changed.items()}}
        return {name: value for name, value in merged.items() if value is not None}

    return build


def twice(headers: dict[str, str]) -> Headers:
    return [*headers.items(), ("mcp-session-id", headers["mcp-session-id"])]


ANSWERED: dict[str, tuple[Callable[[dict[str, str]], Headers], Any]] = {
    "a call": (usual, call()),
    "an id of text": (usual, call(number="one")),
    "unknown tool": (usual, call("nope")),
    "wrong arguments": (usual, call("add", {"a": "x"})),
    "arguments that are none": (usual, call("add", [1])),
    "no name": (usual, {**call(), "params": {}}),
    "no parameters": (usual, {**LIST, "method": "tools/call"}),
    "a tool that fails": (usual, call("fail")),
    "a hook that rejects": (usual, call("forbidden")),
    "a client that cannot be asked for a sample": (usual, call("consult")),
    "an origin of its own": (having(origin=BASE), call()),
    "no version": (having(mcp_protocol_version=None), call()),
    "an older version": (having(mcp_protocol_version="2025-03-26"), call()),
    "a charset": (having(content_type="application/json; charset=utf-8"), call()),
    "kinds with a weight": (having(accept="text/event-stream;q=0.5,application/json"), call()),
}
OTHERS: dict[str, tuple[Callable[[dict[str, str]], Headers], Any]] = {
    "no accept": (having(accept="text/html"), call()),
    "accepts anything": (having(accept="*/*"), call()),
    "accepts JSON only": (having(accept="application/json"), call()),
    "accepts what is like JSON": (having(accept="application/jsonp, text/event-stream"), call()),
    "another content type": (having(content_type="text/plain"), call()),
    "content that is like JSON": (having(content_type="application/jsonp"), call()),
    "another version": (having(mcp_protocol_version="2099-01-01"), call()),
    "no session": (having(mcp_session_id=None), call()),
    "an unknown session": (having(mcp_session_id="0" * 32), call()),
    "a session twice": (twice, call()),
    "a foreign host": (having(host="evil.example"), call()),
    "a foreign origin": (having(origin="https://evil.example"), call()),
    "no JSON": (usual, b"{"),
    "no UTF-8": (usual, b"\xff"),
    "deep": (usual, b"[" * 5000),
    "a batch": (usual, [call()]),
    "an id that is none": (usual, call(number=None)),
    "an id of a fraction": (usual, call(number=1.5)),
    "an id that is true": (usual, call(number=True)),
    "parameters that are none": (usual, {**call(), "params": None}),
    "parameters in a list": (usual, {**call(), "params": []}),
    "a notification": (usual, note("notifications/roots/list_changed")),
    "an answer to nothing": (usual, {"jsonrpc": "2.0", "id": 99, "result": {}}),
    "another JSON-RPC": (usual, {**call(), "jsonrpc": "1.0"}),
    "too big": (usual, call("add", {"a": 1, "b": 2, "c": "x" * 5_000_000})),
    "another method": (usual, {**LIST, "method": "ping"}),
    "a list": (usual, LIST),
    "a list with a cursor": (usual, {**LIST, "params": {"cursor": "x"}}),
    "a method that is none": (usual, {**LIST, "method": 7}),
}


@pytest.mark.parametrize("case", [*ANSWERED, *OTHERS])
async def test_f30_f31_f33_an_answer_is_the_one_that_the_sdk_would_give(
    app: Starlette, stage: Stage, case: str
) -> None:
    assert stage.server is not None
    build, message = {**ANSWERED, **OTHERS}[case]
    async with session_of(app) as session:
        own = await session.post(message, build(session.headers))
    async with sdk_app(stage.server) as theirs, session_of(theirs) as other:
        plain = await other.post(message, build(other.headers))
    assert own.status_code == plain.status_code
    if plain.headers.get("content-type", "").startswith("text/event-stream"):
        assert own.headers["mcp-session-id"] == session.headers["mcp-session-id"]
        assert own.headers["content-type"] == "application/json"
        assert sent(own) == sent(plain)
    elif own.content and own.headers.get("content-type") == "application/json":
        assert case not in ANSWERED
        if case in ("parameters in a list", "another JSON-RPC", "a method that is none"):
            # A request that cannot be one is refused under its id; the SDK leaves the id out.
            assert (own.json()["id"], plain.json()["id"]) == (message["id"], None)
            assert (own.json()["error"]["code"], plain.json()["error"]["code"]) == (-32600, -32602)
            return
        assert own.json()["id"] == plain.json()["id"]
        assert own.json()["error"]["code"] == plain.json()["error"]["code"]
        assert own.json()["error"]["message"].split(":")[0] == plain.json()["error"]["message"].split(":")[0]
    else:
        assert own.headers.get("content-type") == plain.headers.get("content-type")
        # A refusal of a name goes on with the option that allows the name.
        names = plain.status_code in (403, 421)
        assert own.content == plain.content or (names and own.content.startswith(plain.content + b": "))


async def test_p5_what_comes_before_the_result_makes_a_stream_of_the_answer(app: Starlette) -> None:
    async with session_of(app) as session:
        answer = await session.post(call("count", _meta={"progressToken": "t"}))
        silent = await session.post(call("count"))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["mcp-session-id"] == session.headers["mcp-session-id"]
    *steps, log, last = sent(answer)
    assert [step["params"]["progress"] for step in steps] == [1, 2, 3]
    assert {step["params"]["progressToken"] for step in steps} == {"t"}
    assert log["params"]["data"] == "to 3"
    assert last["id"] == 1 and last["result"]["content"][0]["text"] == "counted to 3"
    assert [message.get("method") for message in sent(silent)] == ["notifications/message", None]


async def test_f28_sixteen_calls_at_once_report_each_to_its_own_caller(stage: Stage) -> None:
    async def one(client: Client, until: int) -> None:
        steps: list[float] = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            assert total == until
            steps.append(progress)

        result = await client.call_tool("count", {"until": until}, progress_callback=report)
        assert text_of(result) == f"counted to {until}"
        assert steps == [float(step + 1) for step in range(until)]

    async with served(stage) as url, Client(f"{url}/mcp", mode="legacy") as client:
        async with anyio.create_task_group() as group:
            for until in range(1, 17):
                group.start_soon(one, client, until)


async def test_p5_a_client_is_asked_by_its_own_call(stage: Stage) -> None:
    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///home"))])

    async with served(stage) as url:
        async with Client(
            f"{url}/mcp",
            mode="legacy",
            elicitation_callback=Person({"answer": "Ada"}),
            sampling_callback=Model(),
            list_roots_callback=roots,
        ) as client:
            assert text_of(await client.call_tool("ask", {})) == "Ada"
            assert text_of(await client.call_tool("consult", {})) == "sample 1 in 1"


@pytest.mark.parametrize("accept", [HEADERS["accept"], "*/*"])
async def test_p5_the_answer_to_a_question_comes_in_whatever_post_the_sdk_accepts(
    stage: Stage, accept: str
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield json.dumps(answer).encode()

    async with over_http(stage) as session, session.stream(call("ask")) as stream:
        question = await anext(stream)
        assert question["method"] == "elicitation/create" and type(question["id"]) is int
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": ELICITATION}
        headers = {**session.headers, "accept": accept}
        refused = await session.post(answer, {**headers, "accept": "text/html"})
        assert refused.status_code == 406
        taken = await session.http.post("/mcp", headers=headers, content=chunks())
        assert taken.status_code == 202
        assert (await anext(stream))["result"]["content"][0]["text"] == "Ada"


async def test_p5_a_client_that_refuses_to_be_asked_fails_the_call_alone(stage: Stage) -> None:
    async with over_http(stage) as session:
        async with session.stream(call("ask")) as stream:
            question = await anext(stream)
            error = {"code": -32603, "message": "no screen"}
            await session.post({"jsonrpc": "2.0", "id": question["id"], "error": error})
            answer = await anext(stream)
        assert answer["result"]["isError"] and "no screen" in answer["result"]["content"][0]["text"]
        assert sent(await session.post(call()))[0]["result"]["structuredContent"] == {"result": 3}


async def test_x2_a_grant_is_announced_on_the_stream_of_the_session(stage: Stage) -> None:
    async with over_http(stage, deferred=True) as session:
        headers = {**session.headers, "accept": "text/event-stream"}
        async with session.http.stream("GET", "/mcp", headers=headers) as standing:
            answer = await session.post(call("resolve_tools", {"ids": ["add"]}))
            assert answer.headers["content-type"] == "application/json"
            assert (await anext(events(standing)))["method"] == "notifications/tools/list_changed"
        assert sent(await session.post(call()))[0]["result"]["structuredContent"] == {"result": 3}


@pytest.mark.parametrize("accept", [HEADERS["accept"], "*/*"])
async def test_f26_a_notification_cancels_the_call_that_it_names(stage: Stage, accept: str) -> None:
    async with over_http(stage) as session, waiting(session, stage, 7) as answers:
        headers = {**session.headers, "accept": accept}
        for number in (8, 7):
            cancelled = note("notifications/cancelled", requestId=number)
            assert (await session.post(cancelled, headers)).status_code == 202
    assert stage.seen == ["cancelled"]
    assert answers == [{"jsonrpc": "2.0", "id": 7, "error": {"code": -32800, "message": "Request cancelled"}}]


async def test_f26_a_call_that_is_cancelled_takes_its_question_back(stage: Stage) -> None:
    async with over_http(stage) as session, session.stream(call("ask", number=7)) as stream:
        question = await anext(stream)
        await session.post(note("notifications/cancelled", requestId="7"))
        taken_back, answer = await anext(stream), await anext(stream)
    assert taken_back["method"] == "notifications/cancelled"
    assert taken_back["params"]["requestId"] == question["id"]
    assert answer["error"]["code"] == -32800


async def test_two_calls_under_one_id_get_each_its_own_answer(stage: Stage) -> None:
    async with over_http(stage) as session, waiting(session, stage) as answers:
        assert sent(await session.post(call()))[0]["result"]["structuredContent"] == {"result": 3}
        stage.go_on.set()
    assert [answer["result"]["content"][0]["text"] for answer in answers] == ["waited"]


async def test_f27_a_client_that_leaves_has_not_cancelled_its_call(app: Starlette, stage: Stage) -> None:
    async with session_of(app) as session:
        wire = Wire(call("wait"), session.headers)
        async with anyio.create_task_group() as group:
            group.start_soon(app, wire.scope, wire.receive, wire.send)
            await stage.started.wait()
            wire.gone.set()
            assert (await session.post(call())).status_code == 200
            stage.go_on.set()
    assert stage.seen == ["finished"]


async def test_f30_a_session_that_is_ended_answers_its_call_and_takes_no_other(
    app: Starlette, stage: Stage
) -> None:
    async with session_of(app) as session:
        async with waiting(session, stage) as answers:
            left = await session.http.delete("/mcp", headers=session.headers)
            assert left.status_code == 200
        after = await session.post(call())
    assert stage.seen == ["cancelled"]
    assert answers[0]["error"]["message"] == "Connection closed"
    assert after.status_code == 404


async def test_f30_a_refused_request_to_end_it_does_not_end_a_session(app: Starlette) -> None:
    async with session_of(app) as session:
        assert (await session.post(call())).status_code == 200
        foreign = {**session.headers, "host": "evil.example"}
        assert (await session.http.delete("/mcp", headers=foreign)).status_code == 421
        assert (await session.post(call())).headers["content-type"] == "application/json"


async def test_f44_a_server_that_stops_answers_what_is_under_way(
    app: Starlette, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, drain=0.05)
    async with session_of(app) as session, waiting(session, stage) as answers:
        app.state.draining.stop()
    assert stage.seen == ["cancelled"]
    assert answers[0]["error"]["message"] == "Connection closed"


async def test_a_silent_call_is_kept_alive_by_comments(
    app: Starlette, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, ping_interval=0.02)
    async with session_of(app) as session:
        wire = Wire(call("wait"), session.headers)
        async with anyio.create_task_group() as group:
            group.start_soon(app, wire.scope, wire.receive, wire.send)
            while len(wire.sent) < 3:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            stage.go_on.set()
    assert dict(wire.sent[0]["headers"])[b"content-type"] == b"text/event-stream"
    assert wire.sent[1]["body"] == b"id: 1-0\r\nretry: 1000\r\ndata:\r\n\r\n: ping\r\n\r\n"
    assert wire.sent[2]["body"] == b": ping\r\n\r\n"
    assert b"waited" in wire.sent[-1]["body"] and not wire.sent[-1]["more_body"]


def rest(app: Starlette, session: Session) -> None:
    """Have a session look as if it had been idle for longer than it may, if it is idle; then end what is."""
    table = endpoint(app).sessions
    name = session.headers["mcp-session-id"]
    if name in table._idle:
        table._idle[name] = float("-inf")
    table.expire()


async def test_a_session_that_lives_by_calls_alone_is_not_idle(app: Starlette) -> None:
    async with session_of(app) as session:
        table, name = endpoint(app).sessions, session.headers["mcp-session-id"]
        table._idle[name] = float("-inf")
        assert (await session.post(call())).status_code == 200
        assert table._idle[name] > 0
        table.expire()
        assert (await session.post(call())).status_code == 200


async def test_a_session_is_not_idle_while_a_call_is_in_flight(app: Starlette, stage: Stage) -> None:
    async with session_of(app) as session:
        async with waiting(session, stage) as answers:
            rest(app, session)
            stage.go_on.set()
        assert answers[0]["result"]["content"][0]["text"] == "waited"
        rest(app, session)
        assert (await session.post(call())).status_code == 404


async def test_f30_a_session_that_ends_as_idle_takes_no_more_calls(app: Starlette) -> None:
    async with session_of(app) as session:
        assert (await session.post(call())).status_code == 200
        rest(app, session)
        assert (await session.post(call())).status_code == 404


async def test_an_answer_that_is_to_be_json_is_json_whatever_happens(stage: Stage) -> None:
    server, app = serving(stage, json_response=True)
    async with server, app.router.lifespan_context(app), session_of(app) as session:
        answer = await session.post(call("count", _meta={"progressToken": "t"}))
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["result"]["content"][0]["text"] == "counted to 3"
        asked = (await session.post(call("ask"))).json()["result"]
    assert asked["isError"] and "carries no requests" in asked["content"][0]["text"]


async def test_a_middleware_of_the_hosts_sees_every_request(app: Starlette, stage: Stage) -> None:
    seen: list[str] = []

    async def look(ctx: Any, call_next: Any) -> Any:
        seen.append(ctx.method)
        return await call_next(ctx)

    async with session_of(app) as session:
        await session.post(call())
        assert stage.server is not None
        stage.server.lowlevel.middleware.insert(0, look)
        await session.post(call())
    assert seen == ["tools/call"]


async def test_f30_a_session_is_open_to_the_user_alone_who_has_opened_it(app: Starlette) -> None:
    user: list[Any] = []

    async def authenticated(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "user": user[0]} if user else scope, receive, send)

    def of_token(name: str) -> AuthenticatedUser:
        return AuthenticatedUser(AccessToken(token="t", client_id=name, scopes=[]))

    for ann, bob in ((of_token("ann"), of_token("bob")), (SimpleUser("ann"), SimpleUser("bob"))):
        user[:] = [ann]
        async with session_of(authenticated) as owned:
            assert (await owned.post(call())).status_code == 200
            for other in ([bob], [UnauthenticatedUser()], []):
                user[:] = other
                assert (await owned.post(call())).status_code == 404
                assert (await owned.http.delete("/mcp", headers=owned.headers)).status_code == 404
                assert (await owned.http.get("/mcp", headers=owned.headers)).status_code == 404
            user[:] = [ann]
            assert (await owned.post(call())).status_code == 200
            user.clear()
