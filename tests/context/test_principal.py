"""Who an HTTP request is from; a user who cannot be told from others is refused, and is never anonymous."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import pytest
from starlette.authentication import BaseUser, SimpleUser
from tests.transports.test_http_endpoint import HEADERS as MODERN
from tests.transports.test_http_endpoint import call as modern_call
from tests.transports.test_legacy_sessions import HEADERS, INITIALIZE

from mcp_toolset import Toolset, ToolsetServer, tool

pytestmark = pytest.mark.anyio


class Nameless(BaseUser):
    """A user that Starlette lets an application write: it is authenticated, and says nothing else."""

    @property
    def is_authenticated(self) -> bool:
        return True


class Broken(Nameless):
    """The database of users is down."""

    @property
    def display_name(self) -> str:
        raise ConnectionError("no database")


class OldStyle:
    """`is_authenticated` was a method in Django."""

    display_name = "ann"

    def is_authenticated(self) -> bool:
        return False


ODD = [
    pytest.param("ann", id="text"),
    pytest.param({"name": "ann", "is_authenticated": True}, id="dict"),
    pytest.param(SimpleNamespace(display_name="ann"), id="without-is-authenticated"),
    pytest.param(OldStyle(), id="method"),
    pytest.param(Nameless(), id="no-display-name"),
    pytest.param(Broken(), id="raises"),
    pytest.param(SimpleNamespace(is_authenticated=True, display_name=None), id="none"),
    pytest.param(SimpleUser(""), id="empty"),
]


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@asynccontextmanager
async def behind(users: list[Any]) -> AsyncGenerator[httpx2.AsyncClient]:
    async with ToolsetServer(Toolset(echo)) as server:
        app = server.http_app()

        async def signed_in(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "user": users[0]} if users else scope, receive, send)

        with anyio.fail_after(30):
            async with (
                app.router.lifespan_context(app),
                httpx2.AsyncClient(
                    transport=httpx2.ASGITransport(signed_in), base_url="http://127.0.0.1:8000"
                ) as http,
            ):
                yield http


@pytest.mark.parametrize("user", ODD)
async def test_such_a_user_is_refused_at_every_door_and_gets_no_anonymous_session(
    user: Any, caplog: pytest.LogCaptureFixture
) -> None:
    users: list[Any] = []
    modern = {
        **modern_call(),
        "params": {**modern_call()["params"], "name": "echo", "arguments": {"text": "a"}},
    }
    named = {**MODERN, "mcp-name": "echo"}
    async with behind(users) as http:
        anonymous = await http.post("/mcp", headers=HEADERS, json=INITIALIZE)
        session = {**HEADERS, "mcp-session-id": anonymous.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await http.post("/mcp", headers=named, json=modern)).status_code == 200
        users.append(user)
        refused = [
            await http.post("/mcp", headers=HEADERS, json=INITIALIZE),
            await http.post("/mcp", headers=session, json=ping),
            await http.post("/mcp", headers=named, json=modern),
            await http.get("/mcp", headers=session),
            await http.delete("/mcp", headers=session),
            await http.get("/sse"),
        ]
        assert [answer.status_code for answer in refused] == [500] * 6
        assert {answer.text for answer in refused} == {
            "the server cannot tell who has sent this request; its log says what to mend"
        }
        users.clear()
        # Other callers notice nothing of it.
        assert (await http.post("/mcp", headers=session, json=ping)).json()["result"] == {}
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 6 and all("starlette.authentication.BaseUser" in line for line in told)
