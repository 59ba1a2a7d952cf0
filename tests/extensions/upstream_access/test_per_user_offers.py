"""Prompts, resources and completions of a server to which each caller logs in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPDeprecationWarning, MCPError
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
from tests.support.callers import client_of, tools
from tests.support.personal_server import EVERYTHING, PersonalServer, personal_server
from tests.support.served import served

from mcp_toolset import RemoteToolset
from mcp_toolset.policy import Policy

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
TOPIC = {"name": "topic", "value": "x"}
Ask = Callable[[Client], Awaitable[Any]]
SKILLS = {**EVERYTHING, "extensions": {"io.modelcontextprotocol/skills": {}}}


class Listed(types.Result):
    """The answer to `skills/list`."""

    skills: list[dict[str, Any]]


async def complete(client: Client) -> Any:
    return await client.complete(types.PromptReference(name="ask_alice"), TOPIC)


async def subscribe(client: Client) -> None:
    with pytest.warns(MCPDeprecationWarning):
        await client.subscribe_resource("mem://alice")


ASKS: dict[str, Ask] = {
    "prompts/get": lambda client: client.get_prompt("ask_alice"),
    "resources/read": lambda client: client.read_resource("mem://alice"),
    "completion/complete": complete,
    "resources/subscribe": subscribe,
}


@asynccontextmanager
async def bridge_of(up: PersonalServer, *more: RemoteToolset, **options: Any) -> AsyncGenerator[str]:
    up.offers = EVERYTHING
    async with served(bridge(up, more=more), **options) as url:
        yield url


def person(opened: list[str], answer: str = "accept") -> Any:
    """A person who opens pages and logs in as alice."""

    async def answered(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        opened.append(params.url)
        if answer == "accept":
            async with browsing() as browser:
                await logs_in(browser, params.url, "alice")
        return types.ElicitResult.model_validate({"action": answer})

    return answered


async def names(client: Client) -> set[str]:
    prompts, resources = await client.list_prompts(), await client.list_resources()
    return {one.name for one in prompts.prompts} | {str(one.uri) for one in resources.resources}


@ERAS
async def test_i5_lists_leave_out_a_server_without_a_login_and_go_on_with_the_others(
    issuer: AuthorizationServer, mode: str
) -> None:
    with upstream(issuer) as up, personal_server({"all": {"shared": ""}}, lambda _: "all") as other:
        other.offers = EVERYTHING
        async with bridge_of(up, RemoteToolset(other.url, name="other")) as url:
            async with client_of(url, "alice", mode) as client:
                assert await names(client) == {"ask_all", "mem://all"}
                assert (await client.get_prompt("ask_all")).messages
                await logged_in(url, "alice", mode, tool="up_log_in")
                assert await names(client) == {"ask_all", "mem://all", "ask_alice", "mem://alice"}
            async with client_of(url, "bob", mode) as client:
                assert await names(client) == {"ask_all", "mem://all"}
                assert "up_both" not in await tools(client)


@ERAS
@pytest.mark.parametrize("method", ASKS)
async def test_i5_a_client_that_opens_no_pages_is_told_where_to_log_in(
    issuer: AuthorizationServer, mode: str, method: str
) -> None:
    if method == "resources/subscribe" and mode != "legacy":
        return
    with upstream(issuer) as up:
        async with bridge_of(up) as url, client_of(url, "alice", mode) as client:
            with pytest.raises(MCPError, match="up: you have to log in first: open http") as refused:
                await ASKS[method](client)
            page = URL.search(str(refused.value))
            assert page is not None
            async with browsing() as browser:
                await logs_in(browser, page[0], "alice")
            await ASKS[method](client)
        assert up.watched == ([("alice", "mem://alice")] if "subscribe" in method else [])


@ERAS
@pytest.mark.parametrize("method", ASKS)
async def test_i5_a_client_that_opens_pages_is_asked_where_its_era_has_that(
    issuer: AuthorizationServer, mode: str, method: str
) -> None:
    opened = list[str]()
    asks = mode == "legacy" or method in ("prompts/get", "resources/read")
    if method == "resources/subscribe" and not asks:
        return
    with upstream(issuer) as up:
        async with (
            bridge_of(up) as url,
            client_of(url, "alice", mode, elicitation_callback=person(opened)) as client,
        ):
            if asks:
                await ASKS[method](client)
                assert len(opened) == 1
                await ASKS[method](client)
            else:
                with pytest.raises(MCPError, match="open http"):
                    await ASKS[method](client)
    assert len(opened) == asks


@ERAS
async def test_i5_a_resource_that_another_server_refuses_may_be_of_one_to_log_in_to(
    issuer: AuthorizationServer, mode: str
) -> None:
    with upstream(issuer) as up, personal_server({"all": {}}, lambda _: "all") as other:
        other.offers = EVERYTHING
        other.missing = {"mem://alice", "mem://nobody"}
        asked = person(opened := list[str]())
        async with bridge_of(up, RemoteToolset(other.url, name="other")) as url:
            async with client_of(url, "alice", mode, elicitation_callback=asked) as alice:
                assert "of all" in str(await alice.read_resource("mem://all")) and not opened
                assert "of alice" in str(await alice.read_resource("mem://alice")) and len(opened) == 1
                other.missing |= {"mem://all"}
                with pytest.raises(MCPError, match="no"):
                    await alice.read_resource("mem://all")
    assert len(opened) == 1


@ERAS
async def test_i5_a_declined_login_reads_nothing(issuer: AuthorizationServer, mode: str) -> None:
    opened = list[str]()
    with upstream(issuer) as up:
        asked = person(opened, "decline")
        async with bridge_of(up) as url, client_of(url, "alice", mode, elicitation_callback=asked) as client:
            with pytest.raises(MCPError, match="the login was declined"):
                await client.get_prompt("ask_alice")
    assert len(opened) == 1 and not any("prompts/get" in each for each in up.received)


@ERAS
async def test_i5_a_caller_without_a_login_cannot_tell_what_others_are_listed(
    issuer: AuthorizationServer, mode: str
) -> None:
    with upstream(issuer) as up:
        async with bridge_of(up) as url, client_of(url, "alice", mode) as alice:
            await logged_in(url, "bob", mode)
            async with client_of(url, "bob", mode) as bob:
                assert await names(bob) == {"ask_bob", "mem://bob"}
            said = list[str]()
            for name in ("ask_bob", "ask_nobody"):
                with pytest.raises(MCPError) as refused:
                    await alice.get_prompt(name)
                said.append(URL.sub("URL", str(refused.value)))
            for uri in ("mem://bob", "mem://nobody"):
                with pytest.raises(MCPError) as refused:
                    await alice.read_resource(uri)
                said.append(URL.sub("URL", str(refused.value)))
    assert set(said) == {"up: you have to log in first: open URL in a browser, then call again"}


async def test_i5_a_legacy_client_without_a_stream_for_questions_gets_the_page_in_an_error(
    issuer: AuthorizationServer,
) -> None:
    import httpx2

    head = {"Authorization": "Bearer token-of-alice", "Accept": "application/json, text/event-stream"}
    client = {"name": "curl", "version": "1"}
    first = {
        "protocolVersion": "2025-11-25",
        "clientInfo": client,
        "capabilities": {"elicitation": {"url": {}}},
    }
    with upstream(issuer) as up:
        async with (
            bridge_of(up, json_response=True) as url,
            httpx2.AsyncClient(headers=head, timeout=30) as http,
        ):

            async def post(number: int, method: str, params: dict[str, Any]) -> httpx2.Response:
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                return await http.post(f"{url}/mcp", json=message)

            begun = await post(1, "initialize", first)
            http.headers["mcp-session-id"] = begun.headers["mcp-session-id"]
            for number, method, params in (
                (2, "prompts/get", {"name": "ask_alice"}),
                (3, "tools/call", {"name": "log_in", "arguments": {}}),
            ):
                error = (await post(number, method, params)).json()["error"]
                page = error["data"]["elicitations"][0]
                assert error["code"] == -32042 and page["mode"] == "url" and page["elicitationId"]
                assert URL.fullmatch(page["url"]) and "Log in to up" in page["message"]


async def test_i5_tools_of_a_logged_in_caller_work_beside(issuer: AuthorizationServer) -> None:
    with upstream(issuer) as up:
        async with bridge_of(up) as url, client_of(url, "alice", elicitation_callback=person([])) as client:
            await client.get_prompt("ask_alice")
            assert text_of(await client.call_tool("both", {})) == "both by alice"


async def test_i5_a_stream_of_changes_waits_for_no_login_and_tells_of_it(issuer: AuthorizationServer) -> None:
    mode = "2026-07-28"
    with upstream(issuer) as up:
        async with bridge_of(up) as url, client_of(url, "alice", mode) as client:
            await tools(client)
            wanted = ["mem://alice"]
            async with client.listen(tools_list_changed=True, resource_subscriptions=wanted) as changes:
                with anyio.fail_after(30):
                    await logged_in(url, "alice", mode)
                    assert await anext(aiter(changes))
                    await client.list_tools()
        assert up.watched == []


@ERAS
async def test_g3_a_caller_is_listed_the_skills_of_its_own_connection_only(
    issuer: AuthorizationServer, mode: str
) -> None:
    asked = types.Request[dict[str, Any], str]

    async def skills(client: Client) -> list[str]:
        send: Any = client.session.send_request
        page = await send(asked(method="skills/list", params={}), Listed)
        return [one["uri"] for one in page.skills]

    opened = list[str]()
    with upstream(issuer) as up:
        async with bridge_of(up) as url:
            up.offers = SKILLS
            async with client_of(url, "alice", mode, elicitation_callback=person(opened)) as client:
                assert await skills(client) == []
            await logged_in(url, "alice", mode)
            async with client_of(url, "bob", mode, elicitation_callback=person(opened)) as client:
                assert await skills(client) == []
            async with client_of(url, "alice", mode) as client:
                assert await skills(client) == ["kb://of-alice/SKILL.md"]
            assert opened == []


@ERAS
async def test_g3_a_login_in_the_middle_of_a_read_opens_no_skill_that_a_policy_denies(
    issuer: AuthorizationServer, mode: str
) -> None:
    opened = list[str]()
    with upstream(issuer) as up:
        up.offers = SKILLS
        server = bridge(up, policy=Policy(deny=["up_of-alice"]))
        async with (
            served(server) as url,
            client_of(url, "alice", mode, elicitation_callback=person(opened)) as client,
        ):
            for _ in range(2):
                with pytest.raises(MCPError, match="Resource not found"):
                    await client.read_resource("kb://of-alice/SKILL.md")
            assert (await client.read_resource("mem://alice")).contents
    assert len(opened) == 1
