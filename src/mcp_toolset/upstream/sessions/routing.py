"""`Routing`: which session with an upstream each request takes, by what is known of the server so far.

The rule is `session_key.key_for`. What the rule looks at is kept here: the eras that the server speaks, found
out and remembered from one run to the next, and the clients whose requests have been routed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from mcp_toolset._records import replace
from mcp_toolset.config import Era
from mcp_toolset.context.client import ServedClient
from mcp_toolset.context.request import WireContext
from mcp_toolset.protocol.json_rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
)
from mcp_toolset.upstream.sessions.handshake import KnownEras
from mcp_toolset.upstream.sessions.session_key import (
    MODERN,
    ClientFacts,
    SessionKey,
    SessionOptions,
    Shelf,
    UpstreamFacts,
    era_for,
    key_for,
    listing_key,
)
from mcp_toolset.upstream.sessions.stand_in import StandIn, carried_to
from mcp_toolset.upstream.target import Link

SECOND_TRIAL: Final = 300.0
"""Seconds after which the legacy era is tried once more, if the server said nothing to the first attempt."""

_REFUSALS: Final = frozenset(
    {
        UNSUPPORTED_PROTOCOL_VERSION,
        METHOD_NOT_FOUND,
        INVALID_REQUEST,
        INVALID_PARAMS,
    }
)
"""Errors with which a server of the modern era alone answers `initialize`."""

_NEVER: Final = float("-inf")


class Routing:
    """The routes of requests to one upstream, and the facts that they follow.

    Attributes:
        options: What the host says about sessions with the server.
        facts: What is known of the server by now.
        settled: Whether the session that lists has been open, so that its era is known.
        start: Starts a task that outlives the request at hand.
        stand_in: What answers requests of the server in place of clients; `None` for nothing.
        on_clients: Is called when a client is routed for the first time, and when one has left.
    """

    def __init__(self, link: Link, options: SessionOptions, *, forwards: bool) -> None:
        """Know of a server what its transport and its mount say.

        Args:
            link: How the upstream is reached.
            options: What the host says about sessions with it.
            forwards: Whether the caller's credentials are sent on.
        """
        self.options = options
        modern_alone = link.facts.in_process or options.protocol == "modern"
        self.facts = UpstreamFacts(
            legacy=False if modern_alone else None,
            modern=False if options.protocol == "legacy" else None,
            tied=link.facts.binds_messages,
        )
        self.settled = False
        self.start: Callable[..., None] = _unheard
        self.on_clients: Callable[[], None] = _unheard
        self._forwards = forwards
        self.stand_in: StandIn | None = link.stand_in
        self._known = None if link.facts.in_process else KnownEras(link.identity)
        self._main: SessionKey | None = None
        self._same = frozenset[str]()
        self._try_again_at = _NEVER
        self._without_legacy = self.facts
        self._all_modern: UpstreamFacts | None = None
        self._clients: dict[ServedClient, Callable[[], None]] = {}

    async def recall(self) -> None:
        """Take up what an earlier run has found out."""
        if self._known is not None and self.options.protocol == "auto":
            recalled = await anyio.to_thread.run_sync(self._known.recall)
            self._same = await anyio.to_thread.run_sync(self._known.recall_same)
            self.facts = replace(self.facts, **recalled)

    def listens_in(self, era: Era) -> None:
        """Note that the session that lists speaks this era."""
        self._main, self.settled = listing_key(era, self.options), True
        self.learn({"modern": True} if era == "modern" else {"legacy": True, "modern": False})

    def learn(self, findings: Mapping[Era, bool]) -> None:
        """Remember which eras the server speaks, also for later runs."""
        news = {era: value for era, value in findings.items() if getattr(self.facts, era) is not value}
        if not news:
            return
        self.facts = replace(self.facts, **news)
        if self._known is not None and self.options.protocol == "auto":
            self.start(anyio.to_thread.run_sync, partial(self._known.note, dict(findings)))

    def legacy_failed(self, cause: BaseException | None) -> bool:
        """Note that no legacy session could be opened with a modern server; whether that is for its era.

        Args:
            cause: What the attempt failed by; `None` if there was no answer in time.
        """
        if isinstance(cause, MCPError) and cause.code in _REFUSALS:
            self.learn({"legacy": False})
        elif self.facts.legacy is None:
            self._without_legacy = replace(self.facts, legacy=False)
            self._try_again_at = anyio.current_time() + SECOND_TRIAL
        else:
            return False
        return True

    @property
    def was_silent(self) -> bool:
        """Whether the server left a handshake unanswered, and the legacy era is not tried for the moment."""
        return self._facts_now() is not self.facts

    def try_again(self) -> None:
        """Try the legacy era with the next request of a legacy client, however lately it was tried."""
        self._try_again_at = _NEVER

    def same(self, shelf: Shelf) -> bool:
        """Whether the server was found to list to these clients what it lists to everybody."""
        return _digest(shelf) in self._same

    def note_same(self, shelf: Shelf) -> None:
        """Remember that it does, also for later runs."""
        self._same |= {_digest(shelf)}
        if self._known is not None:
            self.start(anyio.to_thread.run_sync, partial(self._known.note_same, self._same))

    def key(self, caller: WireContext, name: str = "") -> SessionKey | None:
        """The session that a request of a client takes; `None` for the one that lists.

        A legacy client has one key for as long as it is connected, so that it is looked up and not made.
        """
        if caller.modern and (self._all_modern is self.facts or self._keeps_modern(name)):
            return self._other(MODERN)
        client = None if caller.modern or self._forwards or name in self.options.eras else caller.client
        if client is None:
            return self._other(self._key(caller, name))
        facts = self._facts_now()
        known = client.routes.get(self)
        if known is None or known[0] is not facts or known[1] != caller.answers:
            key = self._key(caller)
            # The very key of the session that lists is told by its identity.
            main = self._main if key == self._main and self._main is not None else key
            known = client.routes[self] = (facts, caller.answers, main)
            self._attend(client)
        return self._other(known[2])

    def _keeps_modern(self, name: str) -> bool:
        """Whether a modern client is answered in its own era; remembered where that goes for all tools."""
        modern = era_for("modern", self.facts, self.options, name) == "modern"
        if modern and not self.options.eras:
            self._all_modern = self.facts
        return modern

    def _other(self, key: SessionKey) -> SessionKey | None:
        return None if key is self._main or key == self._main else key

    def _key(self, caller: WireContext, name: str = "") -> SessionKey:
        authorization = caller.authorization if self._forwards else None
        client = ClientFacts(
            "modern" if caller.modern else "legacy",
            carried_to(self.stand_in, caller.carried),
            caller.principal or "",
            caller.client_key or "",
            credentials_digest(authorization),
        )
        return key_for(client, self._facts_now(), self.options, name)

    def _facts_now(self) -> UpstreamFacts:
        supposed = self.facts.legacy is None and self._try_again_at > _NEVER
        return self._without_legacy if supposed and anyio.current_time() < self._try_again_at else self.facts

    @property
    def is_modern(self) -> bool:
        """Whether the session that lists speaks 2026-07-28."""
        return self._main == MODERN

    @property
    def lists_apart(self) -> bool:
        """Whether the session that lists takes no requests of clients."""
        return self._main is None

    def route_of(self, client: ServedClient) -> SessionKey | None:
        """The session that a legacy client takes; `None` while it has made no request."""
        known = client.routes.get(self)
        return None if known is None else known[2]

    def all_in(self, shelves: Container[Shelf]) -> bool:
        """Whether every client that has been routed has a session of one of these kinds."""
        return all(client.routes[self][2].shelf in shelves for client in self._clients)

    def _attend(self, client: ServedClient) -> None:
        """Count a client among those that see this server, for as long as it is connected."""

        def left() -> None:
            self._clients.pop(client, None)
            self.on_clients()

        if client not in self._clients:
            self._clients[client] = client.when_gone(left)
        self.on_clients()

    def forget_clients(self) -> None:
        """Forget the clients that were routed: the server is closed."""
        clients, self._clients = self._clients, {}
        for forget in clients.values():
            forget()


def credentials_digest(secret: str | None) -> str:
    """What tells credentials apart without being them; empty for none."""
    return "" if secret is None else hashlib.sha256(secret.encode()).hexdigest()[:16]


def _digest(shelf: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(shelf).encode()).hexdigest()[:16]


def _unheard(*_: object) -> None:
    return None
