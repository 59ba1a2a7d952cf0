"""`Verifier`: what checks the tokens of callers; an application's own verifier is adapted by its shape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from inspect import iscoroutinefunction, signature
from types import MethodType
from typing import Any, Final, Protocol, cast, runtime_checkable

from mcp_toolset._index import mend
from mcp_toolset._rule import Rule
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.call import Identity

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

    @abstractmethod
    async def verify(self, token: str) -> Identity | None:
        """See `Verifier`."""

    def on_withdrawal(self, withdrawn: Callable[[], None]) -> None:
        """Have a function called when tokens that were valid may no longer be so."""


class _Foreign(RememberedVerifier):
    """A verifier of the application."""

    def __init__(self, verify: Callable[[str], Awaitable[Identity | None]]) -> None:
        self._verify = verify

    async def verify(self, token: str) -> Identity | None:
        return await self._verify(token)


class _OfAccessTokens(RememberedVerifier):
    """A verifier of the application that has the shape of the SDK's."""

    def __init__(self, verifier: TokenVerifier) -> None:
        self._verifier = verifier

    async def verify(self, token: str) -> Identity | None:
        found = await self._verifier.verify_token(token)
        if found is None:
            return None
        identity = identity_of_token(found)
        if identity is None:
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
            return _OfAccessTokens(verifier)
        case _:
            raise DefinitionError(
                f"auth: {type(verifier).__qualname__} verifies no tokens; give {mend('verifiers')}an "
                "object with `async verify_token(token)` or `async verify(token)`"
            )


def identity_of_token(token: Any) -> Identity | None:
    """Whom an access token of the SDK stands for: its client, issuer and subject; `None` if it is none.

    The display name of the SDK's user is the client's id alone, which all users of a client share.
    """
    if token is None or not hasattr(token, "client_id"):
        return None
    found: object = getattr(token, "claims", None)
    claims: Mapping[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    issuer = claims.get("iss")
    return Identity.of(
        token.client_id,
        getattr(token, "subject", None),
        None if issuer is None else str(issuer),
        scopes=getattr(token, "scopes", ()),
        expires=getattr(token, "expires_at", None),
        claims=claims,
    )
