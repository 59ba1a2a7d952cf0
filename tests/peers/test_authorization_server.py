"""What the tests take for granted of the real authorization server that they use (I1, I4)."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import jwt
import pytest
from tests.support.authorization_server import AuthorizationServer, authorization_server

RESOURCE = "http://127.0.0.1:9/mcp"
ROOT = Path(__file__).parents[2]
USER = """
from tests.support.authorization_server import authorization_server

with authorization_server() as running:
    print(running.issuer, flush=True)
    input()
"""


@pytest.fixture(scope="module")
def server() -> Generator[AuthorizationServer]:
    with authorization_server() as running:
        yield running


def verified(server: AuthorizationServer, token: str, audience: str = RESOURCE) -> dict[str, object]:
    keys = httpx2.get(server.jwks_url, timeout=10).json()["keys"]
    kid = jwt.get_unverified_header(token)["kid"]
    key = jwt.PyJWK.from_dict(next(one for one in keys if one["kid"] == kid))
    return jwt.decode(token, key, algorithms=["RS256"], audience=audience, issuer=server.issuer)


def test_i1_it_issues_tokens_of_a_program_of_a_user_and_exchanged_ones(server: AuthorizationServer) -> None:
    assert verified(server, server.machine_token(RESOURCE))["client_id"] == "machine"
    token = server.user_token("bob", RESOURCE, "tools:read tools:write")
    claims = verified(server, token)
    assert (claims["sub"], claims["scope"]) == ("bob", "tools:read tools:write")
    other = "http://127.0.0.1:9/other"
    assert verified(server, server.exchanged(token, other), other)["sub"] == "bob"


def test_i1_it_rotates_its_keys(server: AuthorizationServer) -> None:
    server.set("published", "k1,k2")
    server.set("signing", "k2")
    try:
        assert jwt.get_unverified_header(server.machine_token(RESOURCE))["kid"] == "k2"
    finally:
        server.set("signing", "k1")
        server.set("published", "k1")


def test_i4_it_rotates_refresh_tokens_and_notices_their_reuse(server: AuthorizationServer) -> None:
    first = server.login("bob", RESOURCE)["refresh_token"]
    form = {"grant_type": "refresh_token", "client_id": "desk", "refresh_token": first}
    answers = [httpx2.post(f"{server.issuer}/token", data=form, timeout=10) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 400]
    assert "POST /token" in server.seen()


def test_i4_it_tells_its_metadata_at_both_well_known_places(server: AuthorizationServer) -> None:
    for place in ("oauth-authorization-server", "openid-configuration"):
        told = httpx2.get(f"{server.issuer}/.well-known/{place}", timeout=10).json()
        assert (told["issuer"], told["code_challenge_methods_supported"]) == (server.issuer, ["S256"])


def test_i1_it_ends_with_a_process_that_is_killed(server: AuthorizationServer) -> None:
    command = [sys.executable, "-c", USER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            address = urlsplit(process.stdout.readline().strip())
            assert address.hostname is not None
            with socket.create_connection((address.hostname, address.port), 30) as connection:
                process.kill()
                # The end may reach the connection before or after the server has taken it.
                with suppress(ConnectionResetError):
                    assert connection.recv(1) == b""
        finally:
            process.kill()
