"""`obtained`: new tokens for a mounted server, from its authorization server.

A person logs in (`OAuth`), or no person is needed (`ClientCredentials`, `EnterpriseLogin`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.extensions.upstream_access.credentials.credential import Credential
from mcp_toolset.extensions.upstream_access.credentials.token_endpoint import (
    TOKEN_EXCHANGE,
    AuthorizationHttp,
    table_in,
    told,
    unlogged,
)
from mcp_toolset.extensions.upstream_access.server_auth import EnterpriseLogin, LoginPage, OAuth, ServerAuth
from mcp_toolset.tools.text.hidden_text import in_log

UNATTENDED: Final = 60.0
"""Seconds in which tokens must be got without a login of a person."""

_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class Challenge:
    """The answer by which a server has asked for credentials, or for more scopes.

    Attributes:
        status: 401 or 403.
        header: The value of `WWW-Authenticate`.
        scopes: Scopes to ask for besides.
    """

    status: int = 401
    header: str = ""
    scopes: tuple[str, ...] = ()

    def member(self, name: str) -> str:
        found = re.search(rf'(?<![\w-]){name}=(?:"([^"]*)"|([^\s,]+))', self.header)
        return "" if found is None else found[1] or found[2] or ""

    @property
    def wanted(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.scopes, *self.member("scope").split())))

    def written(self) -> str:
        """The challenge with all scopes that are to be asked for."""
        told = {name: self.member(name) for name in ("error", "resource_metadata")}
        members = told | {"scope": " ".join(self.wanted)}
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in members.items() if value)


class _Checked:
    """The page of a login, to which nobody is sent before its address was checked."""

    def __init__(self, http: AuthorizationHttp, page: LoginPage) -> None:
        self._http, self._page = http, page
        self.redirect_uri = page.redirect_uri

    async def visit(self, url: str) -> str:
        await self._http.check_page(url)
        return await self._page.visit(url)


async def obtained(
    http: AuthorizationHttp,
    url: str,
    auth: ServerAuth,
    challenge: Challenge,
    before: Credential,
    now: Callable[[], float],
) -> Credential:
    """New tokens for the server at `url`."""
    # The SDK's OAuth takes its time to import, and most processes never log in.
    from mcp_toolset.extensions.upstream_access.credentials.sdk_flows import Granted, OAuthFlowError, granted

    async def id_jag(issuer: str, resource: str) -> str:
        assert isinstance(auth, EnterpriseLogin), "an assertion is for this login alone"
        return await _id_jag(http, auth, issuer, resource)

    tokens = _tokens(before) if before.header else dict[str, Any]()
    page = _Checked(http, auth.page) if isinstance(auth, OAuth) and auth.page is not None else None
    try:
        # A person takes the time that a person needs.
        with unlogged(), anyio.fail_after(UNATTENDED if page is None else None):
            found = await granted(
                url,
                auth,
                Granted(tokens, before.client),
                (challenge.status, challenge.written()),
                http.answered,
                page,
                id_jag,
            )
    except TimeoutError:
        raise http.fault(f"no token within {UNATTENDED:g} s; call again later") from None
    except OAuthFlowError as fault:
        raise http.fault(in_log(str(fault)[:_LONGEST])) from None
    renewable = Credential(resource=found.resource, client=found.client, server=found.server)
    try:
        return renewable.with_tokens(found.tokens, now())
    except ValueError as fault:
        raise http.fault(str(fault)) from None


async def _id_jag(http: AuthorizationHttp, auth: EnterpriseLogin, issuer: str, resource: str) -> str:
    """The assertion of the company's identity provider about its user (RFC 8693)."""
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": _ID_JAG,
        "audience": issuer,
        "resource": resource,
        "subject_token": auth.id_token if isinstance(auth.id_token, str) else await auth.id_token(),
        "subject_token_type": _ID_TOKEN,
    }
    answer = await http.form(auth.idp_token_endpoint, form, {"client_id": auth.idp_client_id})
    assertion = table_in(answer).get("access_token")
    if answer.status_code != 200 or not isinstance(assertion, str):
        raise http.fault(f"the identity provider gives no assertion: {told(answer)}; renew `id_token`")
    return assertion


def _tokens(before: Credential) -> Mapping[str, Any]:
    """What the flow has to know of the tokens of before: their scopes, which a step-up keeps."""
    return {"access_token": before.token, "scope": " ".join(before.scopes)}
