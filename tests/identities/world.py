"""`World`: a served toolset with three users, three upstreams and a real authorization server."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import anyio.to_thread
from tests.identities.doors import DOORS, Door, reached
from tests.identities.judge import Judge
from tests.identities.upstreams import KEY, Upstreams
from tests.support.authorization_server import MACHINE, AuthorizationServer

from mcp_toolset import RemoteToolset, ResultCache, Tool, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.audit import AuditLog
from mcp_toolset.auth import JWT, Authenticator, OAuth, TokenExchange
from mcp_toolset.catalog.registry.registry import SourceHandle
from mcp_toolset.extensions.audit.verification import verify
from mcp_toolset.policy import Policy
from mcp_toolset.security.policy.patterns import Permissions, Section
from mcp_toolset.security.secrets.credential_store import MemoryCredentialStore

DENIABLE: Final = "ledger"
"""The tool that the policy denies to one user after another."""

LIFETIME: Final = 300
"""Seconds for which a token is valid."""

RESOURCE: Final = "http://127.0.0.1/tools/mcp"


class Clock:
    """The clock of the authenticator, which runs ahead of the machine's when tokens are to expire."""

    ahead = 0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Ruled(Toolset):
    """Rules of who may use what, as a configuration states them."""

    def __init__(self, denied: str) -> None:
        super().__init__()
        section = Section("rules", deny=(DENIABLE,), principals=(denied,))
        self.stated_permissions = Permissions(callers=(section,))


@dataclass
class User:
    """A user: the mark, the token at hand, the grants by the names of their tools, the clients."""

    mark: str
    token: str = ""
    grants: dict[str, str] = field(default_factory=dict[str, str])
    doors: dict[str, Door] = field(default_factory=dict[str, Door])

    @property
    def private(self) -> tuple[str, str]:
        """The names of the tools that no other user may know of: one is listed, one is deferred."""
        return f"only_{self.mark}", f"secret_{self.mark}"


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
        self.store = MemoryCredentialStore()
        self.bridge: ToolsetServer = ToolsetServer(Toolset())
        self.denied = ""
        self.changing = 0
        self.changes = 0
        self._rules: SourceHandle | None = None
        self._turn = anyio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the upstreams, the bridge and its clients for the length of a block."""
        self.issuing.set("published", "k1,k2")
        with _judging(self.judge), TemporaryDirectory() as folder:
            async with self.upstreams.running():
                audit = Path(folder) / "audit.jsonl"
                self.bridge = ToolsetServer(
                    self._toolset(),
                    middleware=[self.cache],
                    auth=self.auth,
                    policy=self._policy(),
                    audit=AuditLog(audit),
                )
                async with reached(self.bridge) as (http, group):
                    for user in self.users:
                        heard = self._heard(user)
                        user.doors = {name: kind(http, heard, group) for name, kind in DOORS.items()}
                        await self.renew(user)
                    yield
                self._judge_audit(audit)

    async def renew(self, user: User) -> None:
        """Get a user a token, which all clients of the user send from now on."""
        user.token = await self.token(user)
        for door in user.doors.values():
            door.token = user.token

    async def token(self, user: User, resource: str = RESOURCE) -> str:
        """A new token of a user."""
        found = await anyio.to_thread.run_sync(self.issuing.user_token, user.mark, resource)
        return self.judge.keep_secret(user.mark, found)

    async def deny(self, user: User) -> None:
        """Deny a tool to a user, and allow it to the one who was denied it."""
        self.changing += 1
        async with self._turn:
            if self._rules is None:
                self._rules = await self.bridge.attach(Ruled(user.mark))
            else:
                await self.bridge.replace(self._rules, Ruled(user.mark))
            self.denied = user.mark
        self.changing -= 1
        self.changes += 1

    def moment(self) -> tuple[str, int] | None:
        """What is equal before and after a request if the policy has not changed meanwhile."""
        return None if self.changing else (self.denied, self.changes)

    async def scan(self) -> None:
        """Judge what is kept: each grant and each login belongs to one user, and holds marks of no other."""
        for key in await self.store.list():
            self.judge.belongs(self._owner(key.user), "kept login", f"{key} {await self.store.load(key)}")
        for record in self.bridge.grants.records():
            if record.grant is None:
                # What was refused has the id that the user has asked for.
                continue
            self.judge.belongs(self._owner(record.owner), "kept grant", repr(record))
        for user in self.users:
            for door in user.doors.values():
                if door.session:
                    self.judge.own(user.mark, door.session)

    def _judge_audit(self, file: Path) -> None:
        """Judge the lines of the audit log, and the chain that they are."""
        for line in file.read_text().splitlines():
            told = json.loads(line)
            owner = self._owner(told.get("key") or told.get("principal") or "")
            # A refusal tells what was asked for.
            is_refusal = told.get("outcome") == "refused" or told.get("decision") == "deny"
            self.judge.belongs(owner, f"audit line, {told['event']}", line, line if is_refusal else "")
            self.judge.holds_no_token("audit line", line)
        (verified,) = verify([file])
        if verified.finding is not None:
            self.judge.crossing("audit", verified.finding.text)

    def _owner(self, key: str) -> str | None:
        return next((user.mark for user in self.users if user.mark in key), None)

    def _heard(self, user: User) -> Any:
        return lambda text, sent: self.judge.belongs(user.mark, "message", text, sent)

    def _policy(self) -> Policy:
        others = {
            user.mark: [name for other in self.users if other is not user for name in other.private]
            for user in self.users
        }
        return Policy(principals={mark: Policy(deny=names) for mark, names in others.items()})

    def _private(self, user: User, name: str) -> Tool[..., Any]:
        def private(context: ToolContext) -> str:
            caller = context.identity.name if context.identity else "somebody"
            self.judge.belongs(caller, "run of a private tool", user.mark)
            return f"{user.mark} notes alone"

        return tool(name=name, description=f"Keeps what {user.mark} notes in a diary.")(private)

    def _toolset(self) -> Toolset:
        url, shared = self.upstreams.url, {"authorization": f"Bearer {KEY}"}
        client, secret = MACHINE
        exchange = TokenExchange(
            token_url=f"{self.issuing.issuer}/token", client_id=client, client_secret=secret
        )
        return Toolset(
            tool(whoami),
            *(self._private(user, user.private[0]) for user in self.users),
            Toolset(
                tool(diary), tool(ledger), *(self._private(user, user.private[1]) for user in self.users)
            ).deferred(),
            RemoteToolset(url("shared"), name="shared", headers=shared),
            RemoteToolset(url("exchange"), name="exchange", auth=exchange),
            RemoteToolset(url("desk"), name="desk", auth=OAuth(per_user=True, store=self.store)),
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
