"""`ExchangeEndpoint`: where callers' tokens are exchanged, as the entry or the metadata of the issuer say."""

from __future__ import annotations

from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.asked_store import SingleFlight
from mcp_toolset.extensions.upstream_access.credentials.token_endpoint import AuthorizationHttp, table_in
from mcp_toolset.extensions.upstream_access.server_auth import TokenExchange
from mcp_toolset.security.egress import metadata_places
from mcp_toolset.tools.text.hidden_text import in_log

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
