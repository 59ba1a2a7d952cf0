"""`World`: a served toolset with three users, three upstreams and a real authorization server."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio.to_thread
from tests.identities.doors import DOORS, Door, reached
from tests.identities.judge import Judge
from tests.identities.upstreams import KEY, Upstreams
from tests.support.authorization_server import AuthorizationServer

from mcp_toolset import RemoteToolset, ResultCache, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.auth import JWT, Authenticator

LIFETIME: Final = 300
"""Seconds for which a token is valid."""

RESOURCE: Final = "http://127.0.0.1/tools/mcp"


class Clock:
    """The clock of the authenticator, which runs ahead of the machine's when tokens are to expire."""

    ahead = 0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class User:
    """A user: the mark, the token at hand, the grants by the names of their tools, the clients."""

    mark: str
    token: str = ""
    grants: dict[str, str] = field(default_factory=dict[str, str])
    doors: dict[str, Door] = field(default_factory=dict[str, Door])


class World:
    """What the steps of a run act on."""

    def __init__(self, issuing: AuthorizationServer, seed: int) -> None:
        self.random = random.Random(seed)
        marks = [f"{name}{self.random.randrange(1 << 20):05x}" for name in ("ann", "bob", "eve")]
        self.users = [User(mark) for mark in marks]
        self.judge = Judge(marks)
        self.issuing = issuing
        self.clock = Clock()
        self.signing = "k1"
        self.upstreams = Upstreams(self.judge, issuing.issuer, issuing.jwks_url)
        jwt = JWT(issuer=issuing.issuer, audience=RESOURCE, jwks_url=issuing.jwks_url)
        self.auth = Authenticator(jwt, resource=RESOURCE, clock=self.clock)
        self.cache = ResultCache(3600, only=["whoami"])
        self.bridge: ToolsetServer = ToolsetServer(Toolset())

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the upstreams, the bridge and its clients for the length of a block."""
        self.issuing.set("published", "k1,k2")
        with _judging(self.judge):
            async with self.upstreams.running():
                self.bridge = ToolsetServer(self._toolset(), middleware=[self.cache], auth=self.auth)
                async with reached(self.bridge) as (http, group):
                    for user in self.users:
                        heard = self._heard(user)
                        user.doors = {name: kind(http, heard, group) for name, kind in DOORS.items()}
                        await self.renew(user)
                    yield

    async def renew(self, user: User) -> None:
        """Get a user a token, which all clients of the user send from now on."""
        user.token = await self.token(user)
        for door in user.doors.values():
            door.token = user.token

    async def token(self, user: User, resource: str = RESOURCE) -> str:
        """A new token of a user."""
        found = await anyio.to_thread.run_sync(self.issuing.user_token, user.mark, resource)
        return self.judge.keep_secret(user.mark, found)

    def scan(self) -> None:
        """Judge what is kept: each grant belongs to one user, and holds marks of no other."""
        for record in self.bridge.grants.records():
            self.judge.belongs(self._owner(record.owner), "kept grant", repr(record))
        for user in self.users:
            for door in user.doors.values():
                if door.session:
                    self.judge.own(user.mark, door.session)

    def _owner(self, key: str) -> str | None:
        return next((user.mark for user in self.users if user.mark in key), None)

    def _heard(self, user: User) -> Any:
        return lambda text, sent: self.judge.belongs(user.mark, "message", text, sent)

    def _toolset(self) -> Toolset:
        url, shared = self.upstreams.url, {"authorization": f"Bearer {KEY}"}
        return Toolset(
            tool(whoami),
            Toolset(tool(diary), tool(ledger)).deferred(),
            RemoteToolset(url("shared"), name="shared", headers=shared),
        )


def whoami(context: ToolContext, note: str) -> str:
    """Say who calls."""
    return f"{context.identity.name if context.identity else 'somebody'} notes {note}"


def diary(context: ToolContext, note: str) -> str:
    """Write a note into the diary of the caller."""
    return whoami(context, note)


def ledger(context: ToolContext, note: str) -> str:
    """Write a note into the ledger of the caller."""
    return whoami(context, note)


@contextmanager
def _judging(judge: Judge) -> Generator[None]:
    """Have every log line judged, at every level."""
    root = logging.getLogger()
    level = root.level
    root.addHandler(judge)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(judge)
        root.setLevel(level)
