"""Tokens of a real authorization server at every door: who gets in, as whom, and until when (I1)."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from tests.identities.doors import ACCEPT, DOORS, META, Door, Sse, reached
from tests.support.authorization_server import AuthorizationServer, authorization_server

from mcp_toolset import ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.auth import JWT, Authenticator
from mcp_toolset.extensions.inbound_auth.verifiers.jwt import KeySet

pytestmark = [pytest.mark.anyio, pytest.mark.needs("inbound_auth")]
RESOURCE = "http://127.0.0.1/tools/mcp"
OTHER = "http://127.0.0.1/other/mcp"


@tool
def whoami(context: ToolContext) -> str:
    """Say who calls."""
    who = context.identity
    return "nobody" if who is None else f"{who.name} {who.client} {' '.join(sorted(who.scopes))}"


@pytest.fixture(scope="module")
def issuing() -> Generator[AuthorizationServer]:
    with authorization_server() as running:
        yield running


class Stopped:
    """A clock that moves when the test says so."""

    def __init__(self) -> None:
        self.began, self.ahead = time.time(), 0

    def __call__(self) -> float:
        return self.began + self.ahead


class Rig:
    """A served toolset, its clocks, and a client of each kind."""

    def __init__(self, issuing: AuthorizationServer, **options: Any) -> None:
        self.clock, self.monotonic = Stopped(), Stopped()
        self.keys = KeySet(issuing.issuer, None, clock=self.monotonic)
        jwt = JWT(issuer=issuing.issuer, audience=RESOURCE, keys=self.keys)
        self.auth = Authenticator(jwt, resource=RESOURCE, clock=self.clock, **options)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[dict[str, Door]]:
        with anyio.fail_after(120):
            async with reached(ToolsetServer(Toolset(whoami), auth=self.auth)) as (http, group):
                yield {name: kind(http, lambda *_: None, group) for name, kind in DOORS.items()}

    @staticmethod
    async def status(door: Door, token: str) -> int:
        door.token = token
        return (await door.ask("tools/list")).status


async def called(door: Door, token: str) -> str:
    door.token = token
    return (await door.ask("tools/call", name="whoami", arguments={})).text


async def test_i1_a_token_of_a_user_is_that_user_at_every_door(issuing: AuthorizationServer) -> None:
    tokens = {user: issuing.user_token(user, RESOURCE) for user in ("ann", "bob")}
    program = issuing.machine_token(RESOURCE, "tools:read tools:write")
    async with Rig(issuing).running() as doors:
        for name, door in doors.items():
            assert await called(door, tokens["ann"]) == "ann desk tools:read", name
            # The session, or the stream, is that of ann.
            other = await Rig.status(door, tokens["bob"])
            assert other == (200 if name == "modern HTTP" else 404), name
            door.session = ""
            assert await called(door, program) == "machine machine tools:read tools:write", name


async def test_i1_a_token_for_another_resource_is_refused_at_every_door(issuing: AuthorizationServer) -> None:
    wrong = issuing.user_token("ann", OTHER)
    exchanged = issuing.exchanged(wrong, RESOURCE)
    async with Rig(issuing).running() as doors:
        for name, door in doors.items():
            assert await Rig.status(door, wrong) == 401, name
            assert await called(door, exchanged) == "ann machine tools:read", name


async def test_i1_a_token_is_refused_when_it_has_expired_also_in_an_open_session(
    issuing: AuthorizationServer,
) -> None:
    rig, token = Rig(issuing), issuing.user_token("ann", RESOURCE)
    async with rig.running() as doors:
        for door in doors.values():
            assert await Rig.status(door, token) == 200
        rig.clock.ahead = 250
        for door in doors.values():
            assert await Rig.status(door, token) == 200
        rig.clock.ahead = 1000
        for name, door in doors.items():
            assert await Rig.status(door, token) == 401, name


async def test_i1_keys_rotate_and_what_a_withdrawn_key_has_signed_is_refused(
    issuing: AuthorizationServer,
) -> None:
    issuing.set("ttl", 3000)
    rig, first = Rig(issuing), issuing.user_token("ann", RESOURCE)
    async with rig.running() as doors:
        door = doors["modern HTTP"]
        assert await Rig.status(door, first) == 200
        fetches = issuing.seen().count("GET /jwks")
        try:
            issuing.set("published", "k1,k2")
            issuing.set("signing", "k2")
            second = issuing.user_token("ann", RESOURCE)
            assert await Rig.status(door, second) == 401
            rig.monotonic.ahead = 31
            assert [await Rig.status(door, each) for each in (second, first)] == [200, 200]
            assert issuing.seen().count("GET /jwks") == fetches + 1
            issuing.set("published", "k2")
            # What is remembered of a token is good for as long as the keys are.
            rig.monotonic.ahead = rig.clock.ahead = 400
            third = issuing.user_token("bob", RESOURCE)
            assert await Rig.status(door, third) == 200
            assert await Rig.status(door, first) == 401
        finally:
            issuing.set("signing", "k1")
            issuing.set("published", "k1")
            issuing.set("ttl", 300)


async def test_i1_a_missing_scope_is_named_and_the_metadata_leads_to_the_issuer(
    issuing: AuthorizationServer,
) -> None:
    rig = Rig(issuing, required_scopes=["tools:read", "tools:write"])
    less, more = (
        issuing.user_token("ann", RESOURCE, scope) for scope in ("tools:read", "tools:read tools:write")
    )
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    headers = {**ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
    async with rig.running() as doors:
        http = doors["modern HTTP"].http
        for token, status in ((None, 401), (less, 403), (more, 200)):
            given = headers if token is None else {**headers, "authorization": f"Bearer {token}"}
            answer = await http.post("/mcp", headers=given, json=message)
            assert answer.status_code == status
            if status == 200:
                continue
            challenge = answer.headers["www-authenticate"]
            assert 'scope="tools:read tools:write"' in challenge
            assert ("insufficient_scope" in challenge) == (status == 403)
            place = httpx2.URL(challenge.split('resource_metadata="')[1].split('"')[0]).path
            told = (await http.get(place.removeprefix("/tools"))).json()
            assert (told["resource"], told["authorization_servers"]) == (RESOURCE, [issuing.issuer])
            assert token is None or token not in answer.text


async def test_i1_a_revoked_token_ends_the_streams_of_its_user_and_of_no_other(
    issuing: AuthorizationServer,
) -> None:
    rig = Rig(issuing)
    ann, bob = (issuing.user_token(user, RESOURCE) for user in ("ann", "bob"))
    with anyio.fail_after(120):
        async with reached(ToolsetServer(Toolset(whoami), auth=rig.auth)) as (http, group):
            mine, theirs = (Sse(http, lambda *_: None, group) for _ in range(2))
            assert await called(mine, ann) == "ann desk tools:read"
            assert await called(theirs, bob) == "bob desk tools:read"
            rig.auth.revoke(ann)
            while mine.session:
                await anyio.lowlevel.checkpoint()
            assert await Rig.status(mine, ann) == 401
            assert await called(theirs, bob) == "bob desk tools:read"
            assert theirs.session
