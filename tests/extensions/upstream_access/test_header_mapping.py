"""Headers about the caller: which a mounted server is sent, what callers share."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from tests.support.asking import text_of
from tests.support.callers import Callers, client_of, tools, until_listed
from tests.support.config import config_of
from tests.support.personal_server import Headers, PersonalServer, personal_server
from tests.support.served import served

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, load_toolset
from mcp_toolset.auth import Forward
from mcp_toolset.config import load_config
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.upstream_access import caller_connections

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[3] / "examples" / "per_user"
FACTS = {
    "ann": {"roles": ["admin", "staff"], "scopes": ["read"]},
    "eve": {"subject": "eve\r\nX-Admin: yes"},
    "joe": {"subject": " ann"},
    "kim": {"roles": ["user,admin"]},
}
TOOLS = {
    "ann": {"both": "Both have it.", "own": "The tool of Ann.", "of_ann": "Ann's."},
    "bob": {"both": "Both have it.", "own": "The tool of Bob.", "of_bob": "Bob's."},
    "nobody": {"both": "Both have it."},
}


def user(headers: Headers) -> str | None:
    return headers.get("x-user", "nobody")


def bridge(upstream: PersonalServer, **options: Any) -> ToolsetServer:
    options.setdefault("forward", {"X-User": "identity.name"})
    remote = RemoteToolset(upstream.url, name="up", start_timeout=20, **options)
    return ToolsetServer(Toolset(remote), auth=Callers(FACTS))


@pytest.mark.parametrize("mode", ["legacy", "sse", "2026-07-28"])
@pytest.mark.parametrize("modern", [False, True])
async def test_i6_each_caller_is_named_to_the_server_and_has_lists_and_calls_of_its_own(
    mode: str, modern: bool
) -> None:
    with personal_server(TOOLS, user, modern=modern) as up:
        async with (
            served(bridge(up)) as url,
            client_of(url, "ann", mode) as ann,
            client_of(url, "bob", mode) as bob,
        ):
            await until_listed(ann, {"both", "own", "of_ann"})
            await until_listed(bob, {"both", "own", "of_bob"})
            assert text_of(await ann.call_tool("both", {})) == "both by ann"
            assert text_of(await bob.call_tool("both", {})) == "both by bob"
            assert [str(one.uri) for one in (await ann.list_resources()).resources] == ["mem://ann"]
            assert [str(one.uri) for one in (await bob.list_resources()).resources] == ["mem://bob"]
            with pytest.raises(MCPError, match="Unknown tool: of_ann"):
                await bob.call_tool("of_ann", {})
        assert ("bob", "of_ann") not in up.calls
    assert "token-of" not in "".join(up.received)
    assert set(up.sessions.values()) <= {"ann", "bob", "nobody"}


async def test_u113_connections_for_many_callers_at_once_are_opened_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caller_connections, "_START", 60.0)
    names, waiting, most = [f"c{number}" for number in range(12)], set[str](), list[int]()
    go = threading.Event()

    def slow(headers: Headers) -> str | None:
        name = headers.get("x-user", "nobody")
        if name != "nobody" and not go.is_set():
            waiting.add(name)
            most.append(len(waiting))
            go.wait(30)
        return name

    listed = {name: {"both": "Both have it."} for name in (*names, "nobody")}
    with personal_server(listed, slow) as up:
        async with served(bridge(up)) as url, AsyncExitStack() as stack:
            stack.callback(go.set)
            clients = [await stack.enter_async_context(client_of(url, name)) for name in names]
            answers = list[str]()

            async def call(client: Client) -> None:
                answers.append(text_of(await client.call_tool("both", {})))

            async with anyio.create_task_group() as group:
                for client in clients:
                    group.start_soon(call, client)
                async with httpx2.AsyncClient(base_url=url) as http:
                    with anyio.fail_after(30):
                        while len(waiting) < caller_connections.STARTING:
                            await http.get("/health")
                    for _ in clients:
                        await http.get("/health")
                assert max(most) == caller_connections.STARTING
                go.set()
    assert sorted(answers) == sorted(f"both by {name}" for name in names)


async def test_i6_what_the_server_says_of_a_tool_to_one_caller_is_shown_to_no_other() -> None:
    with personal_server(TOOLS, user) as up:
        async with served(bridge(up)) as url, client_of(url, "ann") as ann, client_of(url, "bob") as bob:
            await until_listed(ann, {"both", "own", "of_ann"})
            await until_listed(bob, {"both", "own", "of_bob"})
            assert (await tools(ann))["own"] == "The tool of Ann."
            assert (await tools(bob))["own"] == "The tool of Bob."
            assert (await tools(ann))["own"] == "The tool of Ann."
            assert text_of(await bob.call_tool("own", {})) == "own by bob"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_i6_a_search_finds_what_the_server_lists_to_the_caller_who_searches(mode: str) -> None:
    with personal_server(TOOLS, user) as up:
        remote = RemoteToolset(up.url, name="up", start_timeout=20, forward={"X-User": "identity.name"})
        server = ToolsetServer(remote.deferred(), auth=Callers())
        async with (
            served(server) as url,
            client_of(url, "ann", mode) as ann,
            client_of(url, "bob", mode) as bob,
        ):
            for client, mine, others in (
                (ann, "of_ann", "of_bob"),
                (bob, "of_bob", "of_ann"),
                (ann, "of_ann", "of_bob"),
            ):
                asked, found = {"query": "of ann of bob both", "resolve": 3}, ""
                # A search waits a few seconds only for what a busy server lists.
                while mine not in found:
                    found = text_of(await client.call_tool("search_tools", asked))
                assert others not in found
                assert ("The tool of Bob." if client is ann else "The tool of Ann.") not in found
            listed = repr(await bob.list_tools())
            assert "of_ann" not in listed


@pytest.mark.parametrize("name", ["eve", "joe"])
async def test_i6_a_name_that_no_header_can_carry_is_not_sent(name: str) -> None:
    with personal_server(TOOLS, user) as up:
        async with served(bridge(up)) as url, client_of(url, name) as client:
            assert await tools(client) == {}
            result = await client.call_tool("both", {})
            assert result.is_error and "cannot be sent in a header" in text_of(result)
    assert "X-Admin" not in "".join(up.received) and not up.calls


async def test_i6_roles_and_a_header_of_the_client_are_sent_as_named() -> None:
    forward = {"X-User": "identity.name", "X-Roles": "identity.roles", "X-Key": "header.X-Client-Key"}
    with personal_server(TOOLS, user) as up:
        async with served(bridge(up, forward=forward)) as url:
            sent = {"X-Client-Key": "the-key", "X-User": "root", "Cookie": "a=b"}
            async with client_of(url, "ann", headers=sent) as ann:
                await ann.call_tool("both", {})
            async with client_of(url, "kim") as kim:
                refused = await kim.call_tool("both", {})
    assert refused.is_error and "has a comma" in text_of(refused)
    received = [one.lower() for one in up.received if '"tools/call"' in one]
    assert len(received) == 1 and "x-user: ann" in received[0] and "root" not in received[0]
    assert "x-roles: admin,staff" in received[0] and "x-key: the-key" in received[0]
    assert "cookie" not in received[0]


@pytest.mark.parametrize(
    ("forward", "fault"),
    [
        ({"X-User\r\n": "identity.name"}, "no name of a header"),
        ({"Authorization": "header.x-token"}, "passed through"),
        ({"X-Token": "header.authorization"}, "a credential of the caller"),
        ({"Mcp-Session-Id": "identity.name"}, "of HTTP or of the protocol"),
        ({"X-User": "identity.claims"}, "none of identity.name"),
        ({"X-User": "identity.name", "x-user": "identity.subject"}, "twice"),
        ({"X-Own": "identity.name"}, "both have X-Own"),
    ],
)
def test_i6_a_mapping_that_cannot_hold_is_refused_when_it_is_made(forward: Any, fault: str) -> None:
    with pytest.raises(DefinitionError, match=fault):
        RemoteToolset("https://example.com/mcp", name="up", headers={"x-own": "1"}, forward=forward)


@pytest.mark.parametrize("name", ["headers", "exchange", "login"])
def test_i6_the_examples_reach_each_caller_apart(name: str) -> None:
    config = load_config(EXAMPLES / f"{name}.json")
    (remote,) = load_toolset(config).sources()
    assert not config.servers[0].fault and isinstance(remote, RemoteToolset)
    assert remote.is_personal and remote.keep_key is None


def test_i6_passing_through_is_said_by_auth_too() -> None:
    config = config_of({"mcpServers": {"a": {"url": "https://host/mcp", "auth": {"type": "forward"}}}})
    (remote,) = load_toolset(config).sources()
    assert isinstance(config.servers[0].extensions["access"].auth, Forward)
    assert isinstance(remote, RemoteToolset) and not remote.is_personal


def test_i6_headers_about_callers_are_not_for_a_command() -> None:
    with pytest.raises(DefinitionError, match="over HTTP"):
        RemoteToolset(["command"], name="up", forward={"X-User": "identity.name"})
