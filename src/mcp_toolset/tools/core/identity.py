"""`Identity`: the authenticated caller of a request, as the verified credentials describe it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, Self, cast

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError

_NO_CLAIMS: Final[Mapping[str, Any]] = MappingProxyType({})


def require_several(**lists: Iterable[str]) -> None:
    """Refuse one text where several are wanted: each of its letters would be a role, and match nothing."""
    for key, given in lists.items():
        if isinstance(given, str):
            raise DefinitionError(f"{key} is a list of names, such as [{given!r}], not {given!r}")


def _no_claims() -> Mapping[str, Any]:
    return _NO_CLAIMS


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller. Two identities with the same `key` are the same caller.

    Attributes:
        key: The value of `context.principal`, to which grants, sessions, caches and limits are bound.
        client: The id of the program that the credentials were issued to (the claim `client_id` or `azp`).
        subject: The user of the credentials (the claim `sub`).
        issuer: Who issued the credentials (the claim `iss`).
        scopes: What the credentials allow (RFC 6749, section 3.3).
        roles: The roles of the user, as the issuer or the configuration names them.
        expires: When the credentials expire, in seconds since the epoch; `None` if they do not.
        claims: The other claims of the credentials; may be personal data, so `repr` omits them.
    """

    key: str
    client: str | None = None
    subject: str | None = None
    issuer: str | None = None
    scopes: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    expires: float | None = None
    claims: Mapping[str, Any] = field(default_factory=_no_claims, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        client: str | None,
        subject: str | None = None,
        issuer: str | None = None,
        *,
        scopes: Iterable[str] = (),
        roles: Iterable[str] = (),
        expires: float | None = None,
        claims: Mapping[str, Any] = _NO_CLAIMS,
    ) -> Self:
        """The identity of a client, an issuer and a subject together.

        Raises:
            DefinitionError: roles or scopes are one text instead of a list.
        """
        require_several(roles=roles, scopes=scopes)
        key = json.dumps([client, issuer, subject])
        return cls(key, client, subject, issuer, frozenset(scopes), frozenset(roles), expires, claims)

    @property
    def name(self) -> str:
        """The caller's name in policies and logs: the subject, otherwise the client, otherwise the key."""
        return self.subject or self.client or self.key

    @property
    def is_authenticated(self) -> bool:
        """Always true, for applications on Starlette, which read it from `request.user`."""
        return True

    @property
    def display_name(self) -> str:
        """The same as `name`, for applications on Starlette."""
        return self.name


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
