"""`TokenSource`: gives the `Authorization` header of each request to one mounted server.

`StoredTokens` keeps tokens in a `CredentialStore`, where `mcp-toolset login` puts them, and renews them. A
refresh token is used once: the lock of the credential is held from before the request until its answer is
stored, and the credential is read again first, as another process may have renewed it.

After a login that was granted and whose token is refused in its turn there is no other: the source says
`needs login` until other tokens are stored. Only scopes that were not asked for yet are asked for, once. All
processes know it by the store (`Credential.unproven`), until the server takes the token (`accepted`).

`AuthorizationHttp` sends the requests to authorization servers, each with a deadline.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import parse_qsl, quote, urlsplit
from urllib.request import getproxies

import anyio

from mcp_toolset._records import dataclass, replace
from mcp_toolset.concurrency.tasks import in_worker
from mcp_toolset.errors import NEEDS_LOGIN, LoginRequiredError, SecretError, UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.server_auth import (
    EnterpriseLogin,
    OAuth,
    ServerAuth,
    TokenExchange,
)
from mcp_toolset.security.credential_store import CredentialKey, CredentialStore, MemoryCredentialStore
from mcp_toolset.security.egress import Refusal
from mcp_toolset.security.vault import FOLDER_VARIABLE, Vault
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import mapping_of
from mcp_toolset.transports.carrier import TokenSource

if TYPE_CHECKING:
    import httpx2


EARLY: Final = 30.0
"""Seconds before it expires that a token is renewed, so that it does not expire on its way."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential that an authorization server has issued; `repr` shows no secret.

    Attributes:
        header: The value of `Authorization`; empty for a credential that has been refused.
        refresh_token: Gets the next token; empty if there is none.
        scopes: The granted scopes.
        asked: The scopes that the last login has asked for.
        unproven: The number of logins after refusals since the server last accepted a token.
        expires_at: When the token expires, in seconds since the epoch; `None` if nothing was said.
        renew_at: When it is renewed.
        resource: Its audience (RFC 8707); empty if the authorization server was not told.
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
        """The client alone, once the authorization server does not renew the tokens any more."""
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


TIMEOUT: Final = 20.0
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
"""The form of errors of OAuth. Other text of a token endpoint is not shown: a secret may be in it."""

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
        timeout=TIMEOUT,
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
            with unlogged(), anyio.fail_after(TIMEOUT):
                if getproxies():
                    await self._check(str(url))
                answer = await self._client.send(request, stream=True)
                try:
                    body = await self._whole(answer)
                finally:
                    await answer.aclose()
        except TimeoutError:
            raise self.fault(f"{in_log(url.host)} gave no answer within {TIMEOUT:g} s; {_AGAIN}") from None
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
            with anyio.fail_after(TIMEOUT):
                answer = await self._client.send(request, stream=True)
                await answer.aclose()
        except TimeoutError:
            raise UpstreamUnavailableError(self._name, f"no answer within {TIMEOUT:g} s") from None
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
        """Revoke the tokens (RFC 7009); `False` if the authorization server does not offer that."""
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
    """The refusal of an authorization server: the status and the error's name (RFC 6749, section 5.2)."""
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


UNATTENDED: Final = 60.0
"""Seconds in which tokens must be got without a login of a person."""

_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class Challenge:
    """The answer by which a server has asked for credentials, or for more scopes."""

    status: int = 401  # 401 or 403
    header: str = ""  # the value of `WWW-Authenticate`
    scopes: tuple[str, ...] = ()  # scopes to ask for besides

    def member(self, name: str) -> str:
        found = re.search(rf'(?<![\w-]){name}=(?:"([^"]*)"|([^\s,]+))', self.header)
        return "" if found is None else found[1] or found[2] or ""

    @property
    def wanted(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.scopes, *self.member("scope").split())))

    def written(self) -> str:
        """The challenge with all scopes that are to be asked for."""
        told = {name: self.member(name) for name in ("error", "resource_metadata")}
        members = told | {"scope": " ".join(self.wanted)}
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in members.items() if value)


_FLOWS: Final = "mcp_toolset.extensions.upstream_access.sdk_flows"


async def obtained(
    http: AuthorizationHttp,
    url: str,
    auth: ServerAuth,
    challenge: Challenge,
    before: Credential,
    clock: Callable[[], float],
) -> Credential:
    """New tokens for the server at `url`."""
    # The SDK's OAuth takes a second to import, and most processes never log in. Others go on meanwhile.
    await in_worker(partial(import_module, _FLOWS))
    from mcp_toolset.extensions.upstream_access.sdk_flows import Granted, OAuthFlowError, granted

    async def id_jag(issuer: str, resource: str) -> str:
        assert isinstance(auth, EnterpriseLogin), "an assertion is for this login alone"
        return await _id_jag(http, auth, issuer, resource)

    # The scopes of before stay in a step-up.
    known = {"access_token": before.token, "scope": " ".join(before.scopes)}
    tokens = known if before.header else dict[str, Any]()
    page = auth.page if isinstance(auth, OAuth) else None
    try:
        # A person takes the time that a person needs.
        with unlogged(), anyio.fail_after(UNATTENDED if page is None else None):
            found = await granted(
                url,
                auth,
                Granted(tokens, before.client),
                (challenge.status, challenge.written()),
                http.answered,
                page,
                http.check_page,
                id_jag,
            )
    except TimeoutError:
        raise http.fault(f"no token within {UNATTENDED:g} s; call again later") from None
    except OAuthFlowError as fault:
        raise http.fault(in_log(str(fault)[:_LONGEST])) from None
    renewable = Credential(resource=found.resource, client=found.client, server=found.server)
    try:
        return renewable.with_tokens(found.tokens, clock())
    except ValueError as fault:
        raise http.fault(str(fault)) from None


async def _id_jag(http: AuthorizationHttp, auth: EnterpriseLogin, issuer: str, resource: str) -> str:
    """The assertion of the company's identity provider about its user (RFC 8693)."""
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": _ID_JAG,
        "audience": issuer,
        "resource": resource,
        "subject_token": auth.id_token if isinstance(auth.id_token, str) else await auth.id_token(),
        "subject_token_type": _ID_TOKEN,
    }
    answer = await http.form(auth.idp_token_endpoint, form, {"client_id": auth.idp_client_id})
    assertion = table_in(answer).get("access_token")
    if answer.status_code != 200 or not isinstance(assertion, str):
        raise http.fault(f"the identity provider gives no assertion: {told(answer)}; renew `id_token`")
    return assertion


LOOK: Final = 2.0
"""Seconds between two looks whether a login has stored other tokens, or a logout has removed them."""

PAUSE: Final = 60.0
"""Seconds until tokens that need no person are got again, if those got for a refusal are refused as well."""

REMEMBERED: Final = 30
"""Secrets of earlier tokens that are still not shown: a server may repeat what it has refused."""

_log = logging.getLogger("mcp_toolset.upstream")


class StoredTokens:
    """The tokens that all callers of one server share."""

    def __init__(
        self,
        name: str,
        url: str,
        auth: ServerAuth,
        store: CredentialStore,
        *,
        how: str,
        user: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Know nothing yet."""
        self.key = CredentialKey(url, auth.issuer or "", user)
        self._name = name
        self._auth = auth
        self._store = store
        self._how = how
        self._now = clock
        self._held: Credential | None = None
        self._secrets = tuple[str, ...]()
        self._renewed_at = self._granted_at = float("-inf")
        self._lock = anyio.Lock()

    async def header(self, caller: Identity | None) -> str | None:
        held = self._held
        if held is None or held.is_due(self._now()):
            async with self._alone():
                held = self._held
                if held is None or held.is_due(self._now()):
                    held = self._held = await self._usable()
        return None if held is None else held.header

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        met = Challenge(status, challenge)
        steps_up = status == 403 and met.member("error") == "insufficient_scope"
        if status != 401 and not steps_up:
            return False
        wanted = {*met.wanted} if steps_up else set[str]()
        async with self._alone():
            if self._held is not None and self._held.header != used:
                return True
            kept = await self._kept()
            is_granted = kept is not None and wanted <= {*kept.scopes}
            if kept is not None and is_granted and self._is_another(kept, used):
                self._held = kept
                return True
            if wanted and kept is not None and is_granted:
                if kept.unproven:
                    raise self._refused(met)
                # The scopes are there already, so it is the user who may not.
                return False
            self._held = None
            if not steps_up and kept is not None and self._is_renewed(kept):
                self._renewed_at = self._now()
                self._held = await self._renewed(kept)
            if self._held is None:
                self._held = await self._granted(met, kept)
        return True

    def _is_another(self, kept: Credential, used: str | None) -> bool:
        """True if what is kept has not been refused yet."""
        return kept.header not in ("", used) and not kept.has_expired(self._now())

    def _is_renewed(self, kept: Credential) -> bool:
        return bool(kept.refresh_token) and self._now() >= self._renewed_at + PAUSE

    async def _granted(self, met: Challenge, kept: Credential | None) -> Credential:
        """New tokens as the answer to a refusal, which is given once."""
        if kept is not None and self._rests(met, kept):
            raise self._refused(met)
        self._granted_at = self._now()
        return await self._obtained(met, kept, 1 if kept is None else kept.unproven + 1)

    def _rests(self, met: Challenge, kept: Credential) -> bool:
        """True if a login was granted for the same already, and its token is refused."""
        auth, known = self._auth, kept.client.get("client_id")
        if not kept.unproven or (isinstance(auth, OAuth) and auth.client_id not in (None, known)):
            return False
        is_last = kept.unproven > 1 or {*met.wanted, *auth.scopes} <= {*kept.asked}
        if isinstance(auth, OAuth):
            return is_last
        return is_last and self._now() < self._granted_at + PAUSE and not kept.has_expired(self._now())

    def _refused(self, met: Challenge) -> UpstreamUnavailableError:
        said = " ".join(filter(None, (f"HTTP {met.status}", met.member("error"))))
        if not isinstance(self._auth, OAuth):
            why = f"it refuses the token that its authorization server has just given ({in_log(said)})"
            return UpstreamUnavailableError(self._name, why, sent=False)
        told = f"a login was granted, and the server refuses its token: {in_log(said)}"
        why = f"{NEEDS_LOGIN}{self._how} ({told})"
        return LoginRequiredError(self._name, why, for_more=met.status == 403)

    async def accepted(self, used: str | None) -> None:
        self._renewed_at = float("-inf")
        async with self._lock:
            if self._held is None or self._held.header != used or not self._held.unproven:
                return
            self._held = replace(self._held, unproven=0)
            try:
                async with self._store.locked(self.key):
                    kept = await self._kept()
                    if kept is not None and kept.header == used:
                        await self._store.save(self.key, replace(kept, unproven=0).record())
            # The request has succeeded; a store that fails is told to the one that needs it.
            except SecretError as fault:
                _log.debug("%s: %s", self._name, in_log(fault))

    async def changed(self) -> None:
        before = await self._seen()
        # The store may be changed by another process, which sets no event here.
        while (await self._seen()) in ("", before):  # noqa: ASYNC110
            await anyio.sleep(LOOK)

    async def withdrawn(self) -> None:
        # A logout is the work of another process, which sets no event here.
        while not await self.are_withdrawn():  # noqa: ASYNC110
            await anyio.sleep(LOOK)

    async def are_withdrawn(self) -> bool:
        """True if the tokens in use are not kept any more; those of another login are taken up."""
        async with self._lock:
            held = self._held
            try:
                kept = held if held is None else await self._kept()
            except SecretError as fault:
                _log.debug("%s: %s", self._name, in_log(fault))
                return False
            if held is not None and (kept is None or kept.header not in ("", held.header)):
                self._held = kept
                return kept is None
            return False

    async def _seen(self) -> str:
        """The header in the store; empty if there is none, or the store cannot be read."""
        try:
            kept = await self._kept()
        # A store that fails is told to the call that needs it.
        except SecretError as fault:
            _log.debug("%s: %s", self._name, in_log(fault))
            return ""
        return "" if kept is None else kept.header

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._secrets

    async def login(self, challenge: Challenge) -> Credential:
        async with self._alone():
            self._held = await self._obtained(challenge, await self._kept())
            return self._held

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """One task at a time gets credentials; a store that fails is why there are none."""
        async with self._lock:
            try:
                yield
            except SecretError as fault:
                why = f"no credentials for it: {fault}"
                raise UpstreamUnavailableError(self._name, why, sent=False) from None

    async def _kept(self) -> Credential | None:
        record = await self._store.load(self.key)
        return None if record is None else self._noted(Credential.kept(record))

    def _noted(self, credential: Credential) -> Credential:
        """The credential, whose secrets are not shown from now on."""
        found = credential.secrets
        self._secrets = (*found, *(secret for secret in self._secrets if secret not in found))[:REMEMBERED]
        return credential

    async def _usable(self) -> Credential | None:
        """The stored credential, renewed if it is time to; `None` if there is none to try with."""
        kept = await self._kept()
        if kept is None or not kept.header:
            return None
        if not kept.is_due(self._now()):
            return kept
        if kept.refresh_token:
            try:
                return await self._renewed(kept)
            except UpstreamUnavailableError as fault:
                if kept.has_expired(self._now()):
                    raise
                _log.warning("%s", in_log(fault))
        return None if kept.has_expired(self._now()) else kept

    async def _renewed(self, stale: Credential) -> Credential | None:
        """The credential with new tokens; `None` if its refresh token is refused for good."""
        async with self._store.locked(self.key):
            kept = await self._kept()
            if kept is None or not kept.refresh_token:
                return None
            if kept.header != stale.header and not kept.has_expired(self._now()):
                return kept
            # A token that was issued must not be lost: the one that it replaces is void.
            with anyio.CancelScope(shield=True):
                return await self._exchanged(kept)

    async def _exchanged(self, kept: Credential) -> Credential | None:
        async with authorization_http(self._name, self.key.upstream, self._auth) as http:
            renewed = await http.renewed(kept, self._now())
        if renewed is None:
            _log.info("%s: the authorization server refuses the refresh token", self._name)
        await self._store.save(self.key, self._noted(renewed or kept.without_tokens()).record())
        return renewed

    async def _obtained(self, challenge: Challenge, kept: Credential | None, unproven: int = 0) -> Credential:
        auth = self._auth
        if isinstance(auth, OAuth) and auth.page is None:
            known = () if kept is None else kept.scopes
            more = [] if challenge.status == 401 else challenge.member("scope").split()
            options = "".join(f" --scope {in_log(scope)}" for scope in more if scope not in known)
            why = f"{NEEDS_LOGIN}{self._how}{options}"
            scopes = dict.fromkeys((*known, *more))
            raise LoginRequiredError(self._name, why, for_more=challenge.status == 403, scopes=scopes)
        challenge = replace(challenge, scopes=(*challenge.scopes, *auth.scopes))
        async with authorization_http(self._name, self.key.upstream, self._auth) as http:
            found = await obtained(http, self.key.upstream, auth, challenge, kept or Credential(), self._now)
        before = () if kept is None or challenge.status == 401 else kept.asked
        found = replace(found, asked=(*before, *challenge.wanted), unproven=unproven)
        async with self._store.locked(self.key):
            await self._store.save(self.key, self._noted(found).record())
        return found


def token_source(name: str, url: str, auth: ServerAuth, how: str) -> TokenSource:
    return StoredTokens(name, url, auth, store_of(auth), how=how)


def store_of(auth: ServerAuth) -> CredentialStore:
    """The store of the tokens of a server: those that need no login are in memory only."""
    if not isinstance(auth, OAuth):
        return MemoryCredentialStore()
    return auth.store or _vault(os.environ.get(FOLDER_VARIABLE, "")).credentials


@cache
def _vault(folder: str) -> Vault:
    """The store of the user: one for all servers, so that the keyring is asked once."""
    return Vault({**os.environ, FOLDER_VARIABLE: folder})
