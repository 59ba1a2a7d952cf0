"""A real authorization server (npm's oidc-provider) in a process of its own, and tokens of it for tests."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from tests.peers.processes import listening_process
from tests.peers.programs import HERE, NODE_PLACE, node

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
MACHINE = ("machine", "the-secret-of-the-machine")
"""A client that gets tokens of its own, and exchanges those of users."""

DESK = "desk"
"""A public client that logs users in, with any port of http://127.0.0.1/callback."""


@dataclass(frozen=True)
class AuthorizationServer:
    """Where the server is; every request of a helper takes at most ten seconds."""

    issuer: str

    @property
    def jwks_url(self) -> str:
        return f"{self.issuer}/jwks"

    def set(self, name: str, value: str | int) -> dict[str, Any]:
        """Change `user`, `signing`, `published`, `ttl` or `opaque`; returns the whole state."""
        return self._told(f"/admin/{name}", {"value": str(value)})

    def seen(self) -> list[str]:
        """The requests that the server got, such as `POST /token`."""
        return self._told("/admin/seen", {})["seen"]

    def machine_token(self, resource: str, scope: str = "tools:read") -> str:
        """An access token of the program itself."""
        return self._token({"grant_type": "client_credentials", "resource": resource, "scope": scope})

    def exchanged(self, token: str, resource: str) -> str:
        """A user's token for another resource (RFC 8693)."""
        kind = "urn:ietf:params:oauth:token-type:access_token"
        form = {"grant_type": EXCHANGE, "subject_token": token, "subject_token_type": kind}
        return self._token({**form, "resource": resource})

    def user_token(self, user: str, resource: str, scope: str = "tools:read") -> str:
        """An access token of a user who has logged in."""
        return self.login(user, resource, scope)["access_token"]

    def login(self, user: str, resource: str, scope: str = "tools:read") -> dict[str, Any]:
        """The answer of the token endpoint to a login of a user, by code and PKCE."""
        verifier, callback = secrets.token_urlsafe(48), "http://127.0.0.1:9/callback"
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        asked = {
            "client_id": DESK,
            "response_type": "code",
            "redirect_uri": callback,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
            "scope": scope,
            "resource": resource,
            "login_hint": user,
            "state": secrets.token_urlsafe(8),
        }
        with self._client() as browser:
            answer = browser.get("/auth", params=asked)
            while not (found := answer.headers["location"]).startswith(callback):
                answer = browser.get(found)
            code = parse_qs(urlsplit(found).query)["code"][0]
            form = {"grant_type": "authorization_code", "client_id": DESK, "code": code}
            form |= {"redirect_uri": callback, "code_verifier": verifier, "resource": resource}
            return browser.post("/token", data=form).raise_for_status().json()

    def _told(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        with self._client() as client:
            return client.get(path, params=query).raise_for_status().json()

    def _token(self, form: dict[str, str]) -> str:
        with self._client() as client:
            return client.post("/token", data=form, auth=MACHINE).raise_for_status().json()["access_token"]

    def _client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.issuer, timeout=10)


@contextmanager
def authorization_server() -> Generator[AuthorizationServer]:
    """Run the server for the length of a block; skips the test where its package is not installed."""
    program = [node(), str(HERE / "authorization_server.mjs"), str(NODE_PLACE / "node_modules")]
    with listening_process(program, r"authorization server at (\S+)") as issuer:
        yield AuthorizationServer(issuer)
