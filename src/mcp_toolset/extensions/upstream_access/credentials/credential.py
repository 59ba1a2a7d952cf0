"""`Credential`: the tokens for one mounted server, and the data to renew them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

from mcp_toolset._records import dataclass, replace

EARLY: Final = 30.0
"""Seconds before it expires that a token is renewed, so that it does not expire on its way."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What an authorization server has issued; `repr` shows no secret.

    Attributes:
        header: The value of `Authorization`; empty for a credential that has been refused.
        refresh_token: Gets the next token; empty if there is none.
        scopes: What was granted.
        asked: The scopes that the last login has asked for.
        unproven: How many logins have answered a refusal since the server has taken a token of one of them.
        expires_at: When the token expires, in seconds since the epoch; `None` if nothing was said.
        renew_at: When it is renewed.
        resource: What it is for (RFC 8707); empty if the authorization server was not told.
        client: The client that it was issued to, as registered (RFC 7591).
        server: The metadata of the authorization server (RFC 8414).
    """

    header: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    unproven: int = 0
    expires_at: float | None = None
    renew_at: float | None = None
    resource: str = ""
    client: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    server: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @classmethod
    def kept(cls, record: Mapping[str, Any]) -> Self:
        """The credential in a record of a store; members of the wrong kind count as missing."""
        unproven: object = record.get("unproven")
        times = {name: record.get(name) for name in ("expires_at", "renew_at")}
        return cls(
            _text(record, "header"),
            _text(record, "refresh_token"),
            tuple(_text(record, "scope").split()),
            tuple(_text(record, "asked").split()),
            unproven if isinstance(unproven, int) else 0,
            **{name: float(at) if isinstance(at, int | float) else None for name, at in times.items()},
            resource=_text(record, "resource"),
            client=_table(record.get("client")),
            server=_table(record.get("server")),
        )

    def record(self) -> dict[str, Any]:
        return {
            "header": self.header,
            "refresh_token": self.refresh_token,
            "scope": " ".join(self.scopes),
            "asked": " ".join(self.asked),
            "unproven": self.unproven,
            "expires_at": self.expires_at,
            "renew_at": self.renew_at,
            "resource": self.resource,
            "client": dict(self.client),
            "server": dict(self.server),
        }

    def with_tokens(self, answer: Mapping[str, Any], now: float) -> Credential:
        """The same with the tokens in an answer of the token endpoint (RFC 6749, section 5.1)."""
        token, kind = answer.get("access_token"), answer.get("token_type", "Bearer")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("it sent no access token")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise ValueError("it sent a token that is no bearer token")
        left = _seconds(answer.get("expires_in"))
        said = answer.get("scope")
        return replace(
            self,
            header=f"Bearer {token}",
            refresh_token=_text(answer, "refresh_token") or self.refresh_token,
            scopes=tuple(said.split()) if isinstance(said, str) and said else self.scopes,
            expires_at=None if left is None else now + left,
            renew_at=None if left is None else now + left - min(EARLY, left / 4),
        )

    def without_tokens(self) -> Credential:
        """What is left of it once the authorization server does not renew it any more: the client."""
        return replace(self, header="", refresh_token="", expires_at=None, renew_at=None)

    def is_due(self, now: float) -> bool:
        return self.renew_at is not None and now >= self.renew_at

    def has_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    @property
    def redirect_port(self) -> int:
        """The port that the last login came back to, which the client is registered with; else 0."""
        known: object = self.client.get("redirect_uris")
        first = str(next(iter(cast("list[object]", known)), "")) if isinstance(known, list) else ""
        return urlsplit(first).port or 0

    @property
    def token(self) -> str:
        return self.header.partition(" ")[2]

    @property
    def issuer(self) -> str:
        """The authorization server that issued it."""
        return _text(self.server, "issuer")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values in it that must not be shown."""
        found = (self.token, self.refresh_token, _text(self.client, "client_secret"))
        return tuple(filter(None, found))


def _text(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    return value if isinstance(value, str) else ""


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _seconds(value: object) -> float | None:
    """`expires_in`, which some servers write as text."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) else math.inf
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
