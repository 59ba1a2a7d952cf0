"""`JWT`: access tokens of an authorization server (RFC 9068), verified with its public keys or a secret."""

from __future__ import annotations

import json
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast
from urllib.parse import urlsplit

import anyio

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.entries import validated
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import ANY, TEXT, TEXTS, Table, key, prepared
from mcp_toolset.config.variables import is_unreplaced
from mcp_toolset.errors import DefinitionError, InvalidTokenError, TokenCheckError
from mcp_toolset.extensions.inbound_auth.verifiers import ONE_OR_MORE, Expand, VerifierKind, listed, told_at
from mcp_toolset.security.authenticator import RememberedVerifier
from mcp_toolset.security.egress import is_this_machine, metadata_addresses
from mcp_toolset.security.patterns import fault_of_name
from mcp_toolset.tools.call import Identity

if TYPE_CHECKING:
    from jwt import PyJWK


LIFESPAN: Final = 300.0
"""Seconds until keys are fetched again, so that a key that was withdrawn is noticed."""

COOLDOWN: Final = 30.0
"""Seconds between two fetches, for all callers together: any client can send tokens with unknown keys."""

_TIMEOUT: Final = 5.0
_LARGEST: Final = 256 * 1024
_MOST: Final = 100
_KINDS: Final = ("RSA", "EC", "OKP")
"""Kinds of public keys: `oct` would be a secret that everybody can read."""

Fetch = Callable[[str], Awaitable[Mapping[str, Any]]]


def checked_url(url: str, what: str) -> str:
    """A URL from which keys may be fetched."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        safe = bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(host)))
    except ValueError:
        safe = False
    if not safe:
        raise DefinitionError(f"{what}: {url} is no https URL; keys are fetched by https, or from loopback")
    return url


class KeySet:
    """The keys of one issuer, by their `kid`."""

    def __init__(
        self,
        issuer: str,
        url: str | None,
        *,
        lifespan: float = LIFESPAN,
        cooldown: float = COOLDOWN,
        clock: Callable[[], float] = time.monotonic,
        fetch: Fetch | None = None,
    ) -> None:
        """Fetch nothing yet.

        Args:
            issuer: The issuer of the keys.
            url: The key set; what the issuer's metadata names unless given.
            lifespan: Seconds until the keys are fetched again.
            cooldown: Seconds between two fetches.
            clock: Seconds of a clock that never runs backwards.
            fetch: Gets a JSON object; by HTTP unless given.
        """
        self._issuer = issuer
        self._url = None if url is None else checked_url(url, "jwks_url")
        if url is None:
            checked_url(issuer, "issuer")
        self._lifespan, self._cooldown = lifespan, cooldown
        self._clock, self._fetch = clock, fetch or fetched
        self._keys: dict[str, PyJWK] = {}
        self._texts: dict[str, str] = {}
        self._fetched = self._tried = float("-inf")
        self._turn = anyio.Lock()
        self.withdrawn: list[Callable[[], None]] = []

    async def key(self, kid: str | None) -> PyJWK:
        """The key that a token names; the only one there is, if the token names none."""
        now = self._clock()
        if now - self._fetched > self._lifespan or (self._found(kid) is None and self._may_try(now)):
            await self._refreshed(kid)
        known = self._found(kid)
        if known is None and not self._keys:
            raise TokenCheckError(f"the keys of {self._issuer} cannot be fetched")
        if known is None:
            raise InvalidTokenError("the token is signed with a key that its issuer does not publish")
        return known

    def _found(self, kid: str | None) -> PyJWK | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return None if kid is None else self._keys.get(kid)

    def _may_try(self, now: float) -> bool:
        return now - self._tried >= self._cooldown

    async def _refreshed(self, kid: str | None) -> None:
        async with self._turn:
            now = self._clock()
            if not self._may_try(now):
                # Another request has tried in the meantime; the keys that are known stay in use.
                return
            self._tried = now
            try:
                with anyio.fail_after(_TIMEOUT):
                    url = self._url or await self._discovered()
                    listed = (await self._fetch(url)).get("keys")
            except (TokenCheckError, TimeoutError) as fault:
                if self._found(kid) is None:
                    raise TokenCheckError(
                        f"the keys of {self._issuer} cannot be fetched: {str(fault) or 'no answer in time'}"
                    ) from None
                return
            self._take(listed)
            self._fetched = self._clock()

    def _take(self, listed: object) -> None:
        from jwt import PyJWK, PyJWTError

        entries = cast("list[Any]", listed)[:_MOST] if isinstance(listed, list) else []
        keys, texts = dict[str, PyJWK](), dict[str, str]()
        for entry in entries:
            if not isinstance(entry, dict):
                continue
            table = cast("dict[str, Any]", entry)
            if table.get("kty") not in _KINDS or table.get("use", "sig") != "sig":
                continue
            kid = str(table.get("kid", ""))
            try:
                keys[kid] = PyJWK.from_dict(table)
            # A key of a kind that is unknown here does not spoil the others.
            except (PyJWTError, ValueError, TypeError, NotImplementedError):
                continue
            texts[kid] = json.dumps(table, sort_keys=True)
        gone = any(texts.get(kid) != text for kid, text in self._texts.items())
        self._keys, self._texts = keys, texts
        if gone:
            for callback in self.withdrawn:
                callback()

    async def _discovered(self) -> str:
        """The URL of the key set, in the metadata of the issuer (OpenID Connect Discovery, RFC 8414)."""
        for place in metadata_addresses(self._issuer):
            try:
                metadata = await self._fetch(place)
            except TokenCheckError:
                continue
            url = metadata.get("jwks_uri")
            if metadata.get("issuer") == self._issuer and isinstance(url, str):
                try:
                    self._url = checked_url(url, "jwks_uri")
                except DefinitionError as fault:
                    raise TokenCheckError(str(fault)) from None
                return self._url
        raise TokenCheckError("its metadata names no jwks_uri; give jwks_url")


async def fetched(url: str) -> Mapping[str, Any]:
    """A JSON object, by HTTP: no redirects, no more than 256 KB."""
    # Only a server that verifies JWTs fetches keys.
    import httpx2

    body = bytearray()
    try:
        async with (
            httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False) as client,
            client.stream("GET", url, headers={"accept": "application/json"}) as response,
        ):
            if response.status_code != 200:
                raise TokenCheckError(f"{url} answers with status {response.status_code}")
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _LARGEST:
                    raise TokenCheckError(f"{url} answers with more than {_LARGEST} bytes")
        data: object = json.loads(body)
    except (httpx2.HTTPError, ValueError, RecursionError) as fault:
        raise TokenCheckError(f"{url}: {type(fault).__name__}") from None
    if not isinstance(data, dict):
        raise TokenCheckError(f"{url} answers with something else than a JSON object")
    return cast("dict[str, Any]", data)


ASYMMETRIC: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The algorithms that are accepted unless told otherwise."""

_SYMMETRIC: Final = ("HS256", "HS384", "HS512")
_SHORTEST: Final = 32
"""Bytes that a shared secret has at least (RFC 7518, section 3.2)."""

_TYPES: Final = (None, "jwt", "at+jwt", "application/at+jwt")
"""Values of the header `typ` of an access token: tokens of other uses are none (RFC 8725, section 3.11)."""

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


MAX_LEEWAY: Final = 600
"""The largest difference in seconds between clocks that is accepted."""


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
            leeway: The accepted difference between the clocks of issuer and server, in seconds, up to 600.
            keys: The issuer's keys, in place of `jwks_url`.

        Raises:
            DefinitionError: an algorithm is not accepted, a secret is too short, a URL is not https, or
                `leeway` is no number from 0 to 600.
        """
        if not isinstance(cast("object", leeway), int | float) or not 0 <= leeway <= MAX_LEEWAY:
            raise DefinitionError(
                f"JWT(leeway=…) takes a number of seconds up to {MAX_LEEWAY}, not {leeway!r}"
            )
        # The library is loaded when a program first uses JWTs.
        import jwt

        self._jwt = jwt
        self.issuer = issuer
        self._audience = [audience] if isinstance(audience, str) else list(audience)
        if not issuer or not self._audience or not all(self._audience):
            raise DefinitionError("JWT: give the issuer and the audience; without, any token would be valid")
        self.resource = next((one for one in self._audience if one.startswith(("https://", "http://"))), None)
        self._secret = secret.encode() if isinstance(secret, str) else secret
        self._algorithms = _checked(tuple(algorithms), self._secret)
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
    """The algorithms, if they go with the kind of the key."""
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
        value: object = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise InvalidTokenError(_UNREADABLE) from None
    if not isinstance(value, dict):
        raise InvalidTokenError(_UNREADABLE)
    return cast("dict[str, Any]", value)


def _at(claims: Mapping[str, Any], path: str) -> object:
    if path in claims:
        return claims[path]
    claim: object = claims
    for step in path.split("."):
        if not isinstance(claim, Mapping):
            return None
        claim = cast("Mapping[str, object]", claim).get(step)
    return claim


def _texts(value: object) -> list[str]:
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
        {"type": "float", "ge": 0, "le": MAX_LEEWAY, "strict": True},
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
                "anyOf": [{"$ref": "#/$defs/jwt"}, {"type": "array", "items": {"$ref": "#/$defs/jwt"}}]
            },
        )

    @classmethod
    def read(cls, said: Any, place: Place) -> Issuers:
        entries = tuple(validated(JwtEntry, one, place.at(number)) for number, one in enumerate(said))
        for number, entry in enumerate(entries):
            entry.check(place.at(number))
        return cls(entries)

    @property
    def issuers(self) -> Sequence[str]:
        return [entry.issuer for entry in self.entries]

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
        issuer_verifiers = list[RememberedVerifier]()
        for number, entry in enumerate(self.entries):
            with told_at(place.at(number)):
                issuer_verifiers.append(
                    JWT(
                        issuer=entry.issuer,
                        audience=entry.audience,
                        jwks_url=entry.jwks_url,
                        algorithms=entry.algorithms or (),
                        secret=entry.secret,
                        roles_claim=entry.roles_claim,
                        leeway=entry.leeway,
                    )
                )
        return issuer_verifiers


KIND: Final = Issuers
