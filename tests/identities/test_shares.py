"""No caller takes all of what is scarce: sessions, tasks, calls that wait for answers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from tests.support.asking import text_of
from tests.support.bounds import bounds
from tests.support.callers import Callers, client_of
from tests.support.piped import handshake
from tests.support.served import served

from mcp_toolset import HttpLimits, RemoteToolset, ToolContext, Toolset, ToolsetServer, tool

pytestmark = pytest.mark.anyio
FORM: dict[str, Any] = {"type": "object", "properties": {}}


class Asking:
    """A server of 2025-11-25 that asks everybody who calls it."""

    def __init__(self) -> None:
        self.ended = anyio.Event()

    def server(self) -> ToolsetServer:
        @tool
        async def ask(context: ToolContext) -> str:
            """Ask."""
            try:
                return (await context.ask("Sure?", FORM)).action
            finally:
                self.ended.set()

        return ToolsetServer(Toolset(ask), capabilities=["ask"])


class People:
    """Never answer, and count what they are asked."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.asked = wanted, 0
        self.enough = anyio.Event()

    async def __call__(self, context: Any, params: Any) -> Any:
        self.asked += 1
        if self.asked >= self.wanted:
            self.enough.set()
        await anyio.sleep_forever()


async def accept(context: Any, params: Any) -> Any:
    return types.ElicitResult(action="accept", content={})


async def test_u80_a_caller_with_many_sessions_leaves_sessions_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, sessions=4, sessions_per_caller=2)
    people = People(2)
    async with served(Asking().server()) as up:
        mount = RemoteToolset(f"{up}/mcp", name="up", protocol="legacy", timeout=20)
        async with served(ToolsetServer(Toolset(mount), auth=Callers())) as url:
            async with anyio.create_task_group() as group:

                async def abandoned() -> None:
                    async with client_of(url, "ann", elicitation_callback=people) as client:
                        await client.call_tool("ask", {})

                for _ in range(6):
                    group.start_soon(abandoned)
                await people.enough.wait()
                async with client_of(url, "bob", elicitation_callback=accept) as client:
                    assert text_of(await client.call_tool("ask", {})) == "accept"
                assert people.asked == 2, "the others of ann wait for her own"
                group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("sessions_per_caller", "the 1 sessions that one caller may have stayed in use"),
        ("sessions", "all its sessions stayed in use"),
    ],
)
async def test_u80_the_error_of_a_caller_whose_share_is_taken_says_so(
    limit: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, **{limit: 1})
    people = People(1)
    async with served(Asking().server()) as up:
        mount = RemoteToolset(f"{up}/mcp", name="up", protocol="legacy", timeout=1)
        async with served(ToolsetServer(Toolset(mount), auth=Callers())) as url:
            async with anyio.create_task_group() as group:

                async def call() -> None:
                    async with client_of(url, "ann", elicitation_callback=people) as client:
                        await client.call_tool("ask", {})

                group.start_soon(call)
                await people.enough.wait()
                async with client_of(url, "ann", elicitation_callback=people) as client:
                    said = text_of(await client.call_tool("ask", {}))
                assert told in said
                group.cancel_scope.cancel()


INITIALIZE: dict[str, Any] = handshake(1)


async def test_u80_a_caller_who_opens_many_sessions_ends_none_of_others() -> None:
    limits = HttpLimits(max_sessions_per_peer=8)
    head = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    async with served(ToolsetServer(Toolset(), auth=Callers()), limits=limits) as url:
        async with httpx2.AsyncClient(timeout=30, base_url=url, headers=head) as http:

            async def sent(name: str, message: dict[str, Any], session: str = "") -> httpx2.Response:
                own = {"authorization": f"Bearer token-of-{name}", "mcp-session-id": session}
                own = {key: value for key, value in own.items() if value}
                return await http.post("/mcp", headers=own, json=message)

            session = (await sent("bob", INITIALIZE)).headers["mcp-session-id"]
            for _ in range(12):
                assert (await sent("ann", INITIALIZE)).status_code == 200
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            assert (await sent("bob", ping, session)).status_code == 200


@pytest.mark.parametrize("door", ["/mcp", "/sse"])
async def test_u80_a_caller_who_holds_all_streams_open_leaves_room_for_others(door: str) -> None:
    limits = HttpLimits(max_sessions_per_peer=4)
    head = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    async with served(ToolsetServer(Toolset(), auth=Callers()), limits=limits) as url:
        async with (
            AsyncExitStack() as stack,
            httpx2.AsyncClient(timeout=30, base_url=url, headers=head) as http,
        ):

            async def status(name: str) -> int:
                own = {"authorization": f"Bearer token-of-{name}"}
                if door == "/mcp":
                    opened = await http.post("/mcp", headers=own, json=INITIALIZE)
                    if opened.status_code != 200:
                        return opened.status_code
                    own["mcp-session-id"] = opened.headers["mcp-session-id"]
                return (await stack.enter_async_context(http.stream("GET", door, headers=own))).status_code

            assert [await status("ann") for _ in range(4)] == [200, 200, 200, 503]
            assert await status("bob") == 200


@pytest.mark.needs("upstream_access")
async def test_u80_the_connections_of_a_caller_with_many_headers_close_none_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    bounds(monkeypatch, callers_connected=3)

    @tool
    async def which(context: ToolContext) -> str:
        """Say which session it is."""
        return str(context.session)

    async with served(ToolsetServer(Toolset(which))) as up:
        forward = {"X-User": "identity.name", "X-Tenant": "header.x-tenant"}
        mount = RemoteToolset(f"{up}/mcp", name="up", protocol="legacy", forward=forward)
        async with served(ToolsetServer(Toolset(mount), auth=Callers())) as url:

            async def session(name: str, tenant: str) -> str:
                async with client_of(url, name, "2026-07-28", headers={"x-tenant": tenant}) as client:
                    return text_of(await client.call_tool("which", {}))

            bobs = await session("bob", "t")
            for number in range(6):
                await session("ann", f"t{number}")
            assert await session("bob", "t") == bobs


@pytest.mark.parametrize("mounted", [False, True])
async def test_u80_a_question_whose_client_is_gone_ends(
    mounted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, coming_back=0.05, ping_interval=0.05)
    up = Asking()
    async with served(up.server()) as inner:
        toolset = RemoteToolset(f"{inner}/mcp", name="up", protocol="legacy")
        async with served(ToolsetServer(Toolset(toolset))) if mounted else _as_it_is(inner) as url:
            await _abandoned(url)
            with anyio.fail_after(30):
                await up.ended.wait()


class _as_it_is:
    def __init__(self, url: str) -> None:
        self.url = url

    async def __aenter__(self) -> str:
        return self.url

    async def __aexit__(self, *args: object) -> None:
        """Do nothing."""


async def _abandoned(url: str) -> None:
    """Call as a client that leaves once it is asked, and does not come back."""
    head = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    async with httpx2.AsyncClient(timeout=30) as http:
        opened = await http.post(f"{url}/mcp", headers=head, json=handshake(1, elicitation={}))
        head["mcp-session-id"] = opened.headers["mcp-session-id"]
        await http.post(
            f"{url}/mcp", headers=head, json={"jsonrpc": "2.0", "method": "notifications/initialized"}
        )
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ask", "arguments": {}}}
        async with http.stream("POST", f"{url}/mcp", headers=head, json=call) as answer:
            async for line in answer.aiter_lines():
                if "elicitation/create" in line:
                    return
    raise AssertionError("it was not asked")


async def test_u80_the_calls_of_one_caller_that_wait_leave_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, suspended_per_caller=1)
    async with served(Asking().server()) as up:
        mount = RemoteToolset(f"{up}/mcp", name="up", protocol="legacy")
        async with served(ToolsetServer(Toolset(mount), auth=Callers())) as url:

            async def asked(client: Any) -> Any:
                return await client.session.call_tool("ask", {}, allow_input_required=True)

            async with client_of(url, "ann", "2026-07-28", elicitation_callback=accept) as ann:
                first = await asked(ann)
                assert isinstance(first, types.InputRequiredResult)
                assert "1 calls of this caller wait" in text_of(await asked(ann))
                async with client_of(url, "bob", "2026-07-28", elicitation_callback=accept) as bob:
                    assert isinstance(await asked(bob), types.InputRequiredResult)


@pytest.mark.needs("code", "suspended")
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("limit", "most"), [("OWN_WAITING", 1), ("OWN_BYTES", 300_000)])
async def test_u80_the_runs_of_code_of_one_caller_that_wait_leave_room_for_others(
    limit: str, most: int, kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from mcp_toolset.extensions.code import extension as waiting_runs

    monkeypatch.setattr(waiting_runs, limit, most)
    store = tmp_path / "suspended" if kept else None

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask."""
        return (await context.ask("Sure?", FORM)).action

    server = ToolsetServer(
        Toolset(ask).deferred(code=True), auth=Callers(), capabilities=["ask"], suspended=store
    )
    code = "kept = 'x' * 150_000\nawait ask()"

    async def begun(client: Any, **again: Any) -> Any:
        found = await client.call_tool("resolve_tools", {"ids": ["ask"]})
        grants = [one["grant"] for one in found.structured_content["tools"]]
        arguments = {"code": code, "grants": again.pop("grants", grants)}
        return await client.session.call_tool(
            "run_code", arguments, allow_input_required=True, **again
        ), arguments["grants"]

    async with served(server) as url:
        async with client_of(url, "ann", "2026-07-28", elicitation_callback=accept) as ann:
            asked, grants = await begun(ann)
            assert isinstance(asked, types.InputRequiredResult) and asked.input_requests
            assert "of one caller can wait for answers; keep less" in text_of((await begun(ann))[0])
            async with client_of(url, "bob", "2026-07-28", elicitation_callback=accept) as bob:
                assert isinstance((await begun(bob))[0], types.InputRequiredResult)
            # A run that goes on leaves its place to the next one.
            accepted = types.ElicitResult(action="accept", content={})
            answers: types.InputResponses = dict.fromkeys(asked.input_requests, accepted)
            state = asked.request_state
            done, _ = await begun(ann, grants=grants, input_responses=answers, request_state=state)
            assert not done.is_error
            assert isinstance((await begun(ann))[0], types.InputRequiredResult)


@pytest.mark.needs("code")
async def test_u80_the_runs_of_code_of_one_caller_leave_a_process_to_others() -> None:
    from mcp_toolset.code import CodeMode

    held, end = anyio.Event(), anyio.Event()

    @tool
    async def hold() -> str:
        """Wait for the end of the test."""
        held.set()
        await end.wait()
        return "held"

    server = ToolsetServer(Toolset(hold).deferred(), code=CodeMode(workers=2), auth=Callers())

    async def run(client: Any, code: str) -> str:
        await client.call_tool("resolve_tools", {"ids": ["hold"]})
        return text_of(await client.call_tool("run_code", {"code": code}))

    with anyio.fail_after(60):
        async with served(server) as url, client_of(url, "ann") as ann, client_of(url, "bob") as bob:
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(run, ann, "await hold()")
                await held.wait()
                assert "42" in await run(bob, "6 * 7")
                end.set()


async def test_u80_the_answers_of_one_caller_leave_the_questions_of_others_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, used_states=2)

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask."""
        return (await context.ask("Sure?", FORM)).action

    async with served(ToolsetServer(Toolset(ask), auth=Callers(), capabilities=["ask"])) as url:
        async with client_of(url, "bob", "2026-07-28", elicitation_callback=accept) as bob:
            asked = await bob.session.call_tool("ask", {}, allow_input_required=True)
            assert isinstance(asked, types.InputRequiredResult) and asked.input_requests
            async with client_of(url, "ann", "2026-07-28", elicitation_callback=accept) as ann:
                for _ in range(4):
                    assert text_of(await ann.call_tool("ask", {})) == "accept"
            accepted = types.ElicitResult(action="accept", content={})
            answers: types.InputResponses = dict.fromkeys(asked.input_requests, accepted)
            answered = await bob.session.call_tool(
                "ask", {}, input_responses=answers, request_state=asked.request_state
            )
            assert text_of(answered) == "accept"


async def test_u115_calls_that_wait_for_callers_of_whom_nothing_is_known_share_no_quota(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, suspended_per_caller=1)
    async with served(Asking().server()) as up:
        mount = RemoteToolset(f"{up}/mcp", name="up", protocol="legacy")
        async with served(ToolsetServer(Toolset(mount))) as url:
            for _ in range(3):
                async with client_of(url, "ann", "2026-07-28", elicitation_callback=accept) as one:
                    asked = await one.session.call_tool("ask", {}, allow_input_required=True)
                    assert isinstance(asked, types.InputRequiredResult)


async def begun(http: httpx2.AsyncClient, url: str, name: str, number: int) -> dict[str, Any]:
    """The answer to a call of a caller that takes tasks."""
    from tests.extensions.tasks.jobs import DECLARED

    head = {
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer token-of-{name}",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "build",
    }
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        **DECLARED,
    }
    params = {"name": "build", "arguments": {"what": str(number)}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    answer = await http.post(f"{url}/mcp", headers=head, json=message)
    body = answer.text.partition("data: ")[2] or answer.text
    return httpx2.Response(200, text=body).json()


@pytest.mark.needs("tasks")
async def test_u117_u80_running_tasks_count_for_their_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.extensions.tasks.jobs import Jobs

    bounds(monkeypatch, tasks_per_caller=2)
    jobs = Jobs()
    async with served(jobs.server(auth=Callers())) as url, httpx2.AsyncClient(timeout=30) as http:
        for number in (1, 2):
            assert (await begun(http, url, "ann", number))["result"]["resultType"] == "task"
        assert "2 tasks of this caller run already" in str(await begun(http, url, "ann", 3))
        assert (await begun(http, url, "bob", 4))["result"]["resultType"] == "task"
        jobs.go.set()


@pytest.mark.needs("tasks")
async def test_u117_u80_calls_that_come_at_once_do_not_exceed_the_tasks_of_their_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.extensions.tasks.jobs import Jobs

    bounds(monkeypatch, tasks_per_caller=2)
    jobs, answers = Jobs(), list[dict[str, Any]]()
    app = jobs.server(auth=Callers()).http_app()

    async def call(number: int) -> None:
        answers.append(await begun(http, "http://localhost", "ann", number))

    async with (
        app.router.lifespan_context(app),
        # No network between them: all come within one turn of the loop.
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as http,
    ):
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for number in range(6):
                    group.start_soon(call, number)
        jobs.go.set()
    begun_as = [answer.get("result", {}).get("resultType") for answer in answers]
    assert begun_as.count("task") == 2 and jobs.started == 2
    assert str(answers).count("2 tasks of this caller run already") == 4


async def test_u80_calls_that_ask_at_once_do_not_exceed_the_questions_of_their_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, suspended_per_caller=1)
    there, together = 0, anyio.Event()

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask once four calls can."""
        nonlocal there
        there += 1
        if there == 4:
            together.set()
        await together.wait()
        return (await context.ask("Sure?", FORM)).action

    answers: list[Any] = []
    async with served(ToolsetServer(Toolset(ask), capabilities=["ask"])) as up:
        mount = RemoteToolset(f"{up}/mcp", name="up", protocol="legacy")
        async with (
            served(ToolsetServer(Toolset(mount), auth=Callers())) as url,
            client_of(url, "ann", "2026-07-28", elicitation_callback=accept) as ann,
            anyio.create_task_group() as group,
        ):

            async def call() -> None:
                answers.append(await ann.session.call_tool("ask", {}, allow_input_required=True))

            for _ in range(4):
                group.start_soon(call)
    asked = [answer for answer in answers if isinstance(answer, types.InputRequiredResult)]
    assert len(answers) == 4 and len(asked) == 1
    assert sum("1 calls of this caller wait" in text_of(one) for one in answers if one not in asked) == 3
