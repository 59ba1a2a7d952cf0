"""`ExchangedToken`: the token of one caller, exchanged for one of a mounted server (RFC 8693).

The caller's token is sent to the token endpoint that the entry of the server names, or the metadata of its
issuer, and nowhere else. What comes back is kept in memory until it expires.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.tasks import SingleFlight
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.credentials.token_endpoint import (
    TOKEN_EXCHANGE,
    AuthorizationHttp,
    Credential,
    authorization_http,
    table_in,
    told,
)
from mcp_toolset.extensions.upstream_access.server_auth import TokenExchange
from mcp_toolset.security.egress import metadata_places
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.hidden_text import in_log

_BASIC: Final = "client_secret_basic"
_POST: Final = "client_secret_post"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A token endpoint, and how the client proves itself there."""

    url: str
    method: str


class ExchangeEndpoint:
    """The token endpoint for one mounted server; its metadata is asked for once, for all callers."""

    def __init__(self, auth: TokenExchange) -> None:
        self._auth = auth
        self._known: Endpoint | None = None
        self._flight: SingleFlight[str] = SingleFlight()
        if auth.token_url is not None:
            self._known = Endpoint(auth.token_url, auth.client_authentication or _BASIC)

    async def found(self, http: AuthorizationHttp) -> Endpoint:
        if self._known is None:
            self._known = await self._flight.run("", lambda: self._discovered(http))
        return self._known

    def forget(self) -> None:
        """Ask again, if the endpoint was found in metadata: it may have moved."""
        if self._auth.token_url is None:
            self._known = None

    async def _discovered(self, http: AuthorizationHttp) -> Endpoint:
        """What the metadata says (RFC 8414, OpenID Connect Discovery), if they are those of the issuer."""
        import httpx2

        issuer, others = self._auth.issuer or "", list[str]()
        for place in metadata_places(issuer):
            answer = await http.send(httpx2.Request("GET", place, headers={"accept": "application/json"}))
            table = table_in(answer) if answer.status_code == 200 else dict[str, Any]()
            named, url = table.get("issuer"), table.get("token_endpoint")
            if named == issuer and isinstance(url, str):
                return Endpoint(url, self._method(table.get("token_endpoint_auth_methods_supported")))
            others += [named] if isinstance(named, str) and named != issuer else []
        if others:
            raise http.fault(f"the metadata of {in_log(issuer)} name another issuer, {in_log(others[0])}")
        raise http.fault(f"{in_log(issuer)} publishes no metadata with a token endpoint; give `token_url`")

    def _method(self, listed: object) -> str:
        if self._auth.client_authentication is not None:
            return self._auth.client_authentication
        methods = cast("list[object]", listed) if isinstance(listed, list) else [_BASIC]
        return _POST if _POST in methods and _BASIC not in methods else _BASIC


ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"

UNSAID: Final = 300.0
"""Seconds after which a token is exchanged again whose lifetime the authorization server has not said."""


class ExchangedToken:
    """Gets the tokens for one server in exchange for one caller's token; a `TokenSource`."""

    def __init__(
        self,
        name: str,
        url: str,
        auth: TokenExchange,
        caller: Identity,
        token: str,
        *,
        endpoint: ExchangeEndpoint | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Exchange nothing yet."""
        self._name = name
        self._url = url
        self._auth = auth
        self._caller = caller
        self._token = token
        self._endpoint = endpoint or ExchangeEndpoint(auth)
        self._now = now
        self._held: Credential | None = None
        self._unproven = ""
        self._lock = anyio.Lock()

    async def header(self, caller: Identity | None) -> str | None:
        held = self._held
        if held is None or held.is_due(self._now()):
            async with self._lock:
                held = self._held
                if held is None or held.is_due(self._now()):
                    held = self._held = await self._exchanged()
        return held.header

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        async with self._lock:
            if status != 401 or (used is not None and used == self._unproven):
                return False
            if self._held is None or self._held.header == used:
                self._held = await self._exchanged()
                self._unproven = self._held.header
        return True

    async def accepted(self, used: str | None) -> None:
        self._unproven = ""

    async def withdrawn(self) -> None:
        await anyio.sleep_forever()

    async def changed(self) -> None:
        await anyio.sleep_forever()

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._token, *(() if self._held is None else self._held.secrets))

    async def _exchanged(self) -> Credential:
        auth = self._auth
        form = {
            "grant_type": TOKEN_EXCHANGE,
            "subject_token": self._token,
            "subject_token_type": ACCESS_TOKEN,
            "requested_token_type": ACCESS_TOKEN,
            **({"audience": auth.audience} if auth.audience else {}),
            **({"resource": auth.resource or self._url} if auth.resource or not auth.audience else {}),
            **({"scope": " ".join(auth.scopes)} if auth.scopes else {}),
        }
        async with authorization_http(self._name, self._url, self._auth) as http:
            endpoint = await self._endpoint.found(http)
            client = {
                "client_id": auth.client_id,
                "client_secret": auth.client_secret,
                "token_endpoint_auth_method": endpoint.method,
            }
            try:
                answer = await http.form(endpoint.url, form, client)
            except UpstreamUnavailableError:
                self._endpoint.forget()
                raise
        table, host = table_in(answer), in_log(urlsplit(endpoint.url).netloc)
        if answer.status_code != 200 or "error" in table:
            if "error" not in table:
                self._endpoint.forget()
            raise self._fault(f"{host} did not exchange the caller's token: {told(answer)}")
        try:
            found = Credential().with_tokens({"expires_in": UNSAID, **table}, self._now())
        except ValueError as fault:
            raise self._fault(f"{host}: {fault} ({told(answer)})") from None
        if _is_of_another(found.token, self._caller):
            raise self._fault(f"{host} answered with the token of another user")
        return found

    def _fault(self, reason: str) -> UpstreamUnavailableError:
        return UpstreamUnavailableError(self._name, f"no token for this caller: {reason}", sent=False)


def _is_of_another(token: str, caller: Identity) -> bool:
    """True if a token says that it is another user's; only a JWT of the caller's own issuer can say so."""
    claims = _claims(token)
    subject = claims.get("sub")
    if caller.subject is None or claims.get("iss") != caller.issuer or not isinstance(subject, str):
        return False
    return subject != caller.subject


def _claims(token: str) -> Mapping[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found: object = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    # Also what is nested too deeply.
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}
