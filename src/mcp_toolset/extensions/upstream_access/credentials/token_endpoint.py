"""`AuthorizationHttp`: requests to authorization servers, each with a deadline; it renews tokens."""

from __future__ import annotations

import json
import logging
import math
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import parse_qsl, quote, urlsplit
from urllib.request import getproxies

import anyio

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.server_auth import ServerAuth, TokenExchange
from mcp_toolset.security.egress import Refusal
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import mapping_of

if TYPE_CHECKING:
    import httpx2


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
            client=mapping_of(record.get("client")),
            server=mapping_of(record.get("server")),
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


def _seconds(value: object) -> float | None:
    """`expires_in`, which some servers write as text."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) else math.inf
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


PATIENCE: Final = 20.0
"""Seconds that an authorization server may take for one answer."""

TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
"""The grant of RFC 8693, section 2.1."""

MAX_ANSWER: Final = 1_000_000
"""Bytes of one answer."""

_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_ENDED: Final = frozenset(("invalid_grant", "invalid_client", "unauthorized_client", "bad_refresh_token"))
"""Errors by which a refresh token, or its client, is refused for good (RFC 6749, section 5.2)."""

_OF_THE_BODY: Final = frozenset(("content-encoding", "content-length", "transfer-encoding"))
_FORM: Final = "application/x-www-form-urlencoded"
_ERROR: Final = re.compile("[a-z]{1,16}(_[a-z]{1,16}){0,4}")
"""How errors of OAuth are written. Other text of a token endpoint is not shown: a secret may be in it."""

_QUOTING: Final = ("mcp.client.auth.oauth2", "httpx2", "httpcore2.http11", "httpcore2.http2")
_unlogged: Final[ContextVar[bool]] = ContextVar("_unlogged", default=False)
_AGAIN: Final = "call again later"


@asynccontextmanager
async def authorization_http(
    name: str, url: str, auth: ServerAuth | TokenExchange
) -> AsyncGenerator[AuthorizationHttp]:
    import httpx2

    from mcp_toolset.transports.guarded import GuardedTransport, proxies

    named = (getattr(auth, member, None) for member in ("issuer", "token_url", "idp_token_endpoint"))
    owns = (url, *filter(None, named))

    def refusal(to: str, address: str) -> str:
        return auth.egress.refusal(to, address, *owns)

    limits = httpx2.Limits()
    async with httpx2.AsyncClient(
        timeout=PATIENCE,
        follow_redirects=False,
        transport=GuardedTransport(refusal, limits),
        mounts=proxies(limits),
    ) as client:
        yield AuthorizationHttp(name, url, client, refusal)


class AuthorizationHttp:
    """Sends what the credentials for one mounted server need; the server's own tokens are in none of it."""

    def __init__(self, name: str, url: str, client: httpx2.AsyncClient, refusal: Refusal) -> None:
        """Send by `client`, for the server that is mounted as `name` at `url`, where `refusal` lets it."""
        self._name = name
        self._refusal = refusal
        self._host = urlsplit(url).hostname
        self._client = client

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        import httpx2

        url = request.url
        if url.scheme != "https" and url.host not in _LOOPBACK and url.host != self._host:
            raise self.fault(f"{in_log(url.host)} would be asked for a login without https; nothing was sent")
        try:
            with unlogged(), anyio.fail_after(PATIENCE):
                if getproxies():
                    await self._check(str(url))
                answer = await self._client.send(request, stream=True)
                try:
                    body = await self._whole(answer)
                finally:
                    await answer.aclose()
        except TimeoutError:
            raise self.fault(f"{in_log(url.host)} gave no answer within {PATIENCE:g} s; {_AGAIN}") from None
        except httpx2.HTTPError as fault:
            raise self.fault(f"{in_log(url.host)} cannot be reached ({_why(fault)}); {_AGAIN}") from None
        headers = [(name, text) for name, text in answer.headers.multi_items() if name not in _OF_THE_BODY]
        read = httpx2.Response(answer.status_code, headers=headers, content=body, request=request)
        read.next_request = answer.next_request
        return read

    async def check_page(self, url: str) -> None:
        """Check an address to which a person's browser is to be sent."""
        import httpx2

        parts = urlsplit(url)
        try:
            if parts.scheme != "https" and parts.hostname not in (*_LOOPBACK, self._host):
                raise self.fault(f"the page of the login at {in_log(parts.netloc)} has no https address")
            await self._check(url)
        except httpx2.ConnectError as fault:
            raise self.fault(f"the page of the login: {in_log(fault)}") from None

    async def _check(self, url: str) -> None:
        from mcp_toolset.transports.guarded import permitted

        await permitted(self._refusal, url)

    async def answered(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of a login; an answer to a POST is a JSON object that is no refusal.

        The SDK quotes in its errors whatever else token and registration endpoints answer.
        """
        import httpx2

        answer = await self.send(request)
        if request.method != "POST":
            return answer
        table = table_in(answer)
        try:
            if answer.status_code not in (200, 201) or "error" in table:
                raise ValueError("it refuses")
            if request.headers.get("content-type", "").startswith(_FORM):
                token = Credential().with_tokens(table, 0.0)
                known: dict[str, Any] = {
                    "scope": " ".join(token.scopes),
                    "refresh_token": token.refresh_token,
                }
                if token.expires_at is not None:
                    known["expires_in"] = int(token.expires_at)
                table = {"access_token": token.token, **{name: said for name, said in known.items() if said}}
            elif not table.get("client_id"):
                raise ValueError("it registered no client")
        except ValueError as fault:
            raise self.fault(f"{in_log(request.url.netloc.decode())}: {fault} ({told(answer)})") from None
        return httpx2.Response(answer.status_code, json=table, request=request)

    async def _whole(self, answer: httpx2.Response) -> bytes:
        parts, size = list[bytes](), 0
        async for chunk in answer.aiter_bytes():
            size += len(chunk)
            if size > MAX_ANSWER:
                raise self.fault(f"{in_log(answer.url.host)} answered with more than {MAX_ANSWER} bytes")
            parts.append(chunk)
        return b"".join(parts)

    async def challenge(self, request: httpx2.Request) -> str:
        """The challenge in the answer of the mounted server itself, whose body is not read."""
        import httpx2

        try:
            with anyio.fail_after(PATIENCE):
                answer = await self._client.send(request, stream=True)
                await answer.aclose()
        except TimeoutError:
            raise UpstreamUnavailableError(self._name, f"no answer within {PATIENCE:g} s") from None
        except httpx2.HTTPError as fault:
            raise UpstreamUnavailableError(self._name, f"it cannot be reached ({_why(fault)})") from None
        return answer.headers.get("www-authenticate", "") if answer.status_code == 401 else ""

    async def form(self, url: str, form: Mapping[str, str], client: Mapping[str, Any]) -> httpx2.Response:
        """Post a form as a registered client (RFC 6749, section 2.3.1)."""
        import httpx2

        data, headers = dict(form), {"Accept": "application/json"}
        identity, secret = str(client.get("client_id", "")), client.get("client_secret")
        method = client.get("token_endpoint_auth_method")
        if secret and method == "client_secret_basic":
            pair = f"{quote(identity, safe='')}:{quote(str(secret), safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            data["client_id"] = identity
            if secret and method == "client_secret_post":
                data["client_secret"] = str(secret)
        try:
            request = httpx2.Request("POST", url, data=data, headers=headers)
        except httpx2.InvalidURL:
            raise self.fault("its authorization server names an endpoint that is no address") from None
        return await self.send(request)

    async def renewed(self, credential: Credential, now: float) -> Credential | None:
        """The credential with the tokens that its refresh token gets; `None` if that is refused for good."""
        form = {"grant_type": "refresh_token", "refresh_token": credential.refresh_token}
        if credential.resource:
            form["resource"] = credential.resource
        endpoint = credential.server.get("token_endpoint")
        if not isinstance(endpoint, str) or not credential.client:
            return None
        answer = await self.form(endpoint, form, credential.client)
        table = table_in(answer)
        if answer.status_code == 200 and "error" not in table:
            try:
                return credential.with_tokens(table, now)
            except ValueError as fault:
                raise self.fault(f"{in_log(urlsplit(endpoint).netloc)}: {fault} ({told(answer)})") from None
        if answer.status_code in (200, 400, 401) and str(table.get("error")) in _ENDED:
            return None
        raise self.fault(
            f"{in_log(urlsplit(endpoint).netloc)} did not renew the token: {told(answer)}; {_AGAIN}"
        )

    async def revoke(self, credential: Credential) -> bool:
        """Have the tokens revoked (RFC 7009); `False` if the authorization server does not offer that."""
        endpoint = credential.server.get("revocation_endpoint")
        token = credential.refresh_token or credential.header.partition(" ")[2]
        if not isinstance(endpoint, str) or not token:
            return False
        answer = await self.form(endpoint, {"token": token}, credential.client)
        if answer.status_code != 200:
            raise self.fault(f"{in_log(urlsplit(endpoint).netloc)}: {told(answer)}")
        return True

    def fault(self, reason: str) -> UpstreamUnavailableError:
        """The error that no credentials could be got."""
        return UpstreamUnavailableError(self._name, f"no credentials for it: {reason}", sent=False)


def table_in(answer: httpx2.Response) -> Mapping[str, Any]:
    """The members of an answer, a JSON object or a form (as GitHub's); empty if it is neither."""
    if answer.headers.get("content-type", "").startswith(_FORM):
        return dict(parse_qsl(answer.content.decode("ascii", "replace")))
    try:
        found: object = json.loads(answer.content)
    # Also what is nested too deeply.
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def told(answer: httpx2.Response) -> str:
    """How an authorization server refuses: the status, and the name of its error (RFC 6749, section 5.2)."""
    error = table_in(answer).get("error")
    named = isinstance(error, str) and _ERROR.fullmatch(error) is not None
    return f"HTTP {answer.status_code}{f' {error}' if named else ''}"


def _why(fault: httpx2.HTTPError) -> str:
    """Why there is no answer; texts of a library about what was sent or received may quote it."""
    import httpx2

    name = type(fault).__name__
    return in_log(f"{name}: {fault}") if isinstance(fault, httpx2.ConnectError) else name


def _silence(record: logging.LogRecord) -> bool:
    return not _unlogged.get()


@contextmanager
def unlogged() -> Generator[None]:
    """Keep records of libraries that quote answers of authorization servers out of logs, for a block."""
    for name in _QUOTING:
        # A filter that is there already is not added again.
        logging.getLogger(name).addFilter(_silence)
    token = _unlogged.set(True)
    try:
        yield
    finally:
        _unlogged.reset(token)
