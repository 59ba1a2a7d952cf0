"""`JWT`: access tokens of an authorization server (RFC 9068), verified with its public keys or a secret."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, ClassVar, Final, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.entries import prepared, validated
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import ANY, TEXT, TEXTS, Table, key
from mcp_toolset.config.variables import is_unreplaced
from mcp_toolset.errors import DefinitionError, InvalidTokenError
from mcp_toolset.extensions.inbound_auth.jwks import LIFESPAN, KeySet
from mcp_toolset.extensions.inbound_auth.kinds import ONE_OR_MORE, Expand, VerifierKind, listed, told_at
from mcp_toolset.security.authentication.verifier import RememberedVerifier
from mcp_toolset.security.policy.patterns import fault_of_name
from mcp_toolset.tools.core.call import Identity

ASYMMETRIC: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The algorithms that are accepted unless told otherwise."""

_SYMMETRIC: Final = ("HS256", "HS384", "HS512")
_SHORTEST: Final = 32
"""Bytes that a shared secret has at least (RFC 7518, section 3.2)."""

_TYPES: Final = (None, "jwt", "at+jwt", "application/at+jwt")
"""What the header `typ` of an access token may be: tokens of other uses are none (RFC 8725, section 3.11)."""

_CLIENT: Final = ("client_id", "azp", "appid")
_SCOPES: Final = ("scope", "scp", "scopes")
_REASONS: Final = {
    "ExpiredSignatureError": "the token has expired",
    "ImmatureSignatureError": "the token is not valid yet",
    "InvalidAudienceError": "the token is for another audience",
    "InvalidIssuerError": "the token is of another issuer",
    "InvalidAlgorithmError": "the token is signed with an algorithm that is not accepted",
    "InvalidSignatureError": "the signature of the token is wrong",
    "MissingRequiredClaimError": "the token lacks one of the claims exp, iss and aud",
}
_LATEST: Final = 1e15
"""Seconds since the epoch; a larger number is no time."""

_UNREADABLE: Final = "the token is malformed"
_PART: Final = re.compile(r"[A-Za-z0-9_-]+")
"""Base64 as tokens have it (RFC 7515): other spellings of one token would be other tokens elsewhere."""


class JWT(RememberedVerifier):
    """Verifies JWTs of one issuer: signature, issuer, audience, times.

    The issuer's keys are fetched when the first token comes, and again when a token names an unknown key.
    """

    memory = LIFESPAN

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Sequence[str],
        jwks_url: str | None = None,
        algorithms: Sequence[str] = (),
        secret: str | bytes | None = None,
        roles_claim: str = "roles",
        leeway: float = 30.0,
        keys: KeySet | None = None,
    ) -> None:
        """Accept the access tokens of an issuer that are for this server.

        Args:
            issuer: Must be equal to the claim `iss`.
            audience: The claim `aud` must be, or contain, this or one of these.
            jwks_url: The URL of the issuer's keys; by default from the issuer's metadata.
            algorithms: The accepted signature algorithms; by default all asymmetric ones.
            secret: A shared secret for HS256, HS384 or HS512, in place of keys.
            roles_claim: The place of the caller's roles: a claim, or a path such as `realm_access.roles`.
            leeway: The accepted difference between the clocks of issuer and server, in seconds.
            keys: The issuer's keys, in place of `jwks_url`.

        Raises:
            DefinitionError: an algorithm is not accepted, a secret is too short, or a URL is not https.
        """
        # The library is loaded when a program first uses JWTs.
        import jwt

        self._jwt = jwt
        self.issuer = issuer
        self._audience = [audience] if isinstance(audience, str) else list(audience)
        if not issuer or not self._audience or not all(self._audience):
            raise DefinitionError("JWT: give the issuer and the audience; without, any token would be valid")
        self.resource = next((one for one in self._audience if one.startswith(("https://", "http://"))), None)
        self._secret = secret.encode() if isinstance(secret, str) else secret
        self._algorithms = _checked(algorithms, self._secret)
        self._roles, self._leeway = roles_claim, leeway
        self._keys = None if secret is not None else keys or KeySet(issuer, jwks_url)

    def on_withdrawal(self, withdrawn: Callable[[], None]) -> None:
        """Call a function when the issuer no longer publishes a key."""
        if self._keys is not None:
            self._keys.withdrawn.append(withdrawn)

    async def verify(self, token: str) -> Identity | None:
        """The caller of a token of this issuer; `None` for a token of another kind or issuer.

        Raises:
            InvalidTokenError: it is not valid.
            TokenCheckError: the keys of the issuer cannot be fetched.
        """
        parts = token.split(".")
        if len(parts) != 3:
            return None
        if not all(_PART.fullmatch(part) for part in parts):
            raise InvalidTokenError(_UNREADABLE)
        header, payload = _decoded(parts[0]), _decoded(parts[1])
        if payload.get("iss") != self.issuer:
            return None
        kid, kind = header.get("kid"), header.get("typ")
        if header.get("alg") not in self._algorithms:
            raise InvalidTokenError(_REASONS["InvalidAlgorithmError"])
        if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
            raise InvalidTokenError("the token is no access token")
        if kid is not None and not isinstance(kid, str):
            raise InvalidTokenError(_UNREADABLE)
        key = self._secret if self._keys is None else await self._keys.key(kid)
        return self._identity(self._claims(token, key))

    def _claims(self, token: str, key: Any) -> dict[str, Any]:
        try:
            claims = self._jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                audience=self._audience,
                issuer=self.issuer,
                leeway=self._leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except self._jwt.PyJWTError as fault:
            # The library's own text may quote the token.
            raise InvalidTokenError(_REASONS.get(type(fault).__name__, _UNREADABLE)) from None
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise InvalidTokenError(_UNREADABLE) from None
        expires = claims["exp"]
        if isinstance(expires, bool) or not isinstance(expires, int | float) or expires > _LATEST:
            raise InvalidTokenError("the claim exp of the token is no time")
        return claims

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        client = next((claims[name] for name in _CLIENT if isinstance(claims.get(name), str)), None)
        subject = claims.get("sub")
        if client is None and not subject:
            raise InvalidTokenError("the token says neither a subject nor a client")
        return Identity.of(
            client,
            subject or None,
            self.issuer,
            scopes=[text for name in _SCOPES for text in _texts(claims.get(name))],
            roles=_texts(_at(claims, self._roles)),
            expires=claims["exp"] + self._leeway,
            claims=MappingProxyType(dict(claims)),
        )


def _checked(algorithms: Sequence[str], secret: bytes | None) -> list[str]:
    """The algorithms, if they go with the kind of the key.

    Raises:
        DefinitionError: a public key would be taken for a secret, or the reverse.
    """
    known = _SYMMETRIC if secret is not None else ASYMMETRIC
    wrong = next((name for name in algorithms if name not in known), None)
    if wrong is not None:
        kind = "a secret" if secret is not None else "the keys of an issuer"
        raise DefinitionError(f"JWT: {wrong} is no algorithm for {kind}; use {', '.join(known)}")
    if secret is not None and len(secret) < _SHORTEST:
        raise DefinitionError(f"JWT: the secret has fewer than {_SHORTEST} bytes, which can be guessed")
    return list(algorithms or (("HS256",) if secret is not None else ASYMMETRIC))


def _decoded(part: str) -> dict[str, Any]:
    """The header or the claims of a token, before anything of it is verified."""
    try:
        found: object = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise InvalidTokenError(_UNREADABLE) from None
    if not isinstance(found, dict):
        raise InvalidTokenError(_UNREADABLE)
    return cast("dict[str, Any]", found)


def _at(claims: Mapping[str, Any], path: str) -> object:
    """The claim of this name, or at this path of names."""
    if path in claims:
        return claims[path]
    found: object = claims
    for step in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = cast("Mapping[str, object]", found).get(step)
    return found


def _texts(value: object) -> list[str]:
    """The words of a claim, which is a list or one text."""
    if isinstance(value, str):
        return value.split()
    items: Iterable[object] = cast("list[object]", value) if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, str)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtEntry(Table):
    """An authorization server whose tokens are accepted, in a file."""

    unknown = "forbid"

    issuer: str = key(
        {**TEXT, "min_length": 1},
        "the issuer's URL, as the claim `iss` has it",
        required=True,
        meaning="The claim `iss` of its tokens.",
        example="https://idp.example.com",
    )
    audience: list[str] = key(
        prepared(listed, {**TEXTS, "min_length": 1}),
        "a string, or a list of strings: what the claim `aud` has for this server",
        required=True,
        meaning="The value of the claim `aud` for this server.",
        example="https://tools.example.com/mcp",
        published=ONE_OR_MORE,
    )
    jwks_url: str | None = key(
        TEXT,
        "an https URL",
        meaning="The address of the issuer's keys; if left out, it is read from the issuer's metadata.",
        example="https://idp.example.com/jwks",
    )
    algorithms: list[str] | None = key(
        TEXTS,
        'a list such as ["RS256", "ES256"]',
        meaning="The algorithms that are accepted.",
        example=["RS256", "ES256"],
    )
    secret: str | None = key(
        TEXT,
        'a string; better a reference such as "${JWT_SECRET}"',
        secret=True,
        meaning="The shared secret, for `HS256`, `HS384` and `HS512`.",
        example="${JWT_SECRET}",
    )
    roles_claim: str = key(
        {**TEXT, "min_length": 1},
        "a claim, or a path such as `realm_access.roles`",
        "roles",
        meaning="The claim of the roles, or a path to it.",
        example="realm_access.roles",
    )
    leeway: float = key(
        {"type": "float", "ge": 0, "le": 600, "strict": True},
        "a number of seconds up to 600",
        30.0,
        meaning="Seconds by which the clocks of issuer and server may differ.",
        example=30,
    )

    def check(self, place: Place) -> None:
        """Refuse what everybody could sign, and what would take no roles or every usual algorithm."""
        if fault := fault_of_name(self.roles_claim):
            raise place.at("roles_claim").error(*fault)
        if is_unreplaced(self.secret):
            raise place.at("secret").error(
                "is the secret itself, not a reference", "write a reference as `${NAME}`"
            )
        if self.algorithms == []:
            raise place.at("algorithms").error(
                "is empty, so the usual ones would be accepted", "name one, or remove it"
            )


@dataclass(frozen=True, slots=True)
class Issuers(VerifierKind):
    """`jwt` of `auth`: authorization servers, one or a list."""

    key: ClassVar = "jwt"
    parts: ClassVar = {"jwt": ("An entry of `jwt`", JwtEntry)}

    entries: tuple[JwtEntry, ...] = field(repr=False)

    @staticmethod
    def field_of_auth() -> Any:
        return key(
            prepared(listed, {"type": "list", "items_schema": ANY}),
            'a list of objects such as {"issuer": "https://…", "audience": "https://…/mcp"}',
            [],
            secret=True,
            meaning="Authorization servers whose tokens are accepted.",
            example=[{"issuer": "https://idp.example.com", "audience": "https://tools.example.com/mcp"}],
            published={
                "anyOf": [
                    {"$ref": "#/$defs/jwt"},
                    {"type": "array", "items": {"$ref": "#/$defs/jwt"}},
                ]
            },
        )

    @classmethod
    def read(cls, said: Any, place: Place) -> Issuers:
        entries = tuple(validated(JwtEntry, one, place.at(number)) for number, one in enumerate(said))
        for number, one in enumerate(entries):
            one.check(place.at(number))
        return cls(entries)

    @property
    def issuers(self) -> Sequence[str]:
        return [one.issuer for one in self.entries]

    def expanded(self, text: Expand) -> Issuers:
        def one(entry: JwtEntry, number: int) -> JwtEntry:
            def at(value: str | None, name: str) -> Any:
                return None if value is None else text(value, self.key, number, name)

            return replace(
                entry,
                audience=[at(each, "audience") for each in entry.audience],
                **{name: at(getattr(entry, name), name) for name in ("issuer", "jwks_url", "secret")},
            )

        return Issuers(tuple(one(entry, number) for number, entry in enumerate(self.entries)))

    def verifiers(self, place: Place) -> list[RememberedVerifier]:
        found = list[RememberedVerifier]()
        for number, one in enumerate(self.entries):
            with told_at(place.at(number)):
                found.append(
                    JWT(
                        issuer=one.issuer,
                        audience=one.audience,
                        jwks_url=one.jwks_url,
                        algorithms=one.algorithms or (),
                        secret=one.secret,
                        roles_claim=one.roles_claim,
                        leeway=one.leeway,
                    )
                )
        return found


KIND: Final = Issuers
