"""`GET /health`: how each mounted server is doing, seen from outside the process."""

from __future__ import annotations

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from tests.support.callers import Callers, listening
from tests.support.personal_server import personal_server

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.policy import Policy

pytestmark = pytest.mark.anyio

NOWHERE = "http://127.0.0.1:9/mcp?token=a-secret-token"


async def test_p11_each_server_is_told_with_its_state_and_its_reason() -> None:
    with personal_server({"all": {"one": ""}}, lambda _: "all") as up:
        here, gone = RemoteToolset(up.url, name="here"), RemoteToolset(NOWHERE, name="gone")
        server = ToolsetServer(Toolset(here.prefixed("here"), gone.prefixed("gone")))
        async with listening(server) as url, httpx2.AsyncClient(timeout=30) as http:
            await server.settled()
            answer = await http.get(f"{url}/health")
            head = await http.head(f"{url}/health")
            posted = await http.post(f"{url}/health")
            foreign = await http.get(f"{url}/health", headers={"Host": "evil.example"})
            elsewhere = await http.get(f"{url}/healthy")
    told = answer.json()
    assert answer.status_code == 200 == head.status_code and told["status"] == "degraded"
    assert told["servers"]["here"] == {"state": "ready", "tools": 1}
    assert told["servers"]["gone"]["state"] == "offline" and told["servers"]["gone"]["reason"]
    assert "a-secret-token" not in answer.text and answer.headers["cache-control"] == "no-store"
    assert (posted.status_code, elsewhere.status_code) == (405, 404) and foreign.status_code in (403, 421)


async def test_p11_where_callers_are_known_each_is_told_of_the_servers_that_exist_for_it() -> None:
    with personal_server({"all": {"one": ""}}, lambda _: "all") as up:
        mounts = [RemoteToolset(up.url, name=name).prefixed(name) for name in ("open", "closed")]
        policy = Policy(deny=["closed/*"])
        server = ToolsetServer(Toolset(*mounts), auth=Callers(), policy=policy)
        async with listening(server) as url, httpx2.AsyncClient(timeout=30) as http:
            await server.settled()
            refused = await http.get(f"{url}/health")
            http.headers["Authorization"] = "Bearer token-of-alice"
            told = (await http.get(f"{url}/health")).json()
    assert refused.status_code == 401 and "open" not in refused.text
    assert told == {"status": "ok", "servers": {"open": {"state": "ready", "tools": 1}}}


@pytest.mark.parametrize("auth", [None, Callers()])
async def test_p11_a_path_that_a_program_has_added_stays_its_own(auth: Callers | None) -> None:
    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("of the program")

    app = ToolsetServer(Toolset(), auth=auth).http_app()
    app.add_route("/health", health)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        assert (await http.get("/health")).text == "of the program"
