"""`granted`: the SDK's OAuth flows as a way to get tokens, without a request of MCP inside of them.

The SDK's providers authenticate a request while it is sent, and hold a lock until it is answered. Here the
request is never sent: the answer that it would get is the challenge that a real request met. Discovery,
registration and the token request are sent by the caller. `_select_authorization_server` and
`_perform_authorization` are private.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2  # noqa: TID253 - who imports this module needs it at once
from jwt import PyJWTError
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.auth.utils import issuers_match, validate_authorization_response_iss
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from mcp_types import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl

from mcp_toolset._records import dataclass
from mcp_toolset.extensions.upstream_access.server_auth import (
    ClientCredentials,
    EnterpriseLogin,
    LoginPage,
    OAuth,
)

CLIENT_NAME: Final = "mcp-toolset"
"""The name that people see on the page of an authorization server."""

_RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource"

Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]
CheckPage = Callable[[str], Awaitable[None]]


@dataclass
class Granted:
    """The result of a flow; the SDK keeps it here (`TokenStorage`).

    Attributes:
        tokens: The answer of the token endpoint.
        client: The client that the tokens belong to.
        server: The metadata of the authorization server.
        resource: The audience of the tokens (RFC 8707).
    """

    tokens: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    client: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    server: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    resource: str = ""

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens of before, whose scopes a step-up keeps."""
        return OAuthToken.model_validate(self.tokens) if self.tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens.model_dump(mode="json", exclude_none=True)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The client that is registered already."""
        return OAuthClientInformationFull.model_validate(self.client) if self.client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info.model_dump(mode="json", exclude_none=True)


async def granted(
    url: str,
    auth: OAuth | ClientCredentials | EnterpriseLogin,
    before: Granted,
    challenge: tuple[int, str],
    send: Send,
    page: LoginPage | None,
    check_page: CheckPage,
    id_jag: Callable[[str, str], Awaitable[str]],
) -> Granted:
    """New tokens for the server at `url`.

    Args:
        url: The address of the MCP server.
        auth: The way to get tokens.
        before: The client and the scopes of the tokens before.
        challenge: The refusal of the server: its status, and `WWW-Authenticate`.
        send: Sends a request to an authorization server; the answer must be read.
        page: Brings a person there, for `OAuth`.
        check_page: Checks the address before a person is sent there.
        id_jag: Gets the assertion for an issuer and a resource, for `EnterpriseLogin`.
    """
    found = Granted(before.tokens, before.client)
    request = httpx2.Request("POST", url, headers={"mcp-protocol-version": LATEST_PROTOCOL_VERSION})
    try:
        provider = _provider(url, auth, found, page, check_page, id_jag)
        if isinstance(provider, _LeastScopes):
            provider.is_told = "scope=" in challenge[1]
        await _driven(provider, request, challenge, partial(_answered, url, auth.issuer, send))
    # The texts of these errors quote what was sent or received.
    except (PyJWTError, ValueError, httpx2.InvalidURL, OAuthTokenError, OAuthRegistrationError) as fault:
        raise OAuthFlowError(f"what was sent cannot be used ({type(fault).__name__})") from None
    if isinstance(provider, OAuthClientProvider):
        context = provider.context
        if context.oauth_metadata is not None:
            found.server = context.oauth_metadata.model_dump(mode="json", exclude_none=True)
            found.client = {**found.client, "issuer": str(context.oauth_metadata.issuer)}
        if context.should_include_resource_param(context.protocol_version):
            found.resource = context.get_resource_url()
    return found


async def _answered(url: str, issuer: str | None, send: Send, asked: httpx2.Request) -> httpx2.Response:
    """An answer; the metadata (RFC 9728) that a server such as an API does not publish name the issuer."""
    answer = await send(asked)
    is_about_it = urlsplit(str(asked.url)).path.startswith(_RESOURCE_METADATA)
    if issuer is None or not is_about_it or answer.status_code not in (401, 403, 404, 405):
        return answer
    told = {"resource": url, "authorization_servers": [issuer]}
    return httpx2.Response(200, json=told, request=asked)


async def _driven(
    provider: httpx2.Auth, request: httpx2.Request, challenge: tuple[int, str], send: Send
) -> None:
    flow, met = provider.async_auth_flow(request), False
    try:
        asked = await anext(flow)
        while asked is not request or not met:
            if asked is request:
                met = True
                status, header = challenge
                answer = httpx2.Response(status, headers={"www-authenticate": header}, request=request)
            else:
                answer = await send(_without_scope(provider, asked))
            asked = await flow.asend(answer)
    except StopAsyncIteration:
        pass
    finally:
        await flow.aclose()


def _without_scope(provider: httpx2.Auth, asked: httpx2.Request) -> httpx2.Request:
    """A registration that does not pin the client to the scopes of today: a step-up would be refused."""
    metadata = provider.context.oauth_metadata if isinstance(provider, OAuthClientProvider) else None
    if asked.method != "POST" or metadata is None or str(asked.url) != str(metadata.registration_endpoint):
        return asked
    assert isinstance(provider, OAuthClientProvider)
    named = provider.context.client_metadata.model_dump(mode="json", exclude_none=True, exclude={"scope"})
    return httpx2.Request("POST", asked.url, json=named)


def _provider(
    url: str,
    auth: OAuth | ClientCredentials | EnterpriseLogin,
    found: Granted,
    page: LoginPage | None,
    check_page: CheckPage,
    id_jag: Callable[[str, str], Awaitable[str]],
) -> httpx2.Auth:
    scope = " ".join(auth.scopes) or None
    match auth:
        case ClientCredentials(client_secret=str()):
            return _Secret(
                url, found, auth.client_id, auth.client_secret or "", scope=scope, issuer=auth.issuer
            )
        case ClientCredentials():
            signing = SignedJWTParameters(
                issuer=auth.client_id,
                subject=auth.client_id,
                signing_key=auth.private_key or "",
                signing_algorithm=auth.algorithm,
            )
            assertion = signing.create_assertion_provider()
            return _Key(url, found, auth.client_id, assertion, scope=scope, issuer=auth.issuer)
        case EnterpriseLogin():
            return IdentityAssertionOAuthProvider(
                url,
                found,
                auth.client_id,
                auth.client_secret,
                auth.issuer,
                id_jag,
                scope=scope,
                token_endpoint_auth_method="client_secret_basic",
            )
        case OAuth():
            assert page is not None, "a person logs in on a page"
            return _CodeLogin(url, auth, found, page, check_page)


class _LeastScopes(OAuthClientProvider):
    """Asks for no scope that neither server nor user has named; the SDK asks for all that can be had."""

    is_told = False

    async def _perform_authorization(self) -> httpx2.Request:
        resource = self.context.protected_resource_metadata
        if not self.is_told and (resource is None or resource.scopes_supported is None):
            self.context.client_metadata.scope = None
        return await super()._perform_authorization()


class _Secret(_LeastScopes, ClientCredentialsOAuthProvider):
    """The client credentials grant with a secret."""


class _Key(_LeastScopes, PrivateKeyJWTOAuthProvider):
    """The client credentials grant with a private key."""


class _CodeLogin(_LeastScopes):
    """The authorization code grant, with the checks that the SDK leaves to its caller."""

    def __init__(self, url: str, auth: OAuth, found: Granted, page: LoginPage, check_page: CheckPage) -> None:
        redirect = AnyUrl(page.redirect_uri)
        if auth.client_id is not None:
            told = OAuthClientInformationFull(
                client_id=auth.client_id,
                client_secret=auth.client_secret,
                redirect_uris=[redirect],
                token_endpoint_auth_method="client_secret_basic" if auth.client_secret else "none",
                issuer=auth.issuer or found.client.get("issuer"),
            )
            found.client = told.model_dump(mode="json", exclude_none=True)
        elif str(redirect) not in found.client.get("redirect_uris", ()):
            found.client = {}
        metadata = OAuthClientMetadata(client_name=CLIENT_NAME, redirect_uris=[redirect])
        super().__init__(url, metadata, found, self._leave, self._back, auth.client_metadata_url)
        self._auth = auth
        self._page = page
        self._check_page = check_page
        self._address = ""

    def _select_authorization_server(self, advertised: list[str]) -> str:
        wanted = self._auth.issuer
        return next((one for one in advertised if wanted and issuers_match(one, wanted)), advertised[0])

    async def _leave(self, address: str) -> None:
        """Check the authorization server before a person is sent there."""
        server, client, auth = self.context.oauth_metadata, self.context.client_info, self._auth
        if server is None:
            raise OAuthFlowError("it publishes no metadata of an authorization server (RFC 8414)")
        if auth.issuer and not issuers_match(str(server.issuer), auth.issuer):
            raise OAuthFlowError(f"it requires a login at {server.issuer}, but `issuer` is {auth.issuer}")
        if auth.client_id and client is not None and client.client_id != auth.client_id:
            raise OAuthFlowError(
                f"it requires a login at {server.issuer}, where `client_id` is not registered"
            )
        if "S256" not in (server.code_challenge_methods_supported or ()):
            raise OAuthFlowError(f"{server.issuer} does not say that it supports PKCE with S256")
        methods = server.token_endpoint_auth_methods_supported or ()
        if auth.client_secret and client is not None and "client_secret_basic" not in methods:
            post = "client_secret_post" in methods
            client.token_endpoint_auth_method = "client_secret_post" if post else "client_secret_basic"
            await self.context.storage.set_client_info(client)
        self._address = address

    async def _back(self) -> AuthorizationCodeResult:
        """Take what the authorization server says through the person's browser (RFC 9207, section 2.4)."""
        await self._check_page(self._address)
        said = parse_qs(urlsplit(await self._page.visit(self._address)).query)
        sent = parse_qs(urlsplit(self._address).query)
        code, state, issuer, error = (said.get(name, [""])[0] for name in ("code", "state", "iss", "error"))
        if not secrets.compare_digest(state.encode(), sent.get("state", [""])[0].encode()):
            raise OAuthFlowError("the answer of the login has another `state` than the request; log in again")
        validate_authorization_response_iss(issuer or None, self.context.oauth_metadata)
        if error or not code:
            more = said.get("error_description", [""])[0]
            raise OAuthFlowError(f"the login was refused: {error or 'no code'}{': ' if more else ''}{more}")
        return AuthorizationCodeResult(code=code, state=state, iss=issuer or None)
