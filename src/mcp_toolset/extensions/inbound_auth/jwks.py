"""`KeySet`: the public keys of an issuer, fetched and cached; keys are replaced while tokens are in use."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import anyio

from mcp_toolset.errors import DefinitionError, InvalidTokenError, TokenCheckError
from mcp_toolset.security.egress import is_this_machine, metadata_places

if TYPE_CHECKING:
    from jwt import PyJWK

LIFESPAN: Final = 300.0
"""Seconds until keys are fetched again, so that a key that was withdrawn is noticed."""

COOLDOWN: Final = 30.0
"""Seconds between two fetches, for all callers together: any client can send tokens with unknown keys."""

_DEADLINE: Final = 5.0
_LARGEST: Final = 256 * 1024
_MOST: Final = 100
_KINDS: Final = ("RSA", "EC", "OKP")
"""Kinds of public keys: `oct` would be a secret that everybody can read."""

Fetch = Callable[[str], Awaitable[Mapping[str, Any]]]


def checked_url(url: str, what: str) -> str:
    """A URL from which keys may be fetched.

    Raises:
        DefinitionError: an attacker on the way could replace the keys.
    """
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
            issuer: Whose keys they are.
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
        found = self._found(kid)
        if found is None and not self._keys:
            raise TokenCheckError(f"the keys of {self._issuer} cannot be fetched")
        if found is None:
            raise InvalidTokenError("the token is signed with a key that its issuer does not publish")
        return found

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
                with anyio.fail_after(_DEADLINE):
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
            for told in self.withdrawn:
                told()

    async def _discovered(self) -> str:
        """The URL of the key set, in the metadata of the issuer (OpenID Connect Discovery, RFC 8414)."""
        for place in metadata_places(self._issuer):
            try:
                found = await self._fetch(place)
            except TokenCheckError:
                continue
            url = found.get("jwks_uri")
            if found.get("issuer") == self._issuer and isinstance(url, str):
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
            httpx2.AsyncClient(timeout=_DEADLINE, follow_redirects=False) as client,
            client.stream("GET", url, headers={"accept": "application/json"}) as response,
        ):
            if response.status_code != 200:
                raise TokenCheckError(f"{url} answers with status {response.status_code}")
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _LARGEST:
                    raise TokenCheckError(f"{url} answers with more than {_LARGEST} bytes")
        found: object = json.loads(body)
    except (httpx2.HTTPError, ValueError, RecursionError) as fault:
        raise TokenCheckError(f"{url}: {type(fault).__name__}") from None
    if not isinstance(found, dict):
        raise TokenCheckError(f"{url} answers with something else than a JSON object")
    return cast("dict[str, Any]", found)
