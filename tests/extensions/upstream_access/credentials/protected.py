"""A server that wants tokens of a real authorization server, and a person who logs in there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
from tests.support.authorization_server import AuthorizationServer

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.auth import JWT, Authenticator, OAuth
from mcp_toolset.extensions.upstream_access.token_source import Challenge, Credential, StoredTokens
from mcp_toolset.security.credential_store import MemoryCredentialStore
from mcp_toolset.transports.http.app import bound_socket, run_app


@tool
async def whose() -> str:
    """Says that it ran."""
    return "it ran"


@dataclass
class Person:
    """Opens every page, and agrees to everything; what they have opened is in `visited`."""

    redirect_uri: str = "http://127.0.0.1:9/callback"
    user: str = "alice"
    visited: list[str] = field(default_factory=list[str])

    async def visit(self, url: str) -> str:
        self.visited.append(url)
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(f"{url}&login_hint={self.user}")
            while not (there := answer.headers["location"]).startswith(self.redirect_uri):
                answer = await browser.get(str(answer.url.join(there)))
        return there


@dataclass
class Protected:
    """A protected server.

    Attributes:
        url: Where it is.
        seen: The `Authorization` of each request.
        refuse: Headers that it answers with 401.
        refusal: The status and the challenge that every token is answered with.
    """

    url: str
    auth: Authenticator
    seen: list[str] = field(default_factory=list[str])
    refuse: set[str] = field(default_factory=set[str])
    refusal: tuple[int, str] | None = None


class Door:
    """Notes the credentials of each request, and refuses some of them."""

    def __init__(self, app: Any, where: Protected) -> None:
        self.app, self.where = app, where

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp":
            used = dict(scope["headers"]).get(b"authorization", b"").decode()
            self.where.seen.append(used)
            refusal = (
                (401, 'Bearer error="invalid_token"') if used in self.where.refuse else self.where.refusal
            )
            if used and refusal is not None:
                head = [(b"www-authenticate", refusal[1].encode())]
                await send({"type": "http.response.start", "status": refusal[0], "headers": head})
                return await send({"type": "http.response.body", "body": b""})
        await self.app(scope, receive, send)


@asynccontextmanager
async def protected(issuer: AuthorizationServer, **options: Any) -> AsyncGenerator[Protected]:
    """Run a server that wants tokens of `issuer` for the length of a block."""
    with bound_socket("127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        verifier = JWT(issuer=issuer.issuer, audience=url, jwks_url=issuer.jwks_url)
        auth = Authenticator(verifier, resource=url, **{"required_scopes": ["tools:read"], **options})
        where = Protected(url, auth)
        server = ToolsetServer(Toolset(whose), name="protected", auth=auth)
        async with server, anyio.create_task_group() as group:
            app = server.http_app()
            app.add_middleware(Door, where=where)
            group.start_soon(run_app, app, listening)
            try:
                yield where
            finally:
                group.cancel_scope.cancel()


def source_of(server: Protected, store: MemoryCredentialStore, **auth: Any) -> StoredTokens:
    """The tokens for a server, as one process has them."""
    return StoredTokens("protected", server.url, OAuth(**auth), store, how="mcp-toolset login protected")


async def log_in(server: Protected, store: MemoryCredentialStore) -> None:
    """Have a person log in; the tokens are in the store."""
    challenge = Challenge(401, 'Bearer scope="tools:read"')
    await source_of(server, store, page=Person()).login(challenge)


async def logged_in(server: Protected) -> MemoryCredentialStore:
    """A store with the tokens of a person who has just logged in."""
    store = MemoryCredentialStore()
    await log_in(server, store)
    return store


async def fresh(server: Protected) -> MemoryCredentialStore:
    """A store with tokens that nobody has issued."""
    store = MemoryCredentialStore()
    kept = Credential("Bearer made-up", "made-up-too", client={"client_id": "c"}, expires_at=1e11)
    await store.save(source_of(server, store).key, kept.record())
    return store


async def change(server: Protected, store: MemoryCredentialStore, /, **members: Any) -> Credential:
    """Change what is kept for a server."""
    key = source_of(server, store).key
    record = await store.load(key)
    assert record is not None
    await store.save(key, {**record, **members})
    return Credential.kept({**record, **members})
