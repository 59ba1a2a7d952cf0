"""The section `auth` of a configuration: what is read of it, its mistakes, and that a reload takes it in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.config import config_of

from mcp_toolset import Identity, ToolsetServer, load_toolset
from mcp_toolset.auth import Authenticator
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError

pytestmark = pytest.mark.anyio

TOKEN, OTHER = "ci-0123456789abcdef", "ann-0123456789abcdef"
ENVIRON = {"CI_TOKEN": TOKEN, "SHORT": "s3cr3t"}
JWT = {"issuer": "https://idp.example.com", "audience": "https://tools.example.com/mcp"}


def server(auth: object) -> ToolsetServer:
    data = {"mcpServers": {}, "toolset": {} if auth is None else {"auth": auth}}
    return ToolsetServer(load_toolset(config_of(data, environ=ENVIRON)))


async def called(auth: Authenticator | None, token: str) -> Identity | int:
    assert auth is not None
    found = await auth.identify(f"Bearer {token}".encode())
    return found if isinstance(found, Identity) else found.status


async def test_i1_a_configuration_says_who_may_call() -> None:
    entry = {"token": "${CI_TOKEN}", "roles": ["robot"], "scopes": "read mcp"}
    auth = server({"tokens": {"ci": entry, "ann": OTHER}, "jwt": JWT, "required_scopes": ["mcp"]}).auth
    found = await called(auth, TOKEN)
    assert isinstance(found, Identity)
    assert (found.name, found.roles, found.scopes) == ("ci", {"robot"}, {"read", "mcp"})
    assert await called(auth, OTHER) == 403
    assert auth is not None
    assert auth.authorization_servers == ("https://idp.example.com",)
    assert auth.resource == "https://tools.example.com/mcp"
    assert server(None).auth is None


@pytest.mark.parametrize(
    ("auth", "told"),
    [
        ({}, "toolset.auth: accepts no caller; add `tokens` or `jwt`"),
        ("x", "toolset.auth: should be a valid dictionary; write `auth` as an object"),
        ({"token": {}}, "toolset.auth.token: unknown option; did you mean `tokens`?"),
        ({"tokens": {"a": {"tokn": "x"}}}, "tokens.a.tokn: unknown option (and 1 more); did you"),
        ({"tokens": {"a": 5}}, "toolset.auth.tokens.a: must be an object"),
        ({"tokens": {"a": "${NOPE}"}}, "tokens.a.token: environment variable NOPE is not set; set NOPE"),
        ({"tokens": {"a": "${SHORT}"}}, "toolset.auth.tokens: the token a has fewer than 16 characters"),
        ({"jwt": {"issuer": "https://x"}}, "jwt[0].audience: field required; write `audience` as"),
        ({"jwt": [{**JWT, "algorithm": "RS256"}]}, "jwt[0].algorithm: unknown option; did you mean"),
        ({"jwt": [{**JWT, "algorithms": ["HS256"]}]}, "jwt[0]: JWT: HS256 is no algorithm for the keys"),
        ({"jwt": [{**JWT, "issuer": "http://x"}]}, "jwt[0]: issuer: http://x is no https URL"),
        ({"jwt": [{**JWT, "secret": "${SHORT}"}]}, "jwt[0]: JWT: the secret has fewer than 32 bytes"),
        ({"jwt": [{**JWT, "leeway": -1}]}, "jwt[0].leeway: should be greater than or equal to 0"),
    ],
)
def test_i1_a_mistake_is_told_with_its_place_and_mend_and_without_a_secret(auth: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        assert server(auth).auth
    assert "mcp.json" in str(refused.value) and told in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_i1_a_variable_that_is_not_set_matters_only_over_http() -> None:
    assert server({"tokens": {"a": "${NOPE}"}}).bindings() == []


def test_i1_nothing_shows_the_tokens_of_a_configuration() -> None:
    data = {"mcpServers": {}, "toolset": {"auth": {"tokens": {"a": TOKEN}}}}
    config = config_of(data)
    assert config.callers is not None
    assert TOKEN not in repr(config) + repr(config.callers.rules())


async def test_i1_a_reload_takes_in_who_may_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "mcp.json"

    def write(auth: object) -> None:
        section = {} if auth is None else {"auth": auth}
        file.write_text(json.dumps({"mcpServers": {}, "toolset": section}))

    write(None)
    with anyio.fail_after(60):
        async with ToolsetServer(load_toolset(load_config(file))) as server:
            assert server.auth is None
            write({"tokens": {"ci": TOKEN}})
            await server.reload()
            auth = server.auth
            assert isinstance(await called(auth, TOKEN), Identity)
            write({"tokens": {"ann": OTHER}})
            await server.reload()
            assert server.auth is auth
            assert await called(auth, TOKEN) == 401
            assert isinstance(await called(auth, OTHER), Identity)
            write({"tokens": {"ann": "short"}})
            with pytest.raises(ConfigError, match="fewer than 16"):
                await server.reload()
            assert isinstance(await called(auth, OTHER), Identity)
            write(None)
            report = await server.reload()
            assert "auth" in report.at_restart
            assert server.auth is auth and isinstance(await called(auth, OTHER), Identity)
    assert "it stays in force until the server is restarted" in caplog.text
    assert TOKEN not in caplog.text
