"""Token exchange at an authorization server that the configuration names by its issuer (RFC 8414)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.personal_server import PersonalServer, personal_server

from mcp_toolset import Identity
from mcp_toolset.auth import TokenExchange
from mcp_toolset.config import load_config
from mcp_toolset.errors import DefinitionError, UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.reach import ExchangedToken, ExchangeEndpoint

pytestmark = pytest.mark.anyio

OAUTH = "/.well-known/oauth-authorization-server"
OIDC = "/.well-known/openid-configuration"
Pages = Mapping[str, Mapping[str, Any]]


def place_of(up: PersonalServer) -> str:
    return up.url.removesuffix("/mcp")


def source_of(
    up: PersonalServer, endpoint: ExchangeEndpoint | None = None, *, path: str = "", **auth: Any
) -> ExchangedToken:
    up.token = lambda form: (200, {"access_token": f"for-{form['subject_token']}", "token_type": "Bearer"})
    how = TokenExchange(issuer=place_of(up) + path, client_id="bridge", client_secret="s3cr3t", **auth)
    caller = Identity.of(None, "alice")
    return ExchangedToken("up", up.url, how, caller, "a-token", endpoint=endpoint)


@pytest.mark.parametrize(
    ("path", "at"),
    [("", OAUTH), ("", OIDC), ("/eu", f"{OAUTH}/eu"), ("/eu", f"/eu{OIDC}"), ("/eu", f"{OIDC}/eu")],
)
async def test_i6_the_metadata_of_an_issuer_are_found_at_each_place_where_they_may_be(
    path: str, at: str
) -> None:
    with personal_server({}, lambda _: None) as up:
        here = place_of(up)
        up.pages = {at: {"issuer": here + path, "token_endpoint": f"{here}/token"}}
        assert await source_of(up, path=path).header(None) == "Bearer for-a-token"
        sent = [each for each in up.received if "a-token" in each]
    assert len(sent) == 1 and sent[0].startswith("POST /token") and "Basic YnJpZGdlOnMzY3IzdA" in sent[0]


@pytest.mark.parametrize(
    ("supported", "set_to", "by_basic"),
    [
        (["client_secret_post"], {}, False),
        (["client_secret_post", "client_secret_basic"], {}, True),
        (["client_secret_basic"], {"client_authentication": "client_secret_post"}, False),
        ("nonsense", {}, True),
    ],
)
async def test_i6_the_secret_is_sent_as_the_metadata_say(
    supported: object, set_to: dict[str, Any], *, by_basic: bool
) -> None:
    with personal_server({}, lambda _: None) as up:
        here = place_of(up)
        told = {"token_endpoint_auth_methods_supported": supported}
        up.pages = {OAUTH: {"issuer": here, "token_endpoint": f"{here}/token", **told}}
        await source_of(up, **set_to).header(None)
        (sent,) = [each for each in up.received if each.startswith("POST /token")]
    assert ("Authorization: Basic" in sent) == by_basic != ("client_secret=s3cr3t" in sent)


BAD: dict[str, tuple[Callable[[str], dict[str, Any]], str]] = {
    "another issuer": (
        lambda here: {"issuer": "https://evil.example", "token_endpoint": f"{here}/token"},
        "name another issuer, https://evil.example",
    ),
    "slash": (
        lambda here: {"issuer": f"{here}/", "token_endpoint": f"{here}/token"},
        "name another issuer, http",
    ),
    "no endpoint": (lambda here: {"issuer": here}, "publishes no metadata with a token endpoint"),
    "no https": (
        lambda here: {"issuer": here, "token_endpoint": "http://idp.example/token"},
        "idp.example would be asked for a login without https; nothing was sent",
    ),
}


@pytest.mark.parametrize("kind", BAD)
async def test_i6_no_token_is_sent_after_metadata_that_cannot_be_trusted(kind: str) -> None:
    metadata, told = BAD[kind]
    with personal_server({}, lambda _: None) as up:
        up.pages = {OAUTH: metadata(place_of(up))}
        with pytest.raises(UpstreamUnavailableError, match=told) as refused, anyio.fail_after(30):
            await source_of(up).header(None)
        assert not any("a-token" in each for each in up.received) and "a-token" not in str(refused.value)


async def test_i6_callers_share_one_look_at_the_metadata_and_a_moved_endpoint_is_found() -> None:
    with personal_server({}, lambda _: None) as up:
        here = place_of(up)
        up.pages = {OAUTH: {"issuer": here, "token_endpoint": f"{here}/token"}}
        shared = ExchangeEndpoint(TokenExchange(issuer=here, client_id="bridge"))
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(source_of(up, shared).header, None)
        assert sum(each.startswith("GET /.well-known") for each in up.received) == 1
        up.pages = {OAUTH: {"issuer": here, "token_endpoint": f"{here}/moved"}}
        up.token_path = "/moved"
        with pytest.raises(UpstreamUnavailableError, match="did not exchange"):
            await source_of(up, shared).header(None)
        assert await source_of(up, shared).header(None) == "Bearer for-a-token"


def test_i6_an_exchange_is_named_by_one_of_its_endpoint_and_its_issuer(tmp_path: Path) -> None:
    all_of: dict[str, Any] = {"token_url": "https://idp/token", "issuer": "https://idp"}
    for both in (dict[str, Any](), all_of):
        with pytest.raises(DefinitionError, match="one of `token_url` and `issuer`"):
            TokenExchange(client_id="bridge", **both)
    file = tmp_path / "mcp.json"
    entry = '{"type": "token_exchange", "client_id": "b", %s}'
    text = '{"mcpServers": {"up": {"url": "https://up/mcp", "auth": %s}}}'
    file.write_text(text % (entry % '"issuer": "https://${IDP:-idp.example}"'))
    auth = load_config(file).servers[0].extensions["access"].auth
    assert isinstance(auth, TokenExchange) and auth.issuer == "https://idp.example"
    file.write_text(text % (entry % '"scopes": []'))
    assert "one of `token_url` and `issuer`" in load_config(file).servers[0].fault
