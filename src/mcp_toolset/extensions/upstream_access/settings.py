"""The keys of a server's entry about access: logins of the bridge or of callers, headers about callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass as standard
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, TypeAlias, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.entries import validated
from mcp_toolset.config.extensions import ServerSettings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.keys import did_you_mean
from mcp_toolset.config.sections import Strict
from mcp_toolset.config.tables import ANY, BOOL, TEXT, TEXT_TABLE, TEXTS, Schema, Table, key, keys_of, one_of
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.upstream_access.server_auth import (
    CallerAuth,
    ClientCredentials,
    EnterpriseLogin,
    Forward,
    OAuth,
    ServerAuth,
    TokenExchange,
)

if TYPE_CHECKING:
    from mcp_toolset.config.models import ServerConfig

_Auth: TypeAlias = ServerAuth | CallerAuth
_TEXT: Final = "a string"
_SCOPES: Final = 'a list of strings such as ["read"]'


def _text(description: str, meaning: str, example: str, *, required: bool = False, least: int = 0) -> Any:
    """A key with a text of at least `least` characters."""
    schema: Schema = {**TEXT, "min_length": least} if least else TEXT
    return key(schema, description, meaning=meaning, example=example, required=required)


def _client_id(*, required: bool = True) -> Any:
    meaning = "The id of a client that is registered already."
    return _text(_TEXT, meaning, "desktop", required=required, least=1)


def _client_secret(*, required: bool = False) -> Any:
    meaning = "The secret of that client."
    return _text(_TEXT, meaning, "${CLIENT_SECRET}", required=required, least=int(required))


def _issuer(*, required: bool = True) -> Any:
    meaning = "The authorization server; a login at any other one is refused."
    how = "the address of an authorization server"
    return _text(how, meaning, "https://idp.example.com", required=required, least=1)


@standard(frozen=True, kw_only=True)
class _Login(Strict):
    """A login: the keys that each kind of `auth` has."""

    type: str = key(TEXT, _TEXT, "oauth", meaning="The kind of login.", example="oauth")


@standard(frozen=True, kw_only=True)
class _ScopedLogin(_Login):
    """A login with scopes."""

    scopes: list[str] = key(TEXTS, _SCOPES, [], meaning="The scopes to request.", example=["read"])


@standard(frozen=True, kw_only=True)
class _OAuth(_ScopedLogin):
    """`auth` of the type `oauth`."""

    client_id: str | None = _client_id(required=False)
    client_secret: str | None = _client_secret()
    client_metadata_url: str | None = _text(
        "an https address",
        "The address of your client ID metadata document.",
        "https://you.example.com/client.json",
    )
    issuer: str | None = _issuer(required=False)
    redirect_port: int = key(
        {"type": "int", "ge": 0, "le": 65535},
        "the number of a port",
        0,
        meaning="The port of `http://127.0.0.1:PORT/callback`; 0 takes a free one.",
        example=8123,
    )
    per_user: bool = key(
        BOOL,
        "true or false",
        False,
        meaning="Whether [each caller](upstream-login.md#say-who-calls) logs in separately.",
        example=True,
    )
    callback: str | None = _text(
        "an address such as https://host/oauth/callback",
        "The address to which a caller's browser returns after the login.",
        "https://tools.example.com/oauth/callback",
        least=1,
    )


@standard(frozen=True, kw_only=True)
class _ClientCredentials(_ScopedLogin):
    """`auth` of the type `client_credentials`."""

    client_id: str = _client_id()
    client_secret: str | None = _client_secret()
    private_key: str | None = _text(
        "a private key (PEM)", "The private key (PEM) of the client, instead of a secret.", "${PRIVATE_KEY}"
    )
    algorithm: str = key(
        TEXT,
        "an algorithm such as ES256",
        "RS256",
        meaning="The algorithm of signatures with `private_key`.",
        example="ES256",
    )
    issuer: str = _issuer()


@standard(frozen=True, kw_only=True)
class _Enterprise(_ScopedLogin):
    """`auth` of the type `enterprise`."""

    client_id: str = _client_id()
    client_secret: str = _client_secret(required=True)
    issuer: str = _issuer()
    idp_token_endpoint: str = _text(
        "the address of a token endpoint",
        "The token endpoint of the identity provider.",
        "https://idp.example.com/token",
        required=True,
        least=1,
    )
    idp_client_id: str = _text(
        _TEXT, "The id of the client at the identity provider.", "tools", required=True, least=1
    )
    id_token: str = _text(
        "an ID token, such as ${ID_TOKEN}", "The user's ID token.", "${ID_TOKEN}", required=True, least=1
    )


@standard(frozen=True, kw_only=True)
class _TokenExchange(_ScopedLogin):
    """`auth` of the type `token_exchange`."""

    token_url: str | None = _text(
        "the address of a token endpoint",
        "The token endpoint; or give `issuer`.",
        "https://idp.example.com/token",
        least=1,
    )
    issuer: str | None = _issuer(required=False)
    client_id: str = _client_id()
    client_secret: str | None = _client_secret()
    audience: str | None = _text(
        _TEXT,
        "The server for which tokens are requested, by a name that the authorization server knows.",
        "crm",
        least=1,
    )
    resource: str | None = _text(
        "an address",
        "The server for which tokens are requested, by its address.",
        "https://crm.example.com/mcp",
        least=1,
    )
    client_authentication: Literal["client_secret_basic", "client_secret_post"] | None = key(
        one_of("client_secret_basic", "client_secret_post"),
        '"client_secret_basic" or "client_secret_post"',
        meaning="How the client secret is sent to the token endpoint.",
        example="client_secret_post",
    )


_KINDS: Final[Mapping[str, tuple[type[_Login], Callable[..., _Auth]]]] = {
    "oauth": (_OAuth, OAuth),
    "client_credentials": (_ClientCredentials, ClientCredentials),
    "enterprise": (_Enterprise, EnterpriseLogin),
    "token_exchange": (_TokenExchange, TokenExchange),
    "forward": (_Login, Forward),
}
"""The kinds of `auth` by `type`: the table of the keys, and the class of the source of tokens."""

LOGINS: Final[Mapping[str, type[Table]]] = {name: model for name, (model, _) in _KINDS.items()}
"""The tables of `auth` by its `type`."""

# Our names of the keys that Cursor writes in `auth`, and of those that other clients write in `oauth`.
_CURSOR_KEYS: Final = {"CLIENT_ID": "client_id", "CLIENT_SECRET": "client_secret"}
_CAMEL_CASE_KEYS: Final = {
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "callbackPort": "redirect_port",
}


def server_auth(auth: object, oauth: object, place: Place, expanded: Callable[..., str]) -> _Auth | None:
    """The source of tokens for a server; `None` if its entry has neither `auth` nor a usable `oauth`."""
    if auth is None:
        return _of_other_client(oauth, place, expanded)
    if isinstance(auth, str) and auth not in _KINDS:
        raise place.at("auth").error(
            "a text other than `oauth`", "write a token into `headers`, as `Authorization: Bearer ${TOKEN}`"
        )
    table = {"type": auth} if isinstance(auth, str) else _table(auth, place.at("auth"))
    return _read(_renamed(table, _CURSOR_KEYS), place, "auth", expanded)


def _of_other_client(oauth: object, place: Place, expanded: Callable[..., str]) -> _Auth | None:
    """The source of tokens from `oauth`, which other clients write; `None` without a client id."""
    table = cast("dict[str, Any]", oauth) if isinstance(oauth, dict) else {}
    if not isinstance(table.get("clientId"), str) or table.get("enabled") is False:
        return None
    known = {key: table[key] for key in (*_CAMEL_CASE_KEYS, "scopes") if key in table}
    return _read(_renamed(known, _CAMEL_CASE_KEYS), place, "oauth", expanded)


def _read(table: Mapping[str, Any], place: Place, key: str, expanded: Callable[..., str]) -> _Auth:
    """Check a table, expand its references, and make the source of tokens."""
    kind_name = table.get("type", "oauth")
    kind = _KINDS.get(kind_name) if isinstance(kind_name, str) else None
    if kind is None:
        known = list(_KINDS)
        mend = (
            did_you_mean(kind_name if isinstance(kind_name, str) else "", known)
            or f"use one of {', '.join(known)}"
        )
        raise place.at(key, "type").error("no kind of login of that name", mend)
    model, made = kind
    entry = validated(model, dict(table), place.at(key))
    read = dict[str, Any]()
    for name in keys_of(type(entry)).keys() - {"type"}:
        value = getattr(entry, name)
        if isinstance(value, list):
            several = cast("list[str]", value)
            read[name] = [expanded(one, key, name, index) for index, one in enumerate(several)]
        else:
            read[name] = expanded(value, key, name) if isinstance(value, str) else value
    try:
        return made(**read)
    except DefinitionError as fault:
        cause, _, mend = str(fault).partition("; ")
        raise place.at(key).error(cause, mend) from None


def _renamed(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in table.items()}


def _table(value: object, place: Place) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise place.error("must be `oauth` or an object", 'write it as {"type": "oauth"}')
    return cast("dict[str, Any]", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOfServer(ServerSettings):
    """The access of the bridge, or of each caller, to a server; `of_entry` replaces `auth` by an object."""

    reaches: ClassVar = "access"
    protects: ClassVar = False
    common: ClassVar = ("auth", "oauth")

    auth: Any = key(
        ANY,
        '"oauth" or an object such as {"type": "oauth"}',
        meaning="How to [log in to the server](upstream-login.md), once or "
        "[for each caller](upstream-login.md#say-who-calls).",
        example="oauth",
        published={"anyOf": [{"enum": [*LOGINS]}, *({"$ref": f"#/$defs/login_{name}"} for name in LOGINS)]},
        secret=True,
    )
    oauth: Any = key(
        ANY,
        "an object, as other clients write it",
        meaning="`auth`, as other clients write it: `clientId`, `clientSecret`, `scopes` and `callbackPort` "
        "are read.",
        example={"clientId": "desktop"},
        published={"type": "object"},
        secret=True,
    )
    forward_authorization: bool = key(
        BOOL,
        "true or false",
        False,
        meaning="Sends each caller's own `Authorization` on to the server.",
        example=True,
    )
    forward: Mapping[str, str] = key(
        TEXT_TABLE,
        'an object such as {"X-User": "identity.name"}',
        {},
        meaning="Headers that tell the server [who calls](upstream-login.md#say-who-calls).",
        example={"X-User": "identity.name"},
    )

    def of_entry(self, entry: ServerConfig, place: Place, expanded: Callable[..., str]) -> Self:
        if entry.transport == "stdio" and self.auth is not None:
            raise place.at("auth").error("is for a server at a URL", "give a program its secrets in `env`")
        if entry.transport == "stdio" or entry.disabled:
            return replace(self, auth=None, oauth=None)
        return replace(self, auth=server_auth(self.auth, self.oauth, place, expanded), oauth=None)

    def keywords(self) -> Mapping[str, Any]:
        return {
            "auth": self.auth,
            "forward": self.forward,
            "forward_authorization": self.forward_authorization,
        }

    @property
    def by_caller(self) -> bool:
        return bool(self.forward)

    @property
    def forwards(self) -> bool:
        return self.forward_authorization


SERVER_SETTINGS: Final = AccessOfServer
