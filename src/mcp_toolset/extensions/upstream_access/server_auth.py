"""`OAuth`, `ClientCredentials`, `EnterpriseLogin`: how the bridge gets access tokens for one mounted server.

    RemoteToolset("https://host/mcp", name="host", auth=OAuth(scopes=["read"]))

A configuration says the same in the entry of the server: `"auth": {"type": "oauth", "scopes": ["read"]}`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, cast
from urllib.parse import urlsplit

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.mounts import MountAuth
from mcp_toolset.security.egress import Egress, is_web_address

if TYPE_CHECKING:
    from mcp_toolset.security.credential_store import CredentialStore


class _TokenAuth(MountAuth):
    """The base of logins with tokens of authorization servers, within the limits of `egress`."""

    __slots__ = ()

    egress: Egress

    def within(self, egress: Egress) -> Self:
        return replace(cast("Any", self), egress=egress) if egress.allow else self


class LoginPage(Protocol):
    """Opens the page of an authorization server for a person, and waits for the redirect.

    Attributes:
        redirect_uri: The address to which the authorization server redirects the browser.
    """

    redirect_uri: str

    async def visit(self, url: str) -> str:
        """Open `url` for the person; return the address to which the browser was redirected."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth(_TokenAuth):
    """A person logs in, with `mcp-toolset login` or by `page`; the bridge renews the tokens.

    Attributes:
        scopes: Scopes to request in addition to those that the server names.
        client_id: The id of a registered client; without it the bridge registers a client.
        client_secret: The secret of that client, if it has one.
        client_metadata_url: The `https` address of your client ID metadata document.
        issuer: The only accepted authorization server; by default the server names it.
        redirect_port: The port of `http://127.0.0.1:PORT/callback`; 0 takes a free one.
        store: The store of the tokens; by default the user's credential store.
        per_user: True if each caller logs in and has separate tokens; see docs/upstream-login.md.
        callback: The address to which browsers of callers are redirected: `https://host/oauth/callback`; by
            default made of the address that the caller has used.
        page: Logs a person in when the server requires it; without it, calls fail and name the login command.
        egress: Further hosts and networks to which requests to authorization servers may go.
    """

    scopes: Sequence[str] = ()
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    client_metadata_url: str | None = None
    issuer: str | None = None
    redirect_port: int = 0
    per_user: bool = False
    callback: str | None = None
    store: CredentialStore | None = field(default=None, repr=False, compare=False)
    page: LoginPage | None = field(default=None, repr=False, compare=False)
    egress: Egress = Egress()

    def __post_init__(self) -> None:
        object.__setattr__(self, "scopes", tuple(self.scopes))
        if self.client_secret and not self.client_id:
            raise DefinitionError("auth has `client_secret` without `client_id`; add the id of that client")
        document = urlsplit(self.client_metadata_url or "https://host/document")
        if document.scheme != "https" or document.path in ("", "/"):
            raise DefinitionError("`client_metadata_url` is no https address with a path; correct it")
        _check_issuer(self.issuer)
        _check_issuer(self.callback, "callback")
        if self.callback and not self.callback.endswith("/oauth/callback"):
            raise DefinitionError("`callback` does not end in /oauth/callback; correct it")

    @property
    def by_caller(self) -> bool:
        return self.per_user

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, [self.client_secret]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials(_TokenAuth):
    """The bridge logs in as itself, without a person: the client credentials grant (RFC 6749, section 4.4).

    Attributes:
        client_id: The id of the client.
        client_secret: Its secret. Give either this or `private_key`.
        private_key: Its private key (PEM), for `private_key_jwt` (RFC 7523, section 2.2).
        issuer: The authorization server of the client; the credentials are sent to no other server.
        algorithm: The algorithm to sign with.
        scopes: The scopes to request.
        egress: Further hosts and networks to which requests to authorization servers may go.
    """

    client_id: str
    issuer: str
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    algorithm: str = "RS256"
    scopes: Sequence[str] = ()
    egress: Egress = Egress()

    def __post_init__(self) -> None:
        object.__setattr__(self, "scopes", tuple(self.scopes))
        if bool(self.client_secret) == bool(self.private_key):
            raise DefinitionError("auth needs one of `client_secret` and `private_key`; give one of them")
        _check_issuer(self.issuer)

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, [self.client_secret, self.private_key]))


IdToken: TypeAlias = str | Callable[[], Awaitable[str]]
"""An ID token of the company's identity provider, or a function that returns a valid one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterpriseLogin(_TokenAuth):
    """Tokens through the company's identity provider (enterprise-managed authorization, ID-JAG).

    Attributes:
        client_id: The id of the client at the authorization server of the mounted server.
        client_secret: Its secret.
        issuer: This authorization server; the credentials are sent to no other server.
        idp_token_endpoint: The token endpoint of the identity provider.
        idp_client_id: The id of the client there.
        id_token: The user's ID token.
        scopes: The scopes to request.
        egress: Further hosts and networks to which requests to authorization servers may go.
    """

    client_id: str
    client_secret: str = field(repr=False)
    issuer: str
    idp_token_endpoint: str
    idp_client_id: str
    id_token: IdToken = field(repr=False)
    scopes: Sequence[str] = ()
    egress: Egress = Egress()

    def __post_init__(self) -> None:
        object.__setattr__(self, "scopes", tuple(self.scopes))
        _check_issuer(self.issuer)
        _check_issuer(self.idp_token_endpoint, "idp_token_endpoint")

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.client_secret, *([self.id_token] if isinstance(self.id_token, str) else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenExchange(_TokenAuth):
    """Exchanges the token of each caller for a token of the server (RFC 8693).

    Attributes:
        client_id: The id of the bridge as a client of the authorization server.
        token_url: The token endpoint, which gets the tokens of callers. Give either this or `issuer`.
        issuer: The authorization server; its metadata name the token endpoint.
        client_secret: Its secret.
        audience: The audience of the new tokens, by a name that the authorization server knows.
        resource: The audience of the new tokens, by an address; by default the address of the server.
        scopes: The scopes to request.
        client_authentication: The way to send the secret; by default that of the metadata, else HTTP Basic.
        egress: Further hosts and networks to which requests to authorization servers may go.
    """

    client_id: str
    token_url: str | None = None
    issuer: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    audience: str | None = None
    resource: str | None = None
    scopes: Sequence[str] = ()
    client_authentication: Literal["client_secret_basic", "client_secret_post"] | None = None
    egress: Egress = Egress()

    def __post_init__(self) -> None:
        object.__setattr__(self, "scopes", tuple(self.scopes))
        if bool(self.token_url) == bool(self.issuer):
            raise DefinitionError("auth needs one of `token_url` and `issuer`; give one of them")
        _check_issuer(self.issuer)
        _check_issuer(self.token_url, "token_url")

    @property
    def by_caller(self) -> bool:
        return True

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, [self.client_secret]))


@dataclass(frozen=True, slots=True)
class Forward(MountAuth):
    """Passes the `Authorization` header of each caller through; the MCP specification forbids this."""

    @property
    def forwards(self) -> bool:
        return True


CallerAuth: TypeAlias = TokenExchange | Forward
"""The ways to send a mounted server what callers have sent."""

ServerAuth: TypeAlias = OAuth | ClientCredentials | EnterpriseLogin
"""The ways to get tokens for a mounted server."""


def _check_issuer(url: str | None, name: str = "issuer") -> None:
    if not is_web_address(url or "https://host"):
        raise DefinitionError(f"`{name}` is no web address; write it as https://host")
