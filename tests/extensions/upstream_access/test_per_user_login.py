"""Each caller logs in to a mounted server, by a real authorization server, and has what is its own."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from tests.support.asking import text_of
from tests.support.authorization_server import AuthorizationServer
from tests.support.callers import Callers, client_of, tools, until_listed
from tests.support.personal_server import Headers, PersonalServer, personal_server
from tests.support.served import served

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.auth import OAuth
from mcp_toolset.policy import Policy
from mcp_toolset.security.credential_store import MemoryCredentialStore

pytestmark = pytest.mark.anyio

TOOLS = {"alice": {"both": "Hers.", "of_alice": ""}, "bob": {"both": "His.", "of_bob": ""}}
URL = re.compile(r"http://127\.0\.0\.1:\d+/oauth/login/[\w-]+")


@contextmanager
def upstream(issuer: AuthorizationServer) -> Generator[PersonalServer]:
    def user(headers: Headers) -> str | None:
        part = headers.get("authorization", "Bearer a.e30.b").split(".")[1]
        said = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return said["sub"] if said.get("aud") == up.url else None

    with personal_server(TOOLS, user) as up:
        up.metadata = {"resource": up.url, "authorization_servers": [issuer.issuer]}
        yield up


def bridge(
    up: PersonalServer,
    store: MemoryCredentialStore | None = None,
    *,
    callers: Callers | None = None,
    more: Iterable[RemoteToolset] = (),
    audit: Path | None = None,
    policy: Policy | None = None,
) -> ToolsetServer:
    auth = OAuth(per_user=True, scopes=["tools:read"], store=store or MemoryCredentialStore())
    remote = RemoteToolset(up.url, name="up", start_timeout=20, auth=auth)
    others = list(more)
    tools = Toolset(remote.prefixed("up"), *others) if others else Toolset(remote)
    return ToolsetServer(tools, auth=callers or Callers(), audit=audit, policy=policy)


async def logs_in(browser: httpx2.AsyncClient, page: str, user: str) -> httpx2.Response:
    """A person who reads the page, agrees, and logs in as `user`; the last answer."""
    answer = await browser.get(page)
    assert answer.status_code == 200, answer.text
    proof = re.search(r'href="(\?continue=\w+)"', answer.text)
    assert proof is not None
    answer = await browser.get(page + proof[1])
    there = f"{answer.headers['location']}&login_hint={user}"
    while there is not None and "/oauth/callback" not in there:
        answer = await browser.get(there)
        there = str(answer.url.join(answer.headers["location"]))
    return await browser.get(there)


@asynccontextmanager
async def browsing() -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=20) as browser:
        yield browser


async def logged_in(url: str, name: str, mode: str = "2026-07-28", *, tool: str = "log_in") -> None:
    """Log a caller in by the address in the error, for a client that cannot open pages."""
    async with client_of(url, name, mode) as client, browsing() as browser:
        await until_found(client, tool)
        refused = await client.call_tool(tool, {})
        page = URL.search(text_of(refused))
        assert refused.is_error and page is not None, text_of(refused)
        answer = await logs_in(browser, page[0], name)
        assert "You are logged in to up" in answer.text


async def until_found(client: Client, tool: str) -> None:
    """Wait until a client is listed a tool."""
    with anyio.fail_after(30):
        while tool not in await tools(client):
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_i5_a_caller_is_listed_a_login_and_afterwards_its_own_tools(
    issuer: AuthorizationServer, mode: str
) -> None:
    with upstream(issuer) as up:
        store = MemoryCredentialStore()
        async with served(bridge(up, store)) as url:
            await logged_in(url, "alice", mode)
            async with client_of(url, "alice", mode) as alice, client_of(url, "bob", mode) as bob:
                await until_listed(alice, {"both", "of_alice"})
                assert text_of(await alice.call_tool("both", {})) == "both by alice"
                await until_listed(bob, {"log_in"})
                for name in ("both", "of_alice"):
                    with pytest.raises(MCPError, match=f"Unknown tool: {name}"):
                        await bob.call_tool(name, {})
                await logged_in(url, "bob", mode)
                await until_listed(bob, {"both", "of_bob"})
                assert (await tools(bob))["both"] == "His." and (await tools(alice))["both"] == "Hers."
                assert text_of(await bob.call_tool("both", {})) == "both by bob"
        users = {json.loads(key.user)[2] for key in await store.list()}
        assert users == {"alice", "bob"}
    assert up.calls == [("alice", "both"), ("bob", "both")] and "token-of" not in "".join(up.received)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_i5_a_client_that_opens_pages_is_asked_to_and_the_call_goes_on(
    issuer: AuthorizationServer, mode: str
) -> None:
    opened: list[str] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        opened.append(params.url)
        async with browsing() as browser:
            await logs_in(browser, params.url, "alice")
        return types.ElicitResult(action="accept")

    with upstream(issuer) as up:
        async with served(bridge(up)) as url:
            async with client_of(url, "alice", mode, elicitation_callback=person) as client:
                await until_listed(client, {"log_in"})
                assert "You are logged in" in text_of(await client.call_tool("log_in", {}))
                await until_listed(client, {"both", "of_alice"})
    assert len(opened) == 1 and URL.fullmatch(opened[0])


async def test_i5_a_login_that_is_declined_calls_nothing(issuer: AuthorizationServer) -> None:
    async def person(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    with upstream(issuer) as up:
        async with served(bridge(up)) as url:
            async with client_of(url, "alice", elicitation_callback=person) as client:
                refused = await client.call_tool("log_in", {})
    assert refused.is_error and "declined" in text_of(refused) and up.calls == []


async def test_i5_a_login_is_for_one_browser_and_its_state_is_used_once(issuer: AuthorizationServer) -> None:
    with upstream(issuer) as up:
        async with served(bridge(up)) as url, client_of(url, "alice") as alice:
            page = URL.findall(text_of(await alice.call_tool("log_in", {})))[0]
            async with browsing() as victim, browsing() as attacker:
                first = await attacker.get(page)
                proof = re.findall(r"\?continue=\w+", first.text)[0]
                # The link of the attacker's own page does not spare a victim the question.
                assert (await victim.get(page + proof)).status_code == 200
                assert (await attacker.get(f"{page}?continue=%C3%A9")).status_code == 403
                begun = await attacker.get(page + proof)
                there = begun.headers["location"]
                asked = await victim.get(page)
                mine = re.findall(r"\?continue=\w+", asked.text)[0]
                assert (await victim.get(page + mine)).status_code == 403
                answer = await victim.get(f"{there}&login_hint=bob")
                while "/oauth/callback" not in (back := str(answer.url.join(answer.headers["location"]))):
                    answer = await victim.get(back)
                assert (await victim.get(back)).status_code == 403
                assert (await victim.get(f"{url}/oauth/callback?code=x&state=guessed")).status_code == 404
                assert (await victim.get(f"{url}/oauth/callback?code=x")).status_code == 404
                assert (await victim.post(back)).status_code == 405
                await until_listed(alice, {"log_in"})
                ended = await attacker.get(back)
                assert ended.status_code == 200
                assert (await attacker.get(back)).status_code == 404
    assert not any("session" in each for each in up.sessions if up.sessions[each] == "alice")


async def test_i5_a_page_names_the_caller_and_no_markup_of_it_is_taken(issuer: AuthorizationServer) -> None:
    with upstream(issuer) as up:
        async with served(bridge(up)) as url, client_of(url, "<b>eve</b>") as eve, browsing() as browser:
            page = URL.findall(text_of(await eve.call_tool("log_in", {})))[0]
            answer = await browser.get(page)
    assert "&lt;b&gt;eve&lt;/b&gt;" in answer.text and "<b>eve" not in answer.text
    assert answer.headers["x-frame-options"] == "DENY" and "no-store" in answer.headers["cache-control"]
    assert up.calls == []


async def test_i5_a_caller_whose_tokens_are_gone_logs_in_again_and_others_go_on(
    issuer: AuthorizationServer,
) -> None:
    with upstream(issuer) as up:
        store = MemoryCredentialStore()
        async with served(bridge(up, store)) as url:
            await logged_in(url, "alice")
            await logged_in(url, "bob")
            async with client_of(url, "alice") as alice, client_of(url, "bob") as bob:
                await until_listed(alice, {"both", "of_alice"})
                await until_listed(bob, {"both", "of_bob"})
                before, user = up.who, "alice"
                for key in await store.list():
                    if json.loads(key.user)[2] == user:
                        await store.remove(key)
                up.who = lambda headers: None if before(headers) == user else before(headers)
                refused = await alice.call_tool("of_alice", {})
                assert refused.is_error and URL.search(text_of(refused))
                assert text_of(await bob.call_tool("both", {})) == "both by bob"


async def test_i9_a_login_of_a_caller_at_the_page_of_the_server_is_recorded(
    issuer: AuthorizationServer, tmp_path: Path
) -> None:
    file, store = tmp_path / "audit.jsonl", MemoryCredentialStore()
    with upstream(issuer) as up:
        async with served(bridge(up, store, audit=file)) as url:
            await logged_in(url, "alice")
    text = file.read_text()
    (login,) = [
        one for one in map(json.loads, text.splitlines()) if one["event"] == "login" and "server" in one
    ]
    assert (login["server"], login["outcome"]) == ("up", "logged in") and "alice" in login["key"]
    (key,) = await store.list()
    kept = await store.load(key)
    assert kept is not None and kept["header"].split()[-1] not in text
