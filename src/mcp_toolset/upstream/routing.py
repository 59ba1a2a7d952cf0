"""`Routing`: chooses the session with an upstream that each request takes.

The rule is the function `key_for`. `Routing` keeps the facts that the rule needs: the eras that the server
speaks, as far as they are known, and the routes of connected clients.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.tables import Era, ProtocolRule, SessionRule
from mcp_toolset.context.connection import ServedClient
from mcp_toolset.context.request import WireContext
from mcp_toolset.protocol.json_rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
)
from mcp_toolset.tools.result import ANSWERABLE
from mcp_toolset.upstream.in_flight import carried_to
from mcp_toolset.upstream.negotiation import KnownEras
from mcp_toolset.upstream.target import Link

NOTHING_DECLARED: Final = "{}"
Shelf = tuple[str, str, str]
"""Era, capabilities and credentials: a server lists the same to sessions in which these are equal."""

_OTHER: Final[Mapping[Era, Era]] = {"legacy": "modern", "modern": "legacy"}


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """Facts about the client that makes a request."""

    era: Era  # the era of the client
    declares: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # capabilities that the bridge carries
    principal: str = ""  # the logged-in user; empty without a login
    client: str = ""  # a key of this client alone; empty if it has none
    credentials: str = ""  # a digest of its forwarded credentials; empty without any

    @property
    def can_be_asked(self) -> bool:
        return any(name in self.declares for name in ANSWERABLE)


@dataclass(frozen=True, slots=True)
class UpstreamFacts:
    """Facts about the server."""

    legacy: bool | None = None  # true if it speaks a revision up to 2025-11-25; `None` before a trial
    modern: bool | None = None  # true if it speaks 2026-07-28; `None` before a trial
    tied: bool = False  # true if the transport ties its questions to calls, as streamable HTTP does

    def refuses(self, era: Era) -> bool:
        return (self.legacy if era == "legacy" else self.modern) is False


TASK_TIMEOUT: Final = 3600.0  # seconds that a client without tasks waits for one


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The host's options for the sessions of a mount."""

    protocol: ProtocolRule = "auto"  # the only era to use with the server, or `auto`
    sessions: SessionRule = "auto"  # the sharing of sessions by clients
    eras: Mapping[str, Era] = field(default_factory=dict[str, Era])  # of single tools, by the server's names
    shows: bool = False  # true if the listing session declares what clients lack, so it takes no calls
    task_timeout: float = TASK_TIMEOUT  # seconds that a client without tasks waits for one


class SessionKey(NamedTuple):
    """The key of a session: requests with equal keys share it."""

    era: Era  # the era of the session
    declares: str = NOTHING_DECLARED  # the capabilities in a legacy handshake, as canonical JSON
    principal: str = ""  # the only principal of the session; empty for clients without a login
    client: str = ""  # the only client of the session; empty if several share it
    credentials: str = ""  # a digest of the credentials that it forwards
    turns: bool = False  # true if its clients take turns, because its questions name no call
    single: bool = False  # true if it is for one call only

    @property
    def share(self) -> str:
        return self.principal or self.client

    @property
    def shelf(self) -> Shelf:
        return (self.era, self.declares, self.credentials)


MODERN: Final = SessionKey("modern")  # the only session with a modern server


def era_for(era: Era, upstream: UpstreamFacts, options: SessionOptions, name: str = "") -> Era:
    """The era of a request to the server: the client's own, unless the server does not speak it."""
    if options.protocol != "auto":
        return options.protocol
    wanted = options.eras.get(name, era)
    if options.sessions == "shared":
        wanted = "modern"
    return _OTHER[wanted] if upstream.refuses(wanted) else wanted


def key_for(
    client: ClientFacts, upstream: UpstreamFacts, options: SessionOptions, name: str = ""
) -> SessionKey:
    """The session that a request takes; `name` is the server's own name of a called tool."""
    if era_for(client.era, upstream, options, name) == "modern":
        return MODERN
    rule = options.sessions
    if rule == "shared":
        return SessionKey("legacy", credentials=client.credentials)
    declares = canonical(client.declares)
    alone = SessionKey("legacy", declares, client.principal, client.client, client.credentials)
    asked = client.can_be_asked
    if rule == "call" and asked:
        return SessionKey("legacy", declares, client.principal, "", client.credentials, single=True)
    if client.client and (rule == "client" or (asked and rule == "auto")):
        return alone
    # Servers keep roots for the life of a session, so a session that is shared does not declare them.
    shared = {key: value for key, value in client.declares.items() if key != "roots"}
    turns = not upstream.tied and any(key in shared for key in ANSWERABLE)
    return SessionKey(
        "legacy", canonical(shared), client.principal, credentials=client.credentials, turns=turns
    )


def listing_key(era: Era, options: SessionOptions) -> SessionKey | None:
    """The key of the listing session; `None` if that session takes no requests of clients."""
    if era == "modern":
        return MODERN
    return None if options.shows and options.sessions != "shared" else SessionKey(era)


def canonical(declares: Mapping[str, Any]) -> str:
    if not declares:
        return NOTHING_DECLARED
    return json.dumps(declares, sort_keys=True, separators=(",", ":"))


SECOND_TRIAL: Final = 300.0
"""Seconds after which the legacy era is tried again, if the server did not answer the first attempt."""

_REFUSALS: Final = frozenset(
    {UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS}
)
"""Errors with which a server that speaks only the modern era answers `initialize`."""

_NEVER: Final = float("-inf")


class Routing:
    """The routes of requests to one upstream.

    Attributes:
        settled: True once the listing session has been open, so that its era is known.
        start: Starts a task that outlives the current request.
        on_clients: Called when a client comes or leaves.
    """

    def __init__(self, link: Link, options: SessionOptions, *, forwards: bool) -> None:
        self.options = options
        modern_alone = link.facts.in_process or options.protocol == "modern"
        self.facts = UpstreamFacts(
            legacy=False if modern_alone else None,
            modern=False if options.protocol == "legacy" else None,
            tied=link.facts.binds_messages,
        )
        self.settled = False
        self.start: Callable[..., None] = _ignore
        self.on_clients: Callable[[], None] = _ignore
        self._forwards = forwards
        self.link = link
        self._known = None if link.facts.in_process else KnownEras(link.identity)
        self._main: SessionKey | None = None
        self._same = frozenset[str]()
        self._try_again_at = _NEVER
        self._without_legacy = self.facts
        self._all_modern: UpstreamFacts | None = None
        self._clients: dict[ServedClient, Callable[[], None]] = {}

    async def recall(self) -> None:
        if self._known is not None and self.options.protocol == "auto":
            recalled = await anyio.to_thread.run_sync(self._known.recall)
            self._same = await anyio.to_thread.run_sync(self._known.recall_same)
            self.facts = replace(self.facts, **recalled)

    def listens_in(self, era: Era) -> None:
        self._main, self.settled = listing_key(era, self.options), True
        self.learn({"modern": True} if era == "modern" else {"legacy": True, "modern": False})

    def learn(self, findings: Mapping[Era, bool]) -> None:
        news = {era: value for era, value in findings.items() if getattr(self.facts, era) is not value}
        if not news:
            return
        self.facts = replace(self.facts, **news)
        if self._known is not None and self.options.protocol == "auto":
            self.start(anyio.to_thread.run_sync, partial(self._known.note, dict(findings)))

    def legacy_failed(self, cause: BaseException | None) -> bool:
        """Note that a modern server opened no legacy session; true if the legacy era may be the reason."""
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
        """True if the server left a handshake unanswered, so that the legacy era is not tried for now."""
        return self._facts_now() is not self.facts

    def try_again(self) -> None:
        """Try the legacy era with the next request of a legacy client, without a wait."""
        self._try_again_at = _NEVER

    def same(self, shelf: Shelf) -> bool:
        """True if the server lists the same to these clients as to all others."""
        return _digest(shelf) in self._same

    def note_same(self, shelf: Shelf) -> None:
        self._same |= {_digest(shelf)}
        if self._known is not None:
            self.start(anyio.to_thread.run_sync, partial(self._known.note_same, self._same))

    def key(self, caller: WireContext, name: str = "") -> SessionKey | None:
        """The session that a request of a client takes; `None` for the listing session."""
        # The key of a legacy client is kept while it is connected: a lookup is faster than `key_for`.
        if caller.modern and (self._all_modern is self.facts or self._keeps_modern(name)):
            key = MODERN
        elif caller.modern or self._forwards or name in self.options.eras:
            key = self._key(caller, name)
        else:
            client = caller.client
            facts = self.facts if self.facts.legacy is not None else self._facts_now()
            known = client.routes.get(self)
            if known is None or known[0] is not facts or known[1] != caller.answers:
                key = self._key(caller)
                # The same object as `_main`, so that the comparison below is by identity.
                main = self._main if key == self._main and self._main is not None else key
                known = client.routes[self] = (facts, caller.answers, main)
                self._attend(client)
            key = known[2]
        return None if key is self._main or key == self._main else key

    def _keeps_modern(self, name: str) -> bool:
        """True if a modern client is answered in its own era; cached if that holds for all tools."""
        modern = era_for("modern", self.facts, self.options, name) == "modern"
        if modern and not self.options.eras:
            self._all_modern = self.facts
        return modern

    def credentials_of(self, caller: WireContext) -> str:
        """A digest of the forwarded credentials of a client; empty without any."""
        return credentials_digest(caller.authorization if self._forwards else None)

    def _key(self, caller: WireContext, name: str = "") -> SessionKey:
        client = ClientFacts(
            "modern" if caller.modern else "legacy",
            carried_to(self.link, caller),
            caller.principal or "",
            caller.client_key or "",
            self.credentials_of(caller),
        )
        return key_for(client, self._facts_now(), self.options, name)

    def _facts_now(self) -> UpstreamFacts:
        supposed = self.facts.legacy is None and self._try_again_at > _NEVER
        return self._without_legacy if supposed and anyio.current_time() < self._try_again_at else self.facts

    def forget_routes(self) -> None:
        """Choose the sessions of all clients again, because their declared capabilities have changed."""
        self.facts = replace(self.facts)

    @property
    def is_modern(self) -> bool:
        return self._main == MODERN

    @property
    def lists_apart(self) -> bool:
        """True if the listing session takes no requests of clients."""
        return self._main is None

    def route_of(self, client: ServedClient) -> SessionKey | None:
        known = client.routes.get(self)
        return None if known is None else known[2]

    def all_in(self, shelves: Container[Shelf]) -> bool:
        """True if the session of every routed client is on one of these shelves."""
        return all(client.routes[self][2].shelf in shelves for client in self._clients)

    def _attend(self, client: ServedClient) -> None:
        def left() -> None:
            self._clients.pop(client, None)
            self.on_clients()

        if client not in self._clients:
            self._clients[client] = client.gone.add(left)
        self.on_clients()

    def forget_clients(self) -> None:
        clients, self._clients = self._clients, {}
        for forget in clients.values():
            forget()


def credentials_digest(secret: str | None) -> str:
    """A digest that tells credentials apart; empty without credentials."""
    return "" if secret is None else hashlib.sha256(secret.encode()).hexdigest()[:16]


def _digest(shelf: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(shelf).encode()).hexdigest()[:16]


def _ignore(*_: object) -> None:
    return None
