"""`Reach`: how a mounted server is reached for each caller; `HeaderMapping`: by headers about the caller."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, Protocol, cast

import anyio

from mcp_toolset._records import dataclass, replace
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import CallError, DefinitionError, UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.callers.logins import CallerLogins
from mcp_toolset.extensions.upstream_access.credentials.token_exchange import ExchangedToken, ExchangeEndpoint
from mcp_toolset.extensions.upstream_access.server_auth import OAuth, TokenExchange
from mcp_toolset.tools.call import Identity, ToolContext
from mcp_toolset.upstream.target import Link


class Reach(Protocol):
    """What a mounted server is sent for a caller.

    Callers with equal keys share one connection, and with it sessions, lists and tokens; no others do.
    """

    def key(self, context: ToolContext) -> str:
        """What tells the connection of a caller from others; empty for the one without a caller."""
        ...

    def link(self, link: Link, context: ToolContext) -> Link:
        """How the server is reached for a caller; without one, for a request that has none."""
        ...


_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_OWN: Final = frozenset(
    "accept accept-encoding authorization connection content-encoding content-length content-type cookie "
    "date expect host http2-settings keep-alive last-event-id proxy-authorization proxy-connection te "
    "trailer transfer-encoding upgrade".split()
)
"""Headers that the bridge and HTTP itself use."""

_CREDENTIALS: Final = frozenset(("authorization", "cookie", "proxy-authorization"))
_PASS_THROUGH: Final = (
    '; the Authorization of callers is passed through by `"auth": {"type": "forward"}` alone, see docs'
)

_FACTS: Final[Mapping[str, Callable[[Identity], str | None]]] = {
    "identity.name": lambda one: one.name,
    "identity.subject": lambda one: one.subject,
    "identity.client": lambda one: one.client,
    "identity.issuer": lambda one: one.issuer,
    "identity.roles": lambda one: _joined("role", one.roles),
    "identity.scopes": lambda one: _joined("scope", one.scopes),
}


@dataclass(frozen=True)
class HeaderMapping:
    """Headers that a mounted server is sent, by what is known of the caller of each request.

    A value is a fact of the caller's identity, such as `identity.name`, or `header.NAME`: a header that the
    client has sent. What a caller does not have is not sent.
    """

    headers: Mapping[str, str]  # the header of the server, by name, and where its value is from
    _sources: Mapping[str, str] = field(default_factory=dict[str, str], init=False)

    def __post_init__(self) -> None:
        sources = {name.lower(): source for name, source in self.headers.items()}
        if len(sources) < len(self.headers):
            raise DefinitionError("`forward` names a header twice; remove one")
        for name, source in sources.items():
            _check(name, source)
        object.__setattr__(self, "_sources", sources)

    def key(self, context: ToolContext) -> str:
        """A digest of the values that are sent; see `Reach`."""
        values = self._values(context)
        return hashlib.sha256(json.dumps(sorted(values.items())).encode()).hexdigest() if values else ""

    def link(self, link: Link, context: ToolContext) -> Link:
        return replace(link, about_caller=self._values(context))

    def _values(self, context: ToolContext) -> dict[str, str]:
        found = {name: _value(source, context) for name, source in self._sources.items()}
        return {name: value for name, value in found.items() if value is not None}


def _check(name: str, source: str) -> None:
    place = f"`forward`: the header {name!r}"
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"{place} is no name of a header; correct it")
    if name in _OWN or name.startswith(("mcp-", "sec-")):
        more = _PASS_THROUGH if name == "authorization" else ""
        raise DefinitionError(f"{place} is one of HTTP or of the protocol; use another name{more}")
    kind, _, read = source.partition(".")
    if kind == "header" and _NAME.fullmatch(read.lower()):
        if read.lower() in _CREDENTIALS:
            raise DefinitionError(f"{place} would send a credential of the caller{_PASS_THROUGH}")
    elif source not in _FACTS:
        known = ", ".join([*_FACTS, "header.NAME"])
        raise DefinitionError(f"{place} is from {source!r}, which is none of {known}")


def _value(source: str, context: ToolContext) -> str | None:
    """The value of a header for a caller."""
    fact = _FACTS.get(source)
    if fact is not None:
        value = None if context.identity is None else fact(context.identity)
    else:
        sent = context.sent(source.partition(".")[2].lower()) if isinstance(context, WireContext) else ()
        if len(sent) > 1:
            raise CallError(f"the request has more than one header {source.partition('.')[2]}; send one")
        value = sent[0] if sent else None
    # Spaces at the ends are lost on the way: two callers could become one.
    if value is not None and (not value.isascii() or not value.isprintable() or value != value.strip()):
        raise CallError(f"the value of {source} of this caller cannot be sent in a header; nothing was sent")
    return value or None


def _joined(kind: str, values: frozenset[str]) -> str:
    if any("," in value or " " in value for value in values):
        raise CallError(f"a {kind} of this caller has a comma or a space in it; nothing was sent")
    return ",".join(sorted(values)) if kind == "role" else " ".join(sorted(values))


_NO_CALLER: Final = "it wants the token of a caller, and this request has none"


@dataclass(frozen=True)
class ExchangeReach:
    """See `Reach`: each token of a caller has a connection of its own, as it may allow less than another."""

    auth: TokenExchange
    _endpoint: ExchangeEndpoint = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Have all callers share what is found out about the token endpoint."""
        object.__setattr__(self, "_endpoint", ExchangeEndpoint(self.auth))

    def key(self, context: ToolContext) -> str:
        """A digest of the caller and of the caller's token."""
        if context.identity is None:
            return ""
        sent = json.dumps([context.identity.key, _token(context)])
        return hashlib.sha256(sent.encode()).hexdigest()

    def link(self, link: Link, context: ToolContext) -> Link:
        """The link with the token of a caller."""
        caller, hidden = context.identity, (*link.hidden, *self.auth.secrets)
        if caller is None:
            return replace(link, hidden=hidden, credentials=NoToken(link.name))
        source = ExchangedToken(
            link.name, link.url, self.auth, caller, _token(context), endpoint=self._endpoint
        )
        return replace(link, hidden=hidden, credentials=source)


def _token(context: ToolContext) -> str:
    sent = context.sent("authorization") if isinstance(context, WireContext) else []
    scheme, _, token = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token:
        raise CallError("the request has no bearer token that can be exchanged for one of the server")
    return token


@dataclass(frozen=True)
class NoToken:
    """The credentials of requests without a caller: there are none, and the server is not asked."""

    name: str
    secrets: tuple[str, ...] = ()

    async def header(self, caller: Identity | None) -> str | None:
        raise UpstreamUnavailableError(self.name, _NO_CALLER, sent=False)

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        return False

    async def accepted(self, used: str | None) -> None:
        """See `TokenSource`."""

    async def withdrawn(self) -> None:
        await anyio.sleep_forever()

    async def changed(self) -> None:
        await anyio.sleep_forever()


@dataclass(frozen=True)
class _Both:
    """Two ways at once."""

    one: Reach
    other: Reach

    def key(self, context: ToolContext) -> str:
        keys = [self.one.key(context), self.other.key(context)]
        return json.dumps(keys) if any(keys) else ""

    def link(self, link: Link, context: ToolContext) -> Link:
        return self.other.link(self.one.link(link, context), context)


def logins_of(auth: object) -> CallerLogins | None:
    return CallerLogins(auth) if isinstance(auth, OAuth) and auth.per_user else None


def reach_of(
    link: Link, forward: Mapping[str, str] | None, auth: object, logins: CallerLogins | None
) -> Reach:
    """How a server is reached for each caller, by `forward`, by `auth` or by both."""
    own = ExchangeReach(auth) if isinstance(auth, TokenExchange) else logins
    mapping = _mapping(link, forward) if forward else None
    if not link.url:
        raise DefinitionError(f"mount {link.name!r}: headers are sent over HTTP, not by {link.transport}")
    if mapping is None:
        return cast("Reach", own)
    return _Both(mapping, own) if own is not None else mapping


def _mapping(link: Link, forward: Mapping[str, str]) -> HeaderMapping:
    given = {name.lower() for name in link.headers}
    if twice := [name for name in forward if name.lower() in given]:
        raise DefinitionError(
            f"mount {link.name!r}: `headers` and `forward` both have {twice[0]}; remove one of them"
        )
    return HeaderMapping(forward)
