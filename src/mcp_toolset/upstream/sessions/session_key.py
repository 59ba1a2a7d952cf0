"""`key_for`: chooses the session with an upstream for a request; a pure function (docs/sessions.md).

    client = ClientFacts("legacy", {"elicitation": {}}, client="c1")
    key_for(client, UpstreamFacts(legacy=True, modern=False), SessionOptions())
    → SessionKey("legacy", '{"elicitation":{}}', client="c1")

Requests with equal keys share one session. A session never declares more than every client of its key
answers, and never has clients of two principals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.config import Era, ProtocolRule, SessionRule
from mcp_toolset.tools.core.result import ANSWERABLE

NOTHING_DECLARED: Final = "{}"
Shelf = tuple[str, str, str]
"""What sessions have in common that are listed the same: era, capabilities, credentials."""

_OTHER: Final[Mapping[Era, Era]] = {"legacy": "modern", "modern": "legacy"}


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """What the rule looks at of the client that makes a request.

    Attributes:
        era: What the client speaks.
        declares: Its capabilities that the bridge carries: what it can be asked for, and extensions.
        principal: Who is logged in; empty without a login.
        client: What tells it from every other client; empty if nothing does.
        credentials: A digest of the credentials that are sent on for it; empty if none are.
    """

    era: Era
    declares: Mapping[str, Any] = field(default_factory=dict[str, Any])
    principal: str = ""
    client: str = ""
    credentials: str = ""

    @property
    def can_be_asked(self) -> bool:
        """Whether a server may send it any request."""
        return any(name in self.declares for name in ANSWERABLE)


@dataclass(frozen=True, slots=True)
class UpstreamFacts:
    """What the rule looks at of the server.

    Attributes:
        legacy: Whether it speaks a revision up to 2025-11-25; `None` before it was tried.
        modern: Whether it speaks 2026-07-28; `None` before it was tried.
        tied: Whether the transport says which call a question of the server belongs to: streamable HTTP.
    """

    legacy: bool | None = None
    modern: bool | None = None
    tied: bool = False

    def refuses(self, era: Era) -> bool:
        """Whether it is known not to speak an era."""
        return (self.legacy if era == "legacy" else self.modern) is False


TASK_WAIT: Final = 3600.0
"""Seconds that a client which takes no tasks waits for the end of one, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What the host says about a mount.

    Attributes:
        protocol: The one era in which the server is spoken to, or `auto`.
        sessions: How far clients share sessions.
        eras: The era that single tools need, by the server's own names for them.
        shows: Whether the session that lists declares more than clients can do, so that it takes no calls.
        task_wait: Seconds that a client which takes no tasks waits for one; 0 if it does not wait.
    """

    protocol: ProtocolRule = "auto"
    sessions: SessionRule = "auto"
    eras: Mapping[str, Era] = field(default_factory=dict[str, Era])
    shows: bool = False
    task_wait: float = TASK_WAIT


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session: whom it is for and what it says.

    Attributes:
        era: What is spoken on it.
        declares: What its handshake declares (legacy), as canonical JSON; modern requests say it each.
        principal: The one principal that it is for; empty for clients without a login.
        client: The one client that it is for; empty if it is for several.
        credentials: A digest of the credentials that it forwards.
        turns: Whether its clients take turns, as nothing says to whose call a question belongs.
        single: Whether it is for this one call.
    """

    era: Era
    declares: str = NOTHING_DECLARED
    principal: str = ""
    client: str = ""
    credentials: str = ""
    turns: bool = False
    single: bool = False

    @property
    def share(self) -> str:
        """The one caller that it is for: the principal, else the client; empty if it is for several."""
        return self.principal or self.client

    @property
    def shelf(self) -> Shelf:
        """What sessions have in common that are listed the same: era, capabilities, credentials."""
        return (self.era, self.declares, self.credentials)


MODERN: Final = SessionKey("modern")
"""The session with a modern server, which is one for all."""


def era_for(era: Era, upstream: UpstreamFacts, options: SessionOptions, name: str = "") -> Era:
    """The era in which a request is made: the client's own, unless the server does not speak it.

    Args:
        era: What the client speaks that makes the request.
        upstream: The server.
        options: What the host says about it.
        name: The tool that is called, as the server calls it.
    """
    if options.protocol != "auto":
        return options.protocol
    wanted = options.eras.get(name, era)
    if options.sessions == "shared":
        wanted = "modern"
    return _OTHER[wanted] if upstream.refuses(wanted) else wanted


def key_for(
    client: ClientFacts, upstream: UpstreamFacts, options: SessionOptions, name: str = ""
) -> SessionKey:
    """The session that a request of a client takes; see `era_for` for the other arguments."""
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
    """The key of the session that lists for everybody; `None` if it takes no requests of clients."""
    apart = options.shows and era == "legacy" and options.sessions != "shared"
    return None if apart else MODERN if era == "modern" else SessionKey(era)


def canonical(declares: Mapping[str, Any]) -> str:
    """Capabilities as text that is equal where they are."""
    if not declares:
        return NOTHING_DECLARED
    return json.dumps(declares, sort_keys=True, separators=(",", ":"))
