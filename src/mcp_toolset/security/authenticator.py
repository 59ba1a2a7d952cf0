"""`Authenticator`: from the credentials of a request to the identity of its caller, or to a refusal."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from functools import partial
from hashlib import sha256
from inspect import iscoroutinefunction, signature
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

import anyio

from mcp_toolset._index import mend
from mcp_toolset._records import dataclass
from mcp_toolset._rule import Rule, take
from mcp_toolset.concurrency.tasks import SingleFlight
from mcp_toolset.errors import DefinitionError, InvalidTokenError, TokenCheckError
from mcp_toolset.tools.call import Identity, identity_of_token

if TYPE_CHECKING:
    from typing_extensions import TypeIs


MEMORY: Final = 300.0
"""Seconds until a verified token is verified again, so that a token that was taken back is noticed."""


@runtime_checkable
class Verifier(Protocol):
    """Checks bearer tokens."""

    async def verify(self, token: str) -> Identity | None:
        """The sender of this token; `None` if the token is of a kind that another verifier may know.

        Raises:
            InvalidTokenError: it is of this verifier's kind, and not valid.
            TokenCheckError: it cannot be checked now.
        """
        ...


@runtime_checkable
class TokenVerifier(Protocol):
    """A verifier in the form of the MCP SDK: `mcp.server.auth.provider.TokenVerifier`."""

    def verify_token(self, token: str) -> Awaitable[Any]:
        """An `AccessToken`, or `None` if the token is not valid."""
        ...


class RememberedVerifier(Rule, ABC):
    """A verifier that says for how long its answers hold.

    Attributes:
        memory: Seconds that a verified token is remembered at most.
        issuer: The authorization server whose tokens it verifies, if there is one.
        resource: The URL of this server that the tokens name as their audience, if they name one.
    """

    memory: float = MEMORY
    issuer: str | None = None
    resource: str | None = None

    @property
    def holders(self) -> Sequence[Identity] | None:
        """Everybody whose tokens it can know; `None` if that is not known."""
        return None

    @abstractmethod
    async def verify(self, token: str) -> Identity | None:
        """See `Verifier`."""

    def on_withdrawal(self, withdrawn: Callable[[], None]) -> None:
        """Call a function when tokens that were valid may no longer be so."""


class _Foreign(RememberedVerifier):
    """A verifier of the application."""

    def __init__(self, verify: Callable[[str], Awaitable[Identity | None]]) -> None:
        self._verify = verify

    async def verify(self, token: str) -> Identity | None:
        return await self._verify(token)


async def _by_access_token(verifier: TokenVerifier, token: str) -> Identity | None:
    access_token = await verifier.verify_token(token)
    identity = None if access_token is None else identity_of_token(access_token)
    if access_token is not None and identity is None:
        raise TypeError("a verifier gave something else than an access token")
    return identity


def _check_verb(verb: object, where: str) -> None:
    """Refuse a method that would fail for every token."""
    if not isinstance(verb, MethodType):
        return
    if not iscoroutinefunction(verb) and "return" not in verb.__annotations__:
        raise DefinitionError(f"auth: {where} is not async, so nobody could log in; write `async def`")
    try:
        signature(verb).bind("token")
    except TypeError:
        raise DefinitionError(f"auth: {where} takes a token alone, not {signature(verb)}") from None


def remembered(verifier: Verifier | TokenVerifier) -> RememberedVerifier:
    """A verifier with the time for which its answers hold."""
    if isinstance(cast("object", verifier), type):
        name = getattr(verifier, "__name__", "")
        raise DefinitionError(f"auth: {name} is a class, which verifies no tokens; give an object: {name}(…)")
    for verb in ("verify", "verify_token"):
        _check_verb(getattr(verifier, verb, None), f"{type(verifier).__qualname__}.{verb}")
    match verifier:
        case RememberedVerifier():
            return verifier
        case Verifier():
            return _Foreign(verifier.verify)
        case TokenVerifier():
            return _Foreign(partial(_by_access_token, verifier))
        case _:
            raise DefinitionError(
                f"auth: {type(verifier).__qualname__} verifies no tokens; give {mend('verifiers')}an "
                "object with `async verify_token(token)` or `async verify(token)`"
            )


LONGEST: Final = 16 * 1024
"""Bytes of a token that are looked at."""

_KNOWN: Final = 4096
"""Verified tokens that are remembered."""

_TIMEOUT: Final = 10.0
"""Seconds in which a token is verified."""

_log = logging.getLogger("mcp_toolset.auth")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused: its HTTP status, and an error of RFC 6750, section 3.1.

    Attributes:
        status: 400, 401, 403 or 503.
        error: The error code; `None` if the request has no credentials.
        description: The reason, without any part of a token.
    """

    status: int
    error: str | None
    description: str


_ABSENT: Final = Refusal(401, None, "this server wants a bearer token: send an Authorization header")
_UNKNOWN: Final = Refusal(401, "invalid_token", "the token is not known here")
_EXPIRED: Final = Refusal(401, "invalid_token", "the token has expired")
_REVOKED: Final = Refusal(401, "invalid_token", "the token was revoked")
_MALFORMED: Final = Refusal(400, "invalid_request", "the Authorization header is malformed")
_LONG: Final = Refusal(400, "invalid_request", f"the token has more than {LONGEST} bytes")
_LATER: Final = Refusal(503, "temporarily_unavailable", "the token cannot be checked now; try again later")


@dataclass(frozen=True, slots=True)
class _Known:
    """A verified token as it is remembered, by its digest."""

    outcome: Identity | Refusal
    identity: Identity
    until: float
    verifier: RememberedVerifier


class Authenticator(Rule):
    """Verifies the tokens of requests, and remembers the verified ones until they expire.

    Attributes:
        resource: The URL of this server as clients know it, which is the audience of their tokens, if known.
        required_scopes: The scopes that each token must have.
        authorization_servers: The URLs of the authorization servers that issue tokens.
    """

    def __init__(
        self,
        verifiers: Verifier | TokenVerifier | Sequence[Verifier | TokenVerifier],
        *,
        resource: str | None = None,
        required_scopes: Iterable[str] = (),
        authorization_servers: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Ask `verifiers` in their order.

        Args:
            verifiers: One verifier or several, from `mcp_toolset.auth` or from the application.
            resource: The URL of this server, such as `https://tools.example.com/mcp`; by default the first
                audience of a verifier that is a URL.
            required_scopes: Scopes without which a request is refused (403).
            authorization_servers: Issuers to name to clients, in addition to those of the verifiers.
            clock: The seconds since the epoch.

        Raises:
            DefinitionError: no verifier is given, or an object is not a verifier.
        """
        given = required_scopes if isinstance(required_scopes, str) else tuple(required_scopes)
        if isinstance(given, str) or not all(isinstance(one, str) for one in cast("tuple[object]", given)):
            raise DefinitionError(f"auth: required_scopes is a list of scopes, not {given!r}")
        self.required_scopes = tuple(dict.fromkeys(given))
        several = verifiers if isinstance(verifiers, Sequence) else (verifiers,)
        if not several:
            raise DefinitionError("auth: no verifier is given, so nobody could call; give one, or no auth")
        take(*several)
        self._verifiers = [remembered(one) for one in several]
        self.resource = resource or next((one.resource for one in self._verifiers if one.resource), None)
        issuers = (*authorization_servers, *(one.issuer for one in self._verifiers if one.issuer))
        self.authorization_servers = tuple(dict.fromkeys(issuers))
        self._clock = clock
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._flights: SingleFlight[bytes] = SingleFlight()
        self._revoked: dict[bytes, float] = {}
        self._revoked_tokens: set[bytes] = set()
        self._forgotten = 0
        self._watchers: set[anyio.Event] = set()
        for verifier in self._verifiers:
            verifier.on_withdrawal(partial(self._withdrawn, verifier))

    @property
    def holders(self) -> Sequence[Identity] | None:
        """Everybody who can have a token; `None` if that is not known."""
        found = [verifier.holders for verifier in self._verifiers]
        return None if None in found else [holder for one in found for holder in one or ()]

    def recall(self, credentials: bytes) -> Identity | None:
        """The caller with this `Authorization` header, if its token is cached."""
        scheme, _, token = credentials.partition(b" ")
        if len(token) > LONGEST or scheme.lower() != b"bearer":
            return None
        digest = sha256(token).digest()
        known = self._known.get(digest)
        if known is None or self._clock() >= known.until or isinstance(known.outcome, Refusal):
            return None
        self._known.move_to_end(digest)
        return known.outcome

    async def identify(self, credentials: bytes | None) -> Identity | Refusal:
        """The caller with this `Authorization` header, or the reason to refuse the request."""
        if credentials is None:
            return _ABSENT
        scheme, _, token = credentials.partition(b" ")
        if scheme.lower() != b"bearer":
            return _ABSENT
        if len(token) > LONGEST:
            return _LONG
        digest = sha256(token).digest()
        known = self._known.get(digest)
        if known is not None and self._clock() < known.until:
            self._known.move_to_end(digest)
            return known.outcome
        if not token or not token.isascii() or b" " in token or b"," in token:
            return _MALFORMED
        return await self._flights.run(digest, partial(self._verified, token.decode(), digest))

    def forget(self, who: str | Identity | None = None) -> None:
        """Verify tokens anew at their next use, and check open streams now.

        Args:
            who: A token, or the `name` or `key` of an identity; all callers unless given.
        """
        self._forgotten += 1
        wanted = who.key if isinstance(who, Identity) else who
        token = None if wanted is None else _digest(wanted)
        for digest, known in list(self._known.items()):
            if wanted is None or digest == token or wanted in (known.identity.key, known.identity.name):
                del self._known[digest]
        self._wake()

    def revoke(self, who: str | Identity) -> None:
        """Refuse a token, or all tokens of an identity that were issued until now; end its streams.

        Args:
            who: A token, or the `name` or `key` of an identity.
        """
        wanted = who.key if isinstance(who, Identity) else who
        self._revoked[_digest(wanted)] = self._clock()
        self._revoked_tokens.add(_digest(_signed_part(wanted)))
        self.forget(who)

    def become(self, other: Authenticator) -> None:
        """Use the rules of another authenticator after a changed configuration; check open streams now."""
        self.resource, self.required_scopes = other.resource, other.required_scopes
        self.authorization_servers, self._verifiers = other.authorization_servers, other._verifiers
        for verifier in self._verifiers:
            verifier.on_withdrawal(partial(self._withdrawn, verifier))
        self.forget()

    async def until_refused(self, credentials: bytes, identity: Identity) -> None:
        """Wait until an open stream must end: its token and all later tokens of its caller are invalid.

        Args:
            credentials: The `Authorization` header that the stream was opened with.
            identity: The caller of the stream.
        """
        changed = anyio.Event()
        self._watchers.add(changed)
        try:
            while True:
                with anyio.move_on_after(self._remaining(identity.key)):
                    await changed.wait()
                if changed.is_set():
                    self._watchers.discard(changed)
                    changed = anyio.Event()
                    self._watchers.add(changed)
                refused = isinstance(await self.identify(credentials), Refusal)
                if refused and not self._valid_tokens(identity.key):
                    return
        finally:
            self._watchers.discard(changed)

    async def _verified(self, token: str, digest: bytes) -> Identity | Refusal:
        if self._is_revoked_token(token):
            return _REVOKED
        refused, before = _UNKNOWN, self._forgotten
        for verifier in self._verifiers:
            caller = await self._asked(verifier, token)
            if isinstance(caller, Identity):
                outcome = self._remembered(caller, digest, verifier)
                if self._forgotten != before:
                    # What was revoked or withdrawn meanwhile may be this token.
                    self._known.pop(digest, None)
                return _REVOKED if self._is_revoked_token(token) else outcome
            refused = caller or refused
        return refused

    async def _asked(self, verifier: RememberedVerifier, token: str) -> Identity | Refusal | None:
        try:
            with anyio.fail_after(_TIMEOUT):
                caller = cast("object", await verifier.verify(token))
            if caller is None or _is_identity(caller):
                return caller
            # Never by its truth: an application's object for "nobody" is true as well.
            _log.error("a verifier of tokens gave a %s: neither an Identity nor None", _shape(caller))
        except InvalidTokenError as fault:
            # The text of an application's own verifier may quote the token.
            return Refusal(401, "invalid_token", str(fault).replace(token, "…"))
        except TokenCheckError as fault:
            _log.warning("a token cannot be checked: %s", fault)
        # An application's verifier may raise anything, and the text of its error may quote the token.
        except Exception as fault:
            _log.error("a verifier of tokens failed with %s", type(fault).__qualname__)
        return _LATER

    def _remembered(
        self, identity: Identity, digest: bytes, verifier: RememberedVerifier
    ) -> Identity | Refusal:
        now = self._clock()
        if identity.expires is not None and identity.expires <= now:
            return _EXPIRED
        if self._is_revoked(identity):
            return _REVOKED
        missing = [scope for scope in self.required_scopes if scope not in identity.scopes]
        lacking = f"the token lacks the scope {' '.join(missing)}"
        outcome = Refusal(403, "insufficient_scope", lacking) if missing else identity
        until = now + verifier.memory
        until = until if identity.expires is None else min(until, identity.expires)
        self._known[digest] = _Known(outcome, identity, until, verifier)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return outcome

    def _is_revoked_token(self, token: str) -> bool:
        return bool(self._revoked_tokens) and _digest(_signed_part(token)) in self._revoked_tokens

    def _is_revoked(self, identity: Identity) -> bool:
        if not self._revoked:
            return False
        since = max(self._revoked.get(_digest(who), 0.0) for who in (identity.key, identity.name))
        issued = identity.claims.get("iat")
        return since > 0 and not (isinstance(issued, int | float) and issued > since)

    def _valid_tokens(self, key: str) -> list[float]:
        """When the remembered tokens of an identity end to be valid."""
        now = self._clock()
        return [
            known.until
            for known in self._known.values()
            if known.identity.key == key and known.until > now and isinstance(known.outcome, Identity)
        ]

    def _remaining(self, key: str) -> float:
        """Seconds until the streams of an identity are to be checked."""
        until = max(self._valid_tokens(key), default=0.0)
        return min(max(until - self._clock(), 0.05), 3600.0)

    def _withdrawn(self, verifier: RememberedVerifier) -> None:
        self._forgotten += 1
        for digest, known in list(self._known.items()):
            if known.verifier is verifier:
                del self._known[digest]
        self._wake()

    def _wake(self) -> None:
        for changed in list(self._watchers):
            changed.set()


Auth = Authenticator | Verifier | TokenVerifier | Sequence[Verifier | TokenVerifier]
"""A value of `auth=`: one verifier, several, or an `Authenticator` of them with its options."""


def _is_identity(found: object) -> TypeIs[Identity]:
    """True if it is an identity whose scopes, roles and expiry can be compared."""
    if not isinstance(found, Identity):
        return False
    names, expires = cast("tuple[object, object]", (found.scopes, found.roles)), cast("object", found.expires)
    return all(isinstance(each, Set) for each in names) and isinstance(expires, int | float | None)


def _shape(found: object) -> str:
    is_unfit = isinstance(found, Identity)
    return (
        "Identity whose scopes, roles or expiry have another type" if is_unfit else type(found).__qualname__
    )


def _signed_part(token: str) -> str:
    """The identifying part of a token: a JWT without its signature, which has other valid spellings."""
    return token.rpartition(".")[0] if token.count(".") == 2 else token


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()
