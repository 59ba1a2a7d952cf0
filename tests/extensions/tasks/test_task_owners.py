"""A task is its user's alone, by id, in both eras; what a client sends wrongly begins no task."""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import pytest
from tests.extensions.tasks.jobs import CAPABILITIES, Jobs
from tests.extensions.tasks.jobs import served as served_jobs
from tests.interaction.raw_client import RawClient
from tests.support.callers import Callers
from tests.support.direct_callers import Caller
from tests.support.served import served

from mcp_toolset import Identity, RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

MOUNTED = pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
PREFIX = "io.modelcontextprotocol"
MODERN, LEGACY = "2026-07-28", "2025-11-25"


class User:
    """A logged-in user, who sends requests of both eras over HTTP."""

    def __init__(self, http: httpx2.AsyncClient, url: str, name: str) -> None:
        self._http, self._url = http, f"{url}/mcp"
        self._headers = {
            "Authorization": f"Bearer token-of-{name}",
            "Accept": "application/json, text/event-stream",
        }
        self._session: dict[str, str] = {}

    async def _post(self, headers: dict[str, str], method: str, params: dict[str, Any]) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self._http.post(self._url, headers={**self._headers, **headers}, json=message)

    async def log_in(self) -> None:
        """Begin a session of 2025-11-25."""
        params = {
            "protocolVersion": LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "user", "version": "1"},
        }
        answer = await self._post({}, "initialize", params)
        self._session = {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": LEGACY}

    async def modern(self, method: str, header: str, /, **params: Any) -> dict[str, Any]:
        """The answer to a request of 2026-07-28."""
        meta = {
            f"{PREFIX}/protocolVersion": MODERN,
            f"{PREFIX}/clientInfo": {"name": "user", "version": "1"},
            f"{PREFIX}/clientCapabilities": CAPABILITIES,
        }
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": header}
        return (await self._post(headers, method, {**params, "_meta": meta})).json()

    async def legacy(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The answer to a request of 2025-11-25."""
        return (await self._post(self._session, method, params)).json()


@MOUNTED
async def test_j3_another_user_neither_reads_cancels_nor_updates_a_task(mounted: bool) -> None:
    jobs = Jobs()
    tools = Toolset(RemoteToolset(jobs.server(), name="jobs")) if mounted else jobs.toolset()
    server = ToolsetServer(tools, capabilities=["ask"], auth=Callers())
    async with served(server) as url, httpx2.AsyncClient(timeout=30) as http:
        ada, bob = User(http, url, "ada"), User(http, url, "bob")
        await bob.log_in()
        begun = await ada.modern("tools/call", "build", name="build", arguments={"what": "a house"})
        id = begun["result"]["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            answer = await bob.modern(method, id, taskId=id, inputResponses={})
            assert answer["error"]["message"].startswith("Task not found"), method
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            answer = await bob.legacy(method, taskId=id)
            assert answer["error"]["message"].startswith("Task not found"), method
        assert (await bob.legacy("tasks/list"))["error"]["code"] == -32601
        assert not jobs.cancelled.is_set()
        assert (await ada.modern("tasks/get", id, taskId=id))["result"]["status"] == "working"
        await ada.modern("tasks/cancel", id, taskId=id)
        await jobs.cancelled.wait()


async def asked_for(client: RawClient, task: Any) -> dict[str, Any]:
    return await client.ask("tools/call", name="build", arguments={"what": "a house"}, task=task)


@pytest.mark.parametrize("task", [[], "soon", 5, {"ttl": "long"}, {"ttl": True}, {"ttl": [1]}], ids=repr)
async def test_j3_a_task_that_is_asked_for_wrongly_does_not_run(task: Any) -> None:
    jobs = Jobs()
    async with served_jobs(jobs, mounted=False, era="legacy") as client:
        answer = await asked_for(client, task)
        assert answer["error"]["code"] == -32602 and "task" in answer["error"]["message"]
        await anyio.wait_all_tasks_blocked()
        assert jobs.started == 0


@pytest.mark.parametrize(
    ("asked", "kept"), [({}, 3_600_000), ({"ttl": -5}, 3_600_000), ({"ttl": 1e5}, 100_000)], ids=repr
)
async def test_j3_a_legacy_client_may_ask_for_less_time(asked: Any, kept: int) -> None:
    async with served_jobs(Jobs(), mounted=False, era="legacy") as client:
        assert (await asked_for(client, asked))["task"]["ttl"] == kept


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_u115_a_handle_is_of_no_use_to_another_user(version: str) -> None:
    jobs = Jobs()
    server = jobs.server(task_after=0.01)
    ann, bob = (Caller(server, Identity.of("app", name), version) for name in ("ann", "bob"))
    with anyio.fail_after(60):
        async with server:
            for one in (ann, bob):
                await one.open()
            told = await ann.call("build", what="a house")
            id = told["content"][0]["text"].partition("task_id: ")[2]
            for tool in ("get_task", "cancel_task"):
                refused = await bob.call(tool, task_id=id)
                assert refused["isError"] and "not found" in refused["content"][0]["text"].lower()
            jobs.go.set()
            while (
                "built a house" not in (found := await ann.call("get_task", task_id=id))["content"][0]["text"]
            ):
                assert not found.get("isError")
    assert not jobs.cancelled.is_set()


async def test_u115_the_tasks_of_one_user_do_not_push_out_the_result_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = Jobs()
    server = jobs.server(task_after=0.01)
    ann, bob = (Caller(server, Identity.of("app", name), LEGACY) for name in ("ann", "bob"))

    async def said(user: Caller, id: str) -> str:
        return (await user.call("get_task", task_id=id))["content"][0]["text"]

    with anyio.fail_after(30):
        async with server:
            ids = list[tuple[Caller, str]]()
            for one in (ann, bob):
                await one.open()
            for one in (bob, ann, ann):
                told = await one.call("build", what="a house")
                ids.append((one, told["content"][0]["text"].partition("task_id: ")[2]))
            jobs.go.set()
            for one, id in ids:
                while "built a house" not in await said(one, id):
                    pass
            monkeypatch.setattr("mcp_toolset.extensions.tasks.tasks.MAX_TASKS", 2)
            assert ["built" in await said(*one) for one in reversed(ids)] == [True, False, True]


async def test_j3_tasks_that_have_ended_leave_room_for_others_of_their_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.tasks.tasks.OWN_TASKS", 1)
    async with served(Jobs().server(auth=Callers())) as url, httpx2.AsyncClient(timeout=30) as http:
        ada = User(http, url, "ada")
        for _ in range(3):
            begun = await ada.modern("tools/call", "only", name="only", arguments={})
            id = begun["result"]["taskId"]
            while (await ada.modern("tasks/get", id, taskId=id))["result"]["status"] == "working":
                await anyio.lowlevel.checkpoint()
