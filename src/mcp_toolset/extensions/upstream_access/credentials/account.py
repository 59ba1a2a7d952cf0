"""`Account`: the login to one server, as the commands `login` and `logout` use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.credentials.credential import Credential
from mcp_toolset.extensions.upstream_access.credentials.login import Challenge
from mcp_toolset.extensions.upstream_access.credentials.loopback import port_for
from mcp_toolset.extensions.upstream_access.credentials.token_endpoint import authorization_http
from mcp_toolset.extensions.upstream_access.credentials.token_source import StoredTokens, store_of
from mcp_toolset.extensions.upstream_access.server_auth import LoginPage, OAuth
from mcp_toolset.protocol.handshake import DISCOVER
from mcp_toolset.security.secrets.credential_store import CredentialKey

_ASKED: Final = {"accept": "application/json, text/event-stream"}


@dataclass(frozen=True)
class Account:
    """The login to one server.

    Attributes:
        name: The name of the server, for messages.
        url: Its address.
        auth: How tokens are got.
        headers: What its requests carry besides.
        user: The key of the caller whose login it is; empty for the one that all callers share.
    """

    name: str
    url: str = field(repr=False)
    auth: OAuth = field(default_factory=OAuth)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    user: str = ""

    async def port(self) -> int:
        """The port to come back to: the one of the last login, which is registered, if it is free."""
        kept = await self._kept()
        return port_for(self.auth.redirect_port, 0 if kept is None else kept.redirect_port)

    async def login(self, page: LoginPage, scopes: Sequence[str]) -> Credential:
        """Log in, and keep the tokens."""
        source = self._source(replace(self.auth, page=page))
        kept = await self._kept()
        granted = kept.scopes if kept is not None and scopes else ()
        return await source.login(replace(await self._challenge(), scopes=(*granted, *scopes)))

    async def logout(self) -> str:
        """Remove the tokens; returns what has become of them."""
        store, key = store_of(self.auth), self._key()
        # A bridge may be renewing them, and would keep them once more.
        async with store.locked(key):
            kept = await self._kept()
            await store.remove(key)
        if kept is None:
            return "no tokens are kept"
        try:
            async with authorization_http(self.name, self.url, self.auth) as http:
                revoked = await http.revoke(kept)
        except UpstreamUnavailableError as fault:
            return f"logged out; the tokens were not revoked: {fault.reason}"
        return "logged out" if revoked else "logged out; its authorization server revokes no tokens"

    async def _challenge(self) -> Challenge:
        """How the server answers a request without credentials."""
        import httpx2

        body = {"jsonrpc": "2.0", "id": 1, "method": DISCOVER}
        given = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        request = httpx2.Request("POST", self.url, json=body, headers={**given, **_ASKED})
        async with authorization_http(self.name, self.url, self.auth) as http:
            return Challenge(401, await http.challenge(request))

    async def _kept(self) -> Credential | None:
        record = await store_of(self.auth).load(self._key())
        return None if record is None else Credential.kept(record)

    async def users(self) -> list[str]:
        """The keys of the callers whose logins to this server are kept."""
        own = self._key()
        return [key.user for key in await store_of(self.auth).list() if key == replace(own, user=key.user)]

    def _key(self) -> CredentialKey:
        return self._source(self.auth).key

    def _source(self, auth: OAuth) -> StoredTokens:
        return StoredTokens(self.name, self.url, auth, store_of(auth), how="", user=self.user)


async def accounts() -> list[tuple[CredentialKey, Credential]]:
    """The credentials that are kept for the user, with what they are for."""
    store = store_of(OAuth())
    found = [(key, await store.load(key)) for key in await store.list()]
    return [(key, Credential.kept(record)) for key, record in found if record is not None]
