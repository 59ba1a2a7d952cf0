"""What others try with a caller's login and connection, and what happens when two things come at once."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest
from mcp import MCPError
from tests.extensions.upstream_access.test_per_user_login import (
    URL,
    bridge,
    browsing,
    logged_in,
    logs_in,
    upstream,
)
from tests.support.asking import text_of
from tests.support.authorization_server import AuthorizationServer
from tests.support.callers import Callers, client_of, tools, until_listed
from tests.support.personal_server import personal_server
from tests.support.served import served

from mcp_toolset import Identity, RemoteToolset, ToolContext, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

FORWARD = {"X-User": "identity.name"}
TOOLS = {"ann": {"both": "", "of_ann": ""}, "bob": {"both": "", "of_bob": ""}, "nobody": {"both": ""}}


def connections(server: ToolsetServer) -> Any:
    """Those of single callers."""
    remote = server.registry.sources()["up"]
    assert isinstance(remote, RemoteToolset)
    return remote.connection


async def test_i5_two_callers_and_two_calls_of_one_log_in_at_once(issuer: AuthorizationServer) -> None:
    with upstream(issuer) as up:
        async with (
            served(bridge(up)) as url,
            client_of(url, "alice") as alice,
            client_of(url, "bob") as bob,
            browsing() as one,
            browsing() as other,
        ):
            pages: dict[str, set[str]] = {"alice": set(), "bob": set()}

            async def ask(client: Any, name: str) -> None:
                pages[name] |= set(URL.findall(text_of(await client.call_tool("log_in", {}))))

            async with anyio.create_task_group() as group:
                for client, name in ((alice, "alice"), (alice, "alice"), (bob, "bob")):
                    group.start_soon(ask, client, name)
            assert len(pages["alice"]) == len(pages["bob"]) == 1 and pages["alice"] != pages["bob"]
            async with anyio.create_task_group() as group:
                group.start_soon(logs_in, one, pages["alice"].pop(), "alice")
                group.start_soon(logs_in, other, pages["bob"].pop(), "bob")
            await until_listed(alice, {"both", "of_alice"})
            await until_listed(bob, {"both", "of_bob"})


class Known:
    """An application that knows the user of each browser."""

    def __init__(self, app: Any, user: str) -> None:
        self.app, self.user = app, user

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/oauth/"):
            scope["user"] = Identity.of(None, self.user)
        await self.app(scope, receive, send)


@pytest.mark.parametrize(("user", "status"), [("alice", 200), ("bob", 403)])
async def test_i5_a_browser_whose_user_is_known_logs_in_for_that_user_alone(
    issuer: AuthorizationServer, user: str, status: int
) -> None:
    with upstream(issuer) as up:
        server = bridge(up)
        made = server.http_app

        def http_app(*args: Any, **options: Any) -> Any:
            app = made(*args, **options)
            app.add_middleware(Known, user=user)
            return app

        server.http_app = http_app  # pyright: ignore[reportAttributeAccessIssue]
        async with served(server) as url, client_of(url, "alice") as alice, browsing() as browser:
            page = URL.findall(text_of(await alice.call_tool("log_in", {})))[0]
            answer = await browser.get(page)
            assert answer.status_code == status
            assert bool(re.search("continue=", answer.text)) == (status == 200)


async def test_i5_a_login_of_one_server_or_caller_is_unknown_to_others(issuer: AuthorizationServer) -> None:
    with upstream(issuer) as up:
        async with served(bridge(up)) as url, client_of(url, "alice") as alice, browsing() as browser:
            page = URL.findall(text_of(await alice.call_tool("log_in", {})))[0]
            assert (await browser.get(page[:-1])).status_code == 404
            assert (await browser.get(f"{url}/oauth/login/")).status_code == 404
            async with served(bridge(up)) as elsewhere:
                there = page.replace(url, elsewhere)
                assert (await browser.get(there)).status_code == 404


async def test_i5_a_call_in_flight_ends_while_its_caller_is_logged_out_and_another_goes_on(
    issuer: AuthorizationServer,
) -> None:
    with upstream(issuer) as up:
        server = bridge(up)
        async with served(server) as url:
            await logged_in(url, "alice")
            async with client_of(url, "alice") as alice, anyio.create_task_group() as group:
                await until_listed(alice, {"both", "of_alice"})
                up.hold()
                results: list[str] = []

                async def call() -> None:
                    results.append(text_of(await alice.call_tool("both", {})))

                group.start_soon(call)
                with anyio.fail_after(20):
                    while not up.calls:
                        await anyio.lowlevel.checkpoint()
                connections(server).close_unused(anyio.current_time())
                up.release()
            assert results == ["both by alice"]


async def test_i6_a_connection_that_is_not_used_is_closed_and_the_next_call_opens_another() -> None:
    with personal_server(TOOLS, lambda headers: headers.get("x-user", "nobody")) as up:
        remote = RemoteToolset(up.url, name="up", start_timeout=20, forward=FORWARD)
        server = ToolsetServer(Toolset(remote), auth=Callers())
        async with served(server) as url, client_of(url, "ann") as ann, client_of(url, "bob") as bob:
            await until_listed(ann, {"both", "of_ann"})
            await until_listed(bob, {"both", "of_bob"})
            # One that is at work is left for the next look.
            with anyio.fail_after(20):
                while len(connections(server)):
                    connections(server).close_unused(anyio.current_time())
                    await anyio.lowlevel.checkpoint()
            assert text_of(await ann.call_tool("of_ann", {})) == "of_ann by ann"
            with pytest.raises(MCPError, match="Unknown tool: of_ann"):
                await bob.call_tool("of_ann", {})
            await until_listed(bob, {"both", "of_bob"})


async def test_i6_requests_without_a_caller_see_what_the_entry_itself_is_listed() -> None:
    with personal_server(TOOLS, lambda headers: headers.get("x-user", "nobody")) as up:
        remote = RemoteToolset(up.url, name="up", start_timeout=20, forward=FORWARD)
        server = ToolsetServer(Toolset(remote), auth=Callers())
        async with served(server) as url, client_of(url, "ann") as ann:
            await tools(ann)
            assert [tool["name"] for tool in server.listed(ToolContext())] == ["both"]
