"""`Exchange`: exchanges the token of each caller for a token of a mounted server."""

from __future__ import annotations

import hashlib
import json
from dataclasses import field
from typing import Final

import anyio

from mcp_toolset._records import dataclass, replace
from mcp_toolset.context.request import RequestCaller
from mcp_toolset.errors import CallError, UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.credentials.exchange_endpoint import ExchangeEndpoint
from mcp_toolset.extensions.upstream_access.credentials.token_exchange import ExchangedToken
from mcp_toolset.extensions.upstream_access.server_auth import TokenExchange
from mcp_toolset.tools.core.call import Identity, ToolContext
from mcp_toolset.upstream.target import Link

_NO_CALLER: Final = "it wants the token of a caller, and this request has none"


@dataclass(frozen=True)
class Exchange:
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
    sent = context.sent("authorization") if isinstance(context, RequestCaller) else []
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
