"""How a configuration says that a server wants tokens, and what it says when that is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.config import entry_of

from mcp_toolset.auth import ClientCredentials, EnterpriseLogin, OAuth
from mcp_toolset.config.models import ServerConfig
from mcp_toolset.errors import DefinitionError

SECRET = "s3cret-of-the-client"
ENVIRON = {"SECRET": SECRET, "IDP": "https://idp.example"}


def read(auth: Any = None, **more: Any) -> ServerConfig:
    given = {} if auth is None else {"auth": auth}
    return entry_of({"url": "https://host/mcp", **given, **more}, ENVIRON)


def auth_of(config: ServerConfig) -> Any:
    said = config.extensions.get("access")
    return None if said is None else said.auth


def test_i4_auth_is_a_word_or_an_object_with_references() -> None:
    assert auth_of(read("oauth")) == OAuth() and auth_of(read()) is None
    full = read({"type": "oauth", "client_id": "desk", "client_secret": "${SECRET}", "scopes": ["a", "b"]})
    assert auth_of(full) == OAuth(client_id="desk", client_secret=SECRET, scopes=["a", "b"])
    assert SECRET not in repr(full) and SECRET not in repr(auth_of(full)) and full.secrets == (SECRET,)
    machine = {
        "type": "client_credentials",
        "client_id": "m",
        "client_secret": "${SECRET}",
        "issuer": "${IDP}",
    }
    wanted = ClientCredentials(client_id="m", client_secret=SECRET, issuer="https://idp.example")
    assert auth_of(read(machine)) == wanted


def test_i4_a_company_login_names_its_identity_provider() -> None:
    idp = {"idp_token_endpoint": "${IDP}/token", "idp_client_id": "us", "id_token": "${SECRET}"}
    company = {
        "type": "enterprise",
        "client_id": "c",
        "client_secret": "x",
        "issuer": "https://as.example",
        **idp,
    }
    auth = auth_of(read(company))
    assert isinstance(auth, EnterpriseLogin) and auth.idp_token_endpoint == "https://idp.example/token"
    assert SECRET not in repr(auth)


@pytest.mark.parametrize(
    "said",
    [
        {"auth": {"CLIENT_ID": "desk", "scopes": ["a"]}},
        {"oauth": {"clientId": "desk", "scopes": ["a"], "authServerMetadataUrl": "https://x"}},
    ],
)
def test_i4_what_other_clients_write_is_read(said: dict[str, Any]) -> None:
    assert auth_of(read(**said)) == OAuth(client_id="desk", scopes=["a"])


@pytest.mark.parametrize(
    "said",
    [
        {"oauth": {"enabled": False, "clientId": "x"}},
        {"oauth": True},
        {"authProviderType": "google_credentials"},
    ],
)
def test_i4_what_other_clients_write_for_themselves_is_ignored(said: dict[str, Any]) -> None:
    assert auth_of(read(**said)) is None and not read(**said).fault


@pytest.mark.parametrize(
    ("auth", "told"),
    [
        ("a-bearer-token", "mcpServers.up.auth: a text other than `oauth`; write a token into `headers`"),
        (7, "mcpServers.up.auth: must be `oauth` or an object"),
        ({"type": "oath"}, "mcpServers.up.auth.type: no kind of login of that name; did you mean `oauth`?"),
        ({"type": 1}, "mcpServers.up.auth.type: no kind of login of that name; use one of oauth, "),
        ({"scope": ["a"]}, "mcpServers.up.auth.scope: unknown option; did you mean `scopes`?"),
        ({"scopes": "a"}, "mcpServers.up.auth.scopes: "),
        ({"client_secret": "x"}, "mcpServers.up.auth: auth has `client_secret` without `client_id`; add"),
        ({"issuer": "idp"}, "mcpServers.up.auth: `issuer` is no web address; write it as https://host"),
        ({"client_metadata_url": "http://a/b"}, "`client_metadata_url` is no https address with a path"),
        (
            {"type": "client_credentials", "client_id": "a"},
            "mcpServers.up.auth.issuer: field required; write",
        ),
        (
            {"type": "client_credentials", "client_id": "a", "issuer": "https://a"},
            "mcpServers.up.auth: auth needs one of `client_secret` and `private_key`; give one of them",
        ),
        (
            {"client_secret": "${UNSET}", "client_id": "a"},
            "mcpServers.up.auth.client_secret: environment var",
        ),
    ],
)
def test_i4_a_wrong_auth_is_told_with_its_place_and_without_values(auth: Any, told: str) -> None:
    fault = read(auth).fault
    assert told in fault and "a-bearer-token" not in fault


def test_i4_a_program_has_no_login_and_a_disabled_server_is_not_read() -> None:
    fault = entry_of({"command": "x", "auth": "oauth"}).fault
    assert "mcpServers.up.auth: is for a server at a URL; give a program its secrets in `env`" in fault
    assert auth_of(read({"issuer": "${UNSET}"}, disabled=True)) is None


def test_i4_a_program_that_declares_a_wrong_login_is_told() -> None:
    with pytest.raises(DefinitionError, match="without `client_id`"):
        OAuth(client_secret="x")
