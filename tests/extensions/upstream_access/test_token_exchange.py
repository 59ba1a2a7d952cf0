"""Token exchange (RFC 8693): a mounted server is sent what a caller's token was exchanged for."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from mcp import MCPError
from tests.support.asking import text_of
from tests.support.authorization_server import MACHINE, AuthorizationServer
from tests.support.callers import Callers, client_of, until_listed
from tests.support.personal_server import Headers, PersonalServer, personal_server
from tests.support.served import served

from mcp_toolset import Identity, RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.auth import JWT, TokenExchange
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.reach import ExchangedToken

pytestmark = pytest.mark.anyio

HERE = "http://127.0.0.1/the-bridge"
TOOLS = {"alice": {"both": "", "of_alice": ""}, "bob": {"both": "", "of_bob": ""}}
Answer = Callable[[dict[str, str]], tuple[int, dict[str, Any]]]


def claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def jwt(**said: Any) -> str:
    return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in ({}, said, 1))


@pytest.mark.parametrize("named", ["token_url", "issuer"])
async def test_i6_the_token_of_each_caller_is_exchanged_at_a_real_authorization_server(
    issuer: AuthorizationServer, named: str
) -> None:
    def user(headers: Headers) -> str | None:
        said = claims(headers.get("authorization", "Bearer a.e30.b").removeprefix("Bearer "))
        return said["sub"] if said.get("aud") == up.url else None

    with personal_server(TOOLS, user, modern=True) as up:
        where: dict[str, Any] = {"token_url": f"{issuer.issuer}/token", "issuer": issuer.issuer}
        looked = [one for one in issuer.seen() if one.startswith("GET /.well-known")]
        auth = TokenExchange(
            **{named: where[named]}, client_id=MACHINE[0], client_secret=MACHINE[1], scopes=["tools:read"]
        )
        remote = RemoteToolset(up.url, name="up", start_timeout=20, auth=auth)
        verifier = JWT(issuer=issuer.issuer, audience=HERE, jwks_url=issuer.jwks_url)
        inbound = {name: issuer.user_token(name, HERE) for name in TOOLS}
        async with served(ToolsetServer(Toolset(remote), auth=verifier)) as url:
            for name, token in inbound.items():
                async with client_of(url, name, "2026-07-28", token=token) as client:
                    await until_listed(client, {"both", f"of_{name}"})
                    assert text_of(await client.call_tool("both", {})) == f"both by {name}"
                    with pytest.raises(MCPError, match="Unknown tool"):
                        await client.call_tool("of_bob" if name == "alice" else "of_alice", {})
        found = [one for one in issuer.seen() if one.startswith("GET /.well-known")][len(looked) :]
        assert len(found) == (named == "issuer")
        received = "".join(up.received)
        assert not any(token in received for token in inbound.values())


def bridge(up: PersonalServer, token: Answer | None = None, **auth: Any) -> ToolsetServer:
    up.token = token
    auth = {
        "token_url": up.url.replace("/mcp", "/token"),
        "client_id": "bridge",
        "client_secret": "s3cr3t",
        **auth,
    }
    remote = RemoteToolset(up.url, name="up", start_timeout=20, auth=TokenExchange(**auth))
    return ToolsetServer(Toolset(remote), auth=Callers({name: {"issuer": "https://idp"} for name in TOOLS}))


def bearer(headers: Headers) -> str | None:
    scheme, _, name = headers.get("authorization", "").partition(" exchanged-")
    return name.partition("-")[0] if scheme == "Bearer" and name else None


def exchanged(number: Iterator[int]) -> Answer:
    def answer(form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        name = form["subject_token"].rpartition("-of-")[2]
        token = f"exchanged-{name}-{next(number)}"
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": 300}

    return answer


async def test_i6_one_exchange_serves_all_calls_of_a_caller_and_another_token_is_exchanged_anew() -> None:
    with personal_server(TOOLS, bearer) as up:
        async with served(bridge(up, exchanged(itertools.count()))) as url:
            async with client_of(url, "alice") as client, anyio.create_task_group() as group:
                for _ in range(8):
                    group.start_soon(client.call_tool, "both", {})
            async with client_of(url, "alice", token="token2-of-alice") as client:
                await client.call_tool("both", {})
    posted = [each for each in up.received if each.startswith("POST /token")]
    assert len(posted) == 2 and "token-of-alice" in posted[0] and "token2-of-alice" in posted[1]
    assert up.calls == [("alice", "both")] * 9
    assert not any("-of-alice" in each for each in up.received if each.startswith("POST /mcp"))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((400, {"error": "invalid_target", "error_description": "no token-of-alice"}), "invalid_target"),
        ((200, {"access_token": jwt(iss="https://idp", sub="bob"), "token_type": "Bearer"}), "another user"),
        ((200, {"access_token": "a b", "token_type": "Bearer"}), "no access token"),
        ((200, {"access_token": "a", "token_type": "mac"}), "no bearer token"),
        ((500, {}), "HTTP 500"),
    ],
)
async def test_i6_a_failed_exchange_is_told_to_the_call_without_the_token(
    answer: tuple[int, dict[str, Any]], told: str
) -> None:
    with personal_server(TOOLS, bearer) as up:
        url = up.url.replace("/mcp", "/token")
        up.token = lambda form: answer
        auth = TokenExchange(token_url=url, client_id="bridge")
        caller = Identity.of(None, "alice", "https://idp")
        source = ExchangedToken("up", up.url, auth, caller, "token-of-alice")
        with pytest.raises(UpstreamUnavailableError, match=told) as fault:
            await source.header(None)
        assert "token-of" not in str(fault.value) and "token-of" not in repr(source)


async def test_i6_a_token_is_exchanged_again_when_it_is_due_or_refused() -> None:
    now = 1000.0
    with personal_server(TOOLS, bearer) as up:
        up.token = exchanged(itertools.count())
        auth = TokenExchange(token_url=up.url.replace("/mcp", "/token"), client_id="bridge")
        caller = Identity.of(None, "alice")
        source = ExchangedToken("up", up.url, auth, caller, "token-of-alice", clock=lambda: now)
        first = await source.header(None)
        assert first == "Bearer exchanged-alice-0" == await source.header(None)
        now += 290
        second = await source.header(None)
        assert second == "Bearer exchanged-alice-1"
        assert await source.challenged(401, "Bearer", first, None) and await source.header(None) == second
        assert await source.challenged(401, "Bearer", second, None)
        assert await source.header(None) == "Bearer exchanged-alice-2"
        assert not await source.challenged(403, 'Bearer error="insufficient_scope"', second, None)


async def test_i6_a_token_is_not_sent_to_an_endpoint_without_https() -> None:
    auth = TokenExchange(token_url="http://idp.example.com/token", client_id="bridge")
    source = ExchangedToken("up", "https://up.example.com/mcp", auth, Identity.of(None, "alice"), "token")
    with pytest.raises(UpstreamUnavailableError, match="without https"), anyio.fail_after(10):
        await source.header(None)


async def test_i6_a_call_without_a_caller_says_that_there_is_no_token() -> None:
    with personal_server(TOOLS, bearer) as up:
        async with bridge(up, exchanged(itertools.count())) as server:
            await server.settled()
            assert "wants the token of a caller" in server.statuses()["up"].reason
    assert up.received == []


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "own header": {"headers": {"Authorization": "Bearer exchanged-alice-0"}},
    "names": {"forward": {"X-User": "identity.name", "X-Roles": "identity.roles", "X-Id": "header.x-id"}},
    "exchange": {"auth": True},
    "both": {"auth": True, "forward": {"X-User": "identity.subject"}},
    "passed through": {"forward_authorization": True},
}


@pytest.mark.pairwise
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("name", CONFIGURATIONS)
async def test_i6_an_inbound_credential_goes_only_where_the_configuration_says(
    name: str, modern: bool, mode: str
) -> None:
    with personal_server(TOOLS, lambda headers: "alice", modern=modern) as up:
        up.token = exchanged(itertools.count())
        options = dict(CONFIGURATIONS[name])
        if "auth" in options:
            options["auth"] = TokenExchange(token_url=up.url.replace("/mcp", "/token"), client_id="bridge")
        remote = RemoteToolset(up.url, name="up", start_timeout=20, **options)
        inbound = {"Cookie": "session=cookie-of-alice", "X-Other": "other-of-alice", "X-Id": "id-of-alice"}
        async with served(ToolsetServer(Toolset(remote), auth=Callers())) as url:
            async with client_of(url, "alice", mode, headers=inbound) as client:
                await client.call_tool("both", {})
                await client.list_resources()
                await client.read_resource("mem://alice")
    found = {
        (each.partition(" HTTP")[0], secret)
        for each in up.received
        for secret in ("token-of-alice", "cookie-of-alice", "other-of-alice", "id-of-alice")
        if secret in each
    }
    expected = {
        "exchange": {("POST /token", "token-of-alice")},
        "both": {("POST /token", "token-of-alice")},
        "names": {("POST /mcp", "id-of-alice"), ("GET /mcp", "id-of-alice"), ("DELETE /mcp", "id-of-alice")},
        "passed through": {
            ("POST /mcp", "token-of-alice"),
            ("GET /mcp", "token-of-alice"),
            ("DELETE /mcp", "token-of-alice"),
        },
    }
    assert found <= expected.get(name, set())
    assert bool(found) == (name in expected)
