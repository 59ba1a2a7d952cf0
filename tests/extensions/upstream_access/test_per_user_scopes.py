"""A caller's token that allows too little, ends in the middle of a call, or is not this caller's."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
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
from tests.support.personal_server import EVERYTHING, Headers, PersonalServer
from tests.support.served import served

from mcp_toolset.security.credential_store import MemoryCredentialStore

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
WRITE = "tools:write"


def scopes_in(headers: Headers) -> set[str]:
    part = headers.get("authorization", "Bearer a.e30.b").split(".")[1]
    said = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return set(said.get("scope", "").split())


def wants_more(up: PersonalServer, *names: str) -> None:
    """Have some requests want the scope `tools:write` besides."""

    def lacks(headers: Headers, method: str, name: str) -> str:
        return WRITE if name in names and WRITE not in scopes_in(headers) else ""

    up.lacks = lacks


def person(opened: list[str], user: str = "alice") -> Callable[..., Any]:
    async def answered(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        opened.append(params.message)
        async with browsing() as browser:
            await logs_in(browser, params.url, user)
        return types.ElicitResult(action="accept")

    return answered


async def headers_of(store: MemoryCredentialStore) -> dict[str, str]:
    """The token of each user."""
    found = {key: await store.load(key) for key in await store.list()}
    return {json.loads(key.user)[2]: record["header"] for key, record in found.items() if record is not None}


@ERAS
async def test_i5_a_call_that_lacks_a_scope_asks_its_caller_for_it_once_and_nobody_else(
    issuer: AuthorizationServer, mode: str
) -> None:
    store, opened, others = MemoryCredentialStore(), list[str](), list[str]()
    with upstream(issuer) as up:
        up.offers = EVERYTHING
        wants_more(up, "of_alice", "ask_alice")
        async with served(bridge(up, store)) as url:
            await logged_in(url, "alice")
            await logged_in(url, "bob")
            before = await headers_of(store)
            async with (
                client_of(url, "alice", mode, elicitation_callback=person(opened)) as alice,
                client_of(url, "bob", mode, elicitation_callback=person(others, "bob")) as bob,
            ):
                await until_listed(alice, {"both", "of_alice"})
                assert text_of(await alice.call_tool("both", {})) == "both by alice" and not opened
                assert text_of(await alice.call_tool("of_alice", {})) == "of_alice by alice"
                assert len(opened) == 1 and opened[0].startswith("Log in to up, for tools:read tools:write.")
                await alice.call_tool("of_alice", {})
                await alice.get_prompt("ask_alice")
                assert text_of(await bob.call_tool("both", {})) == "both by bob"
            after = await headers_of(store)
    assert len(opened) == 1 and not others
    assert after["bob"] == before["bob"] and after["alice"] != before["alice"]


@ERAS
async def test_i5_a_prompt_that_lacks_a_scope_tells_a_client_without_pages_how(
    issuer: AuthorizationServer, mode: str
) -> None:
    with upstream(issuer) as up:
        up.offers = EVERYTHING
        wants_more(up, "ask_alice")
        async with served(bridge(up)) as url:
            await logged_in(url, "alice")
            async with client_of(url, "alice", mode) as alice, browsing() as browser:
                with pytest.raises(MCPError, match="log in again, for tools:read tools:write") as refused:
                    await alice.get_prompt("ask_alice")
                page = URL.search(str(refused.value))
                assert page is not None
                await logs_in(browser, page[0], "alice")
                assert (await alice.get_prompt("ask_alice")).messages


@ERAS
async def test_i5_scopes_that_a_login_does_not_get_are_not_asked_for_twice_in_a_call(
    issuer: AuthorizationServer, mode: str
) -> None:
    opened = list[str]()
    with upstream(issuer) as up:
        up.lacks = lambda headers, method, name: "tools:all" if name == "of_alice" else ""
        async with served(bridge(up)) as url:
            await logged_in(url, "alice")
            async with client_of(url, "alice", mode, elicitation_callback=person(opened)) as alice:
                await until_listed(alice, {"both", "of_alice"})
                refused = await alice.call_tool("of_alice", {})
                assert refused.is_error and len(opened) == 1, text_of(refused)
                assert "tools:all" in text_of(refused)
                assert text_of(await alice.call_tool("both", {})) == "both by alice"
    assert ("alice", "of_alice") not in up.calls


@ERAS
@pytest.mark.parametrize("first", [True, False])
async def test_i5_a_login_that_the_authorization_server_refuses_is_told_at_once(
    issuer: AuthorizationServer, mode: str, *, first: bool
) -> None:
    opened = list[str]()
    with upstream(issuer) as up:
        wants_more(up, "of_alice")
        async with served(bridge(up)) as url:
            if not first:
                await logged_in(url, "alice")
            asked = person(opened, "nobody")
            async with client_of(url, "alice", mode, elicitation_callback=asked) as alice:
                await until_listed(alice, {"log_in"} if first else {"both", "of_alice"})
                with anyio.fail_after(30):
                    refused = await alice.call_tool("log_in" if first else "of_alice", {})
    assert refused.is_error and "access_denied" in text_of(refused) and len(opened) == 1


@ERAS
async def test_i5_a_token_that_ends_during_calls_is_renewed_once_and_touches_no_other_caller(
    issuer: AuthorizationServer, mode: str
) -> None:
    store = MemoryCredentialStore()
    with upstream(issuer) as up:
        async with served(bridge(up, store)) as url:
            await logged_in(url, "alice")
            await logged_in(url, "bob")
            async with client_of(url, "alice", mode) as alice, client_of(url, "bob", mode) as bob:
                await until_listed(alice, {"both", "of_alice"})
                await until_listed(bob, {"both", "of_bob"})
                before, who, asked = await headers_of(store), up.who, issuer.seen().count("POST /token")
                up.hold()
                said = list[str]()

                async def call(client: Client) -> None:
                    said.append(text_of(await client.call_tool("both", {})))

                with anyio.fail_after(30):
                    async with anyio.create_task_group() as group:
                        group.start_soon(call, alice)
                        group.start_soon(call, bob)
                        while len(up.calls) < 2:
                            await anyio.lowlevel.checkpoint()
                        ended = before["alice"]
                        up.who = lambda headers: None if headers["authorization"] == ended else who(headers)
                        for _ in range(4):
                            group.start_soon(call, alice)
                        while len(up.calls) < 6:
                            await anyio.lowlevel.checkpoint()
                        up.release()
                after = await headers_of(store)
    assert sorted(said) == ["both by alice"] * 5 + ["both by bob"]
    assert after["bob"] == before["bob"] and after["alice"] != before["alice"]
    assert issuer.seen().count("POST /token") == asked + 1


@ERAS
async def test_i5_calls_of_a_caller_whose_login_ends_among_them_share_one_new_login(
    issuer: AuthorizationServer, mode: str
) -> None:
    opened, store = list[str](), MemoryCredentialStore()
    with upstream(issuer) as up:
        async with served(bridge(up, store)) as url:
            await logged_in(url, "alice")
            async with client_of(url, "alice", mode) as alice:
                await until_listed(alice, {"both", "of_alice"})
                (ended,), who = (await headers_of(store)).values(), up.who
                for key in await store.list():
                    await store.remove(key)
                up.who = lambda headers: None if headers.get("authorization") == ended else who(headers)
                pages = set[str]()

                async def call() -> None:
                    pages.update(URL.findall(text_of(await alice.call_tool("both", {}))))

                async with anyio.create_task_group() as group:
                    for _ in range(4):
                        group.start_soon(call)
                assert len(pages) == 1
                async with browsing() as browser:
                    await logs_in(browser, pages.pop(), "alice")
                assert text_of(await alice.call_tool("both", {})) == "both by alice"
    assert not opened and [name for _, name in up.calls] == ["both"]


async def test_i5_the_same_subject_of_another_issuer_is_another_caller(issuer: AuthorizationServer) -> None:
    store = MemoryCredentialStore()
    callers = Callers(
        {
            "alice": {"subject": "alice", "issuer": "https://one.example"},
            "eve": {"subject": "alice", "issuer": "https://other.example"},
        }
    )
    with upstream(issuer) as up:
        async with served(bridge(up, store, callers=callers)) as url:
            await logged_in(url, "alice")
            async with client_of(url, "eve") as eve, client_of(url, "alice") as alice:
                await until_listed(alice, {"both", "of_alice"})
                assert set(await tools(eve)) == {"log_in"}
                with pytest.raises(MCPError, match="Unknown tool: of_alice"):
                    await eve.call_tool("of_alice", {})
            users = [json.loads(key.user) for key in await store.list()]
    assert users == [[None, "https://one.example", "alice"]] and up.calls == []
