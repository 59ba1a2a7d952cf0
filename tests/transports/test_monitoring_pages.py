"""`GET /health` and `GET /ready`: how a server is doing, seen from outside the process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from tests.support.callers import Callers
from tests.support.personal_server import personal_server
from tests.support.served import served

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.errors import ConfigError
from mcp_toolset.policy import Policy
from mcp_toolset.serving.serve import server_of
from mcp_toolset.telemetry import Ready
from mcp_toolset.transports.http.monitor import Monitor

pytestmark = pytest.mark.anyio

NOWHERE = "http://127.0.0.1:9/mcp?token=a-secret-token"


async def test_p11_each_server_is_told_with_its_state_and_its_reason() -> None:
    with personal_server({"all": {"one": ""}}, lambda _: "all") as up:
        here, gone = RemoteToolset(up.url, name="here"), RemoteToolset(NOWHERE, name="gone")
        server = ToolsetServer(Toolset(here.prefixed("here"), gone.prefixed("gone")))
        async with served(server) as url, httpx2.AsyncClient(timeout=30) as http:
            await server.settled()
            answer = await http.get(f"{url}/health")
            head = await http.head(f"{url}/health")
            posted = await http.post(f"{url}/health")
            elsewhere = await http.get(f"{url}/healthy")
    told = answer.json()
    assert answer.status_code == 200 == head.status_code and told["status"] == "degraded"
    assert told["servers"]["here"] == {"state": "ready", "tools": 1}
    assert told["servers"]["gone"]["state"] == "offline" and told["servers"]["gone"]["reason"]
    assert "a-secret-token" not in answer.text and answer.headers["cache-control"] == "no-store"
    assert (posted.status_code, elsewhere.status_code) == (405, 404)


async def test_p11_where_callers_are_known_each_is_told_of_the_servers_that_exist_for_it() -> None:
    with personal_server({"all": {"one": ""}}, lambda _: "all") as up:
        mounts = [RemoteToolset(up.url, name=name).prefixed(name) for name in ("open", "closed")]
        policy = Policy(deny=["closed/*"])
        server = ToolsetServer(Toolset(*mounts), auth=Callers(), policy=policy)
        async with served(server) as url, httpx2.AsyncClient(timeout=30) as http:
            await server.settled()
            unknown = await http.get(f"{url}/health")
            refused = await http.get(f"{url}/health", headers={"Authorization": "Bearer wrong"})
            http.headers["Authorization"] = "Bearer token-of-alice"
            told = (await http.get(f"{url}/health")).json()
    assert refused.status_code == 401 and "open" not in refused.text
    assert (unknown.status_code, unknown.json()) == (200, {"status": "ok"})
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


async def test_e5_a_probe_is_told_the_status_alone_under_any_name_and_without_a_token() -> None:
    gone = RemoteToolset(NOWHERE, name="gone")
    server = ToolsetServer(Toolset(gone.prefixed("gone")), auth=Callers(), ready=Ready(["gone"]))
    probe, page = {"Host": "10.1.2.3:8000"}, {"Host": "evil.example", "Origin": "https://evil.example"}
    async with served(server) as url, httpx2.AsyncClient(timeout=30) as http:
        await server.settled()
        alive = [await http.get(f"{url}/health", headers=headers) for headers in ({}, probe)]
        ready = [await http.get(f"{url}/ready", headers=headers) for headers in ({}, probe)]
        posted = await http.post(f"{url}/ready", headers=probe)
        others = [await http.get(f"{url}{path}", headers=probe) for path in ("/mcp", "/sse", "/elsewhere")]
        browsed = await http.get(f"{url}/health", headers=page)
        owned = await http.get(f"{url}/health", headers={**probe, "Authorization": "Bearer token-of-alice"})
    assert [(one.status_code, one.json()) for one in alive] == [(200, {"status": "ok"})] * 2
    assert [(one.status_code, one.json()) for one in ready] == [(503, {"status": "unready"})] * 2
    assert [one.status_code for one in (posted, *others, browsed, owned)] == [405, 421, 421, 421, 421, 200]
    assert "gone" in owned.text and "gone" not in "".join(one.text for one in (*alive, *ready))


@pytest.mark.parametrize(
    ("policy", "status", "missing"),
    [
        (None, 200, []),
        (Ready(["here"]), 200, []),
        (Ready(["here", "go*"]), 503, ["server gone"]),
        (Ready(["nowhere"], store=True), 503, ["server nowhere"]),
    ],
)
async def test_e5_a_server_is_ready_when_what_its_policy_names_works(
    policy: Ready | None, status: int, missing: list[str]
) -> None:
    with personal_server({"all": {"one": ""}}, lambda _: "all") as up:
        here, gone = RemoteToolset(up.url, name="here"), RemoteToolset(NOWHERE, name="gone")
        server = ToolsetServer(Toolset(here.prefixed("here"), gone.prefixed("gone")), ready=policy)
        async with served(server) as url, httpx2.AsyncClient(timeout=30) as http:
            await server.settled()
            answer = await http.get(f"{url}/ready")
    assert answer.status_code == status and list(answer.json()["missing"]) == missing
    assert "a-secret-token" not in answer.text and answer.headers["cache-control"] == "no-store"


async def test_e5_a_caller_is_not_told_of_servers_that_do_not_exist_for_it() -> None:
    gone = RemoteToolset(NOWHERE, name="gone")
    policy, ready = Policy(deny=["gone/*"]), Ready(["gone"])
    server = ToolsetServer(Toolset(gone.prefixed("gone")), auth=Callers(), policy=policy, ready=ready)
    async with served(server) as url, httpx2.AsyncClient(timeout=30) as http:
        await server.settled()
        answer = await http.get(f"{url}/ready", headers={"Authorization": "Bearer token-of-alice"})
    assert (answer.status_code, answer.json()) == (503, {"status": "unready", "missing": {}})


async def test_e5_a_configuration_says_what_must_work(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    entry = {"url": NOWHERE}
    file.write_text(json.dumps({"mcpServers": {"gone": entry}, "toolset": {"ready": {"servers": ["gone"]}}}))
    async with served(server_of(file)) as url, httpx2.AsyncClient(timeout=30) as http:
        assert (await http.get(f"{url}/ready")).status_code == 503
    file.write_text(json.dumps({"mcpServers": {"gone": entry}, "toolset": {"ready": {"server": ["gone"]}}}))
    with pytest.raises(ConfigError, match=r"toolset.ready"):
        server_of(file)


@dataclass
class Down:
    """What replicas share, with a store that is down."""

    state: str = "down"

    @property
    def health(self) -> Down:
        return self


@pytest.mark.parametrize("counts", [False, True])
def test_e5_the_store_that_replicas_share_counts_where_the_policy_says_so(counts: bool) -> None:
    monitor = Monitor(lambda: Ready(store=counts), dict, lambda name, _: False, cast("Any", Down()))
    assert monitor.is_ready() is not counts
    assert monitor.health(None) == {"status": "degraded", "servers": {}, "store": "down"}
