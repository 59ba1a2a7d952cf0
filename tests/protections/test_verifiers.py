"""Only an identity lets a caller in: whatever else a verifier of tokens returns is a 503 that is logged."""

from __future__ import annotations

import datetime
import json
import logging
from http.client import HTTPConnection
from typing import Any

import anyio.to_thread
import pytest
from starlette.authentication import SimpleUser, UnauthenticatedUser
from tests.support.served import served
from tests.transports.authenticated import MODERN, modern

from mcp_toolset import Identity, Toolset, ToolsetServer, tool
from mcp_toolset.auth import Authenticator
from mcp_toolset.errors import DefinitionError

pytestmark = [pytest.mark.anyio, pytest.mark.needs("inbound_auth")]

GIVEN: dict[str, Any] = {
    "an-unauthenticated-user": UnauthenticatedUser(),
    "a-user-of-starlette": SimpleUser("ann"),
    "true": True,
    "a-text": "ann",
    "a-number": 1,
    "a-table": {"sub": "ann", "scopes": ["mcp"]},
    "an-empty-table": {},
    "false": False,
    "an-empty-text": "",
    "zero": 0,
    "an-object": object(),
    "the-class": Identity,
    "a-pair": (Identity.of("ann", scopes=["mcp"]), None),
    "scopes-in-one-text": Identity("k", "ann", scopes="mcp-admin"),  # type: ignore[arg-type]
    "scopes-in-a-list": Identity("k", "ann", scopes=["mcp"]),  # type: ignore[arg-type]
    "roles-in-one-text": Identity("k", "ann", scopes=frozenset({"mcp"}), roles="admin"),  # type: ignore[arg-type]
    "an-expiry-with-a-date": Identity(
        "k",
        "ann",
        scopes=frozenset({"mcp"}),
        expires=datetime.datetime(2030, 1, 1),  # type: ignore[arg-type]
    ),
}
STATUS = {**dict.fromkeys(GIVEN, 503), "nobody": 401, "without-scope": 403, "ann": 200}


class Lenient:
    """An application's verifier, which knows what to return by the token."""

    async def verify(self, token: str) -> Any:
        known = {
            "nobody": None,
            "without-scope": Identity.of("eve"),
            "ann": Identity.of("ann", scopes=["mcp"]),
        }
        return {**known, **GIVEN}[token]


class OfTheSdk:
    """The same in the form of the MCP SDK."""

    async def verify_token(self, token: str) -> Any:
        return UnauthenticatedUser()


@tool
def destroy() -> str:
    """Destroy everything."""
    return "destroyed"


async def answered(auth: Any, token: str) -> tuple[int, str]:
    def asked(port: int) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            headers = {**MODERN, "mcp-name": "destroy", "authorization": f"Bearer {token}"}
            connection.request("POST", "/mcp", json.dumps(modern("destroy")), headers)
            found = connection.getresponse()
            return found.status, found.read().decode()
        finally:
            connection.close()

    async with served(ToolsetServer(Toolset(destroy), auth=auth)) as url:
        return await anyio.to_thread.run_sync(asked, int(url.rpartition(":")[2]))


@pytest.mark.parametrize("token", STATUS)
async def test_u74_only_an_identity_with_the_scopes_runs_calls(
    token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "mcp_toolset.auth")
    status, text = await answered(Authenticator(Lenient(), required_scopes=["mcp"]), token)
    assert status == STATUS[token]
    assert ("destroyed" in text) == (status == 200)
    assert ("neither an Identity nor None" in caplog.text) == (status == 503)


async def test_u74_a_verifier_of_the_sdk_that_gives_no_access_token_lets_nobody_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    status, text = await answered(OfTheSdk(), "any")
    assert status == 503 and "destroyed" not in text
    assert "a verifier of tokens failed with TypeError" in caplog.text


@pytest.mark.parametrize("scopes", ["mcp", [1], [None]])
def test_u74_required_scopes_that_are_no_list_of_texts_are_refused(scopes: Any) -> None:
    with pytest.raises(DefinitionError, match="required_scopes is a list of scopes"):
        Authenticator(Lenient(), required_scopes=scopes)
