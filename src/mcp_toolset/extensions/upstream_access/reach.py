"""`Reach`: how a mounted server is reached for each caller: by a login, an exchanged token, or headers.

A login goes on in a task: `Login` is its page, which waits for a browser. The ticket in the address of that
page and the `state` of the authorization request are random, used once, and end with the login.

For an exchange (RFC 8693) the caller's token is sent to the token endpoint that the entry of the server
names, or the metadata of its issuer, and nowhere else. What comes back is kept in memory until it expires.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import shlex
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, Final, Protocol, cast
from urllib.parse import parse_qs, urlsplit

import anyio

from mcp_toolset import errors
from mcp_toolset._callbacks import Callbacks
from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.snapshot import CatalogSnapshot, take_snapshot
from mcp_toolset.concurrency.tasks import SingleFlight
from mcp_toolset.context.connection import CALLBACK_PATH, LOGIN_PATH, PendingLogin
from mcp_toolset.context.request import WireContext
from mcp_toolset.extensions.upstream_access import token_source
from mcp_toolset.extensions.upstream_access.server_auth import OAuth, TokenExchange
from mcp_toolset.protocol.json_rpc import URL_ELICITATION_REQUIRED
from mcp_toolset.security.egress import metadata_addresses
from mcp_toolset.tools.call import Identity, ToolContext
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.carrier import TokenSource
from mcp_toolset.upstream.target import Link

_BASIC: Final = "client_secret_basic"
_POST: Final = "client_secret_post"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A token endpoint, and how the client proves itself there."""

    url: str
    method: str


class ExchangeEndpoint:
    """The token endpoint for one mounted server; its metadata is asked for once, for all callers."""

    def __init__(self, auth: TokenExchange) -> None:
        self._auth = auth
        self._known: Endpoint | None = None
        self._flight: SingleFlight[str] = SingleFlight()
        if auth.token_url is not None:
            self._known = Endpoint(auth.token_url, auth.client_authentication or _BASIC)

    async def found(self, http: token_source.AuthorizationHttp) -> Endpoint:
        if self._known is None:
            self._known = await self._flight.run("", lambda: self._discovered(http))
        return self._known

    def forget(self) -> None:
        """Ask again, if the endpoint was found in metadata: it may have moved."""
        if self._auth.token_url is None:
            self._known = None

    async def _discovered(self, http: token_source.AuthorizationHttp) -> Endpoint:
        """The endpoint in the issuer's own metadata (RFC 8414, OpenID Connect Discovery)."""
        import httpx2

        issuer, others = self._auth.issuer or "", list[str]()
        for place in metadata_addresses(issuer):
            answer = await http.send(httpx2.Request("GET", place, headers={"accept": "application/json"}))
            table = token_source.table_in(answer) if answer.status_code == 200 else dict[str, Any]()
            named, url = table.get("issuer"), table.get("token_endpoint")
            if named == issuer and isinstance(url, str):
                return Endpoint(url, self._method(table.get("token_endpoint_auth_methods_supported")))
            others += [named] if isinstance(named, str) and named != issuer else []
        if others:
            raise http.fault(f"the metadata of {in_log(issuer)} name another issuer, {in_log(others[0])}")
        raise http.fault(f"{in_log(issuer)} publishes no metadata with a token endpoint; give `token_url`")

    def _method(self, listed: object) -> str:
        if self._auth.client_authentication is not None:
            return self._auth.client_authentication
        methods = cast("list[object]", listed) if isinstance(listed, list) else [_BASIC]
        return _POST if _POST in methods and _BASIC not in methods else _BASIC


ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"

UNSAID: Final = 300.0
"""Seconds after which a token is exchanged again whose lifetime the authorization server has not said."""


class ExchangedToken(TokenSource):
    """Gets the tokens for one server in exchange for one caller's token."""

    def __init__(
        self,
        name: str,
        url: str,
        auth: TokenExchange,
        caller: Identity,
        token: str,
        *,
        endpoint: ExchangeEndpoint | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Exchange nothing yet."""
        self._name = name
        self._url = url
        self._auth = auth
        self._caller = caller
        self._token = token
        self._endpoint = endpoint or ExchangeEndpoint(auth)
        self._now = clock
        self._held: token_source.Credential | None = None
        self._unproven = ""
        self._lock = anyio.Lock()

    async def header(self, caller: Identity | None) -> str | None:
        held = self._held
        if held is None or held.is_due(self._now()):
            async with self._lock:
                held = self._held
                if held is None or held.is_due(self._now()):
                    held = self._held = await self._exchanged()
        return held.header

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        async with self._lock:
            if status != 401 or (used is not None and used == self._unproven):
                return False
            if self._held is None or self._held.header == used:
                self._held = await self._exchanged()
                self._unproven = self._held.header
        return True

    async def accepted(self, used: str | None) -> None:
        self._unproven = ""

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._token, *(() if self._held is None else self._held.secrets))

    async def _exchanged(self) -> token_source.Credential:
        auth = self._auth
        form = {
            "grant_type": token_source.TOKEN_EXCHANGE,
            "subject_token": self._token,
            "subject_token_type": ACCESS_TOKEN,
            "requested_token_type": ACCESS_TOKEN,
            **({"audience": auth.audience} if auth.audience else {}),
            **({"resource": auth.resource or self._url} if auth.resource or not auth.audience else {}),
            **({"scope": " ".join(auth.scopes)} if auth.scopes else {}),
        }
        async with token_source.authorization_http(self._name, self._url, self._auth) as http:
            endpoint = await self._endpoint.found(http)
            client = {
                "client_id": auth.client_id,
                "client_secret": auth.client_secret,
                "token_endpoint_auth_method": endpoint.method,
            }
            try:
                answer = await http.form(endpoint.url, form, client)
            except errors.UpstreamUnavailableError:
                self._endpoint.forget()
                raise
        table, host = token_source.table_in(answer), in_log(urlsplit(endpoint.url).netloc)
        if answer.status_code != 200 or "error" in table:
            if "error" not in table:
                self._endpoint.forget()
            raise self._fault(f"{host} did not exchange the caller's token: {token_source.told(answer)}")
        try:
            found = token_source.Credential().with_tokens({"expires_in": UNSAID, **table}, self._now())
        except ValueError as fault:
            raise self._fault(f"{host}: {fault} ({token_source.told(answer)})") from None
        if _is_of_another(found.token, self._caller):
            raise self._fault(f"{host} answered with the token of another user")
        return found

    def _fault(self, reason: str) -> errors.UpstreamUnavailableError:
        return errors.UpstreamUnavailableError(self._name, f"no token for this caller: {reason}", sent=False)


def _is_of_another(token: str, caller: Identity) -> bool:
    """True if a token says that it is another user's; only a JWT of the caller's own issuer can say so."""
    claims = _claims(token)
    subject = claims.get("sub")
    if caller.subject is None or claims.get("iss") != caller.issuer or not isinstance(subject, str):
        return False
    return subject != caller.subject


def _claims(token: str) -> Mapping[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found: object = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    # Also what is nested too deeply.
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


LOG_IN: Final = "log_in"
"""The tool that a caller is listed who has to log in."""

LOGIN_TIME: Final = 600.0
"""Seconds in which a login has to be completed."""

MAX_LOGINS: Final = 1000
"""Logins to one server that may be pending at once."""

WAIT: Final = 120.0
"""Seconds that a call waits for the login of a caller who has agreed to open the page."""

_BEGIN: Final = 30.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that the server has refused for want of a login."""

    challenge: token_source.Challenge = field(
        default_factory=token_source.Challenge
    )  # what the login is to ask for
    used: str = field(default="", repr=False)  # the header of the request


@dataclass(frozen=True, slots=True)
class _Ended:
    """The last login of a caller: what it asked for, the header that it got, else why it has failed."""

    scopes: tuple[str, ...]
    given: str = field(repr=False)
    fault: str


class CallerTokens:
    """The tokens of one caller; a `TokenSource`."""

    def __init__(self, source: Callable[[], token_source.StoredTokens], user: str) -> None:
        """Give out what a `source` keeps for the caller."""
        self._made = source
        self._source = source()
        self.user = user  # the key of the caller
        self.needed = False  # whether the caller has to log in
        self.refused: Refused | None = None  # what the server has asked for a login with; `None` so far
        self._looked_at = float("-inf")
        self._gone = anyio.Event()
        self.accepted, self.withdrawn = self._source.accepted, self._gone.wait

    def anew(self) -> CallerTokens:
        """The tokens that are kept by now, for another connection."""
        return CallerTokens(self._made, self.user)

    async def header(self, caller: Identity | None) -> str | None:
        if anyio.current_time() >= self._looked_at + token_source.LOOK:
            self._looked_at = anyio.current_time()
            if await self._source.are_withdrawn():
                self._gone.set()
        return await self._source.header(caller)

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        try:
            return await self._source.challenged(status, challenge, used, caller)
        except errors.LoginRequiredError as fault:
            self.refused = Refused(token_source.Challenge(401, challenge, fault.scopes), used or "")
            self.needed = self.needed or not fault.for_more
            raise

    async def changed(self) -> None:
        await self._source.changed()
        self.needed = False

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._source.secrets


@dataclass(eq=False)
class Login(PendingLogin):
    """One login of one caller: its `LoginPage`, too."""

    server: str
    caller: str
    caller_key: str
    redirect_uri: str
    browser: str = ""
    ticket: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    state: str = field(default="", repr=False)
    fault: str = ""
    ready: anyio.Event = field(default_factory=anyio.Event)
    done: anyio.Event = field(default_factory=anyio.Event)
    _address: str = field(default="", repr=False)
    _back: str = field(default="", repr=False)
    _arrived: anyio.Event = field(default_factory=anyio.Event)

    @property
    def url(self) -> str:
        """The page that the caller is to open."""
        return self.redirect_uri.removesuffix(CALLBACK_PATH) + LOGIN_PATH + self.ticket

    async def visit(self, url: str) -> str:
        self._address, self.state = url, parse_qs(urlsplit(url).query).get("state", [""])[0]
        self.ready.set()
        await self._arrived.wait()
        return self._back

    def begin(self, browser: str) -> str | None:
        if self.browser not in ("", browser) or not self._address:
            return None
        self.browser = browser
        return self._address

    async def arrive(self, address: str) -> bool:
        if not self._arrived.is_set():
            self._back, self.state = address, ""
            self._arrived.set()
        with anyio.move_on_after(WAIT):
            await self.done.wait()
        return self.done.is_set() and not self.fault


class CallerLogins:
    """A `Reach` by login, with the pending logins at one server."""

    def __init__(self, auth: OAuth) -> None:
        """Use `auth` for the logins of callers."""
        self._auth = replace(auth, page=None)
        self._store = token_source.store_of(auth)
        self._pending: dict[tuple[str, frozenset[str]], Login] = {}
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self.on_login: Callable[[str], None] = lambda key: None
        self.login_ended = Callbacks()  # told the facts of each login that ends
        definition: dict[str, Any] = {
            "name": LOG_IN,
            "description": "Logs you in to this server. Its other tools are listed once you are logged in.",
            "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
            "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
        }
        self.offer: CatalogSnapshot = take_snapshot([definition])

    def key(self, context: ToolContext) -> str:
        who = context.identity
        return "" if who is None else hashlib.sha256(who.key.encode()).hexdigest()

    def link(self, link: Link, context: ToolContext) -> Link:
        user = "" if context.identity is None else context.identity.key
        tokens = partial(self._tokens, link, self._auth, user)
        hidden = (*link.hidden, *self._auth.secrets)
        return replace(link, hidden=hidden, credentials=CallerTokens(tokens, user) if user else tokens())

    def _tokens(self, link: Link, auth: OAuth, user: str) -> token_source.StoredTokens:
        how = self._command(link, user)
        return token_source.StoredTokens(link.name, link.url, auth, self._store, how=how, user=user)

    def _command(self, link: Link, user: str) -> str:
        return f"mcp-toolset login {link.name}" + (f" --as {shlex.quote(user)}" if user else "")

    def find(self, ticket: str) -> Login | None:
        for login in self._pending.values():
            if secrets.compare_digest(ticket.encode(), login.ticket.encode()) or (
                login.state and secrets.compare_digest(ticket.encode(), login.state.encode())
            ):
                return login
        return None

    async def log_in(
        self,
        link: Link,
        context: ToolContext,
        start: Callable[..., Any],
        refused: Refused | None,
        *,
        more: bool,
    ) -> None:
        refused = refused or Refused()
        scopes = f", for {in_log(' '.join(refused.challenge.scopes))}" if more else ""
        self._check_ended(link, context, refused, more=more)
        login = await self._begun(link, context, start, refused.challenge)
        told = f"Log in to {link.name}{scopes}. The page asks whether you are {in_log(login.caller)}."
        first = f"log in again{scopes}" if more else "log in first"
        by_hand = f"{link.name}: you have to {first}: open {login.url} in a browser, then call again"
        if not isinstance(context, WireContext) or not context.opens_pages:
            if isinstance(context, WireContext) and context.knows_pages and not context.modern:
                page = {"mode": "url", "message": told, "url": login.url}
                data = {"elicitations": [{**page, "elicitationId": secrets.token_hex(16)}]}
                raise errors.UpstreamProtocolError(link.name, URL_ELICITATION_REQUIRED, by_hand, data)
            raise errors.CallError(by_hand)
        answer = await context.open_page(told, login.url, name=_name(link))
        if not answer.accepted:
            raise errors.CallError(f"{link.name}: the login was declined, so the call did not run")
        with anyio.move_on_after(WAIT):
            await login.done.wait()
        if login.fault or not login.done.is_set():
            raise errors.CallError(login.fault or by_hand)

    def _check_ended(self, link: Link, context: ToolContext, refused: Refused, *, more: bool) -> None:
        """Ask no second time in one call."""
        caller = context.identity
        ended = None if caller is None else self._ended.get(caller.key)
        if caller is None or ended is None:
            return
        answered = isinstance(context, WireContext) and _name(link) in context.replay.answers
        if ended.fault and answered:
            del self._ended[caller.key]
            raise errors.CallError(ended.fault)
        if more and ended.given == refused.used and {*refused.challenge.scopes} <= {*ended.scopes}:
            del self._ended[caller.key]
            scopes = in_log(" ".join(refused.challenge.scopes))
            raise errors.CallError(
                f"{link.name}: it still refuses the call after a login for {scopes}: they were not granted, "
                "or your account may not do this"
            )

    async def _begun(
        self, link: Link, context: ToolContext, start: Callable[..., Any], challenge: token_source.Challenge
    ) -> Login:
        caller = context.identity
        origin = context.origin if isinstance(context, WireContext) else None
        address = self._auth.callback or (None if origin is None else origin + CALLBACK_PATH)
        if caller is None or address is None:
            by_hand = "" if caller is None else f", or by {self._command(link, caller.key)}"
            raise errors.CallError(
                f"{link.name}: a caller logs in over HTTP, where this server has a page for it{by_hand}"
            )
        key = (caller.key, frozenset(challenge.scopes))
        login = self._pending.get(key)
        if login is None:
            if len(self._pending) >= MAX_LOGINS:
                raise errors.CallError(f"{link.name}: too many logins are pending; call again later")
            login = self._pending[key] = Login(link.name, caller.name, caller.key, address)
            start(self._run, login, link, caller, challenge)
        with anyio.move_on_after(_BEGIN):
            await login.ready.wait()
        if login.fault or not login.ready.is_set():
            raise errors.CallError(
                login.fault or f"{link.name}: no login page was given in time; call again later"
            )
        return login

    async def _run(
        self, login: Login, link: Link, caller: Identity, challenge: token_source.Challenge
    ) -> None:
        tokens = self._tokens(link, replace(self._auth, page=login), caller.key)
        header = ""
        try:
            with anyio.fail_after(LOGIN_TIME):
                header = (await tokens.login(challenge)).header
            self.on_login(caller.key)
        except errors.UpstreamError as fault:
            login.fault = link.secrets.scrubbed(str(fault))
        except TimeoutError:
            login.fault = f"{link.name}: the login was not completed within {LOGIN_TIME:g} s; call again"
        finally:
            del self._pending[caller.key, frozenset(challenge.scopes)]
            self._ended[caller.key] = _Ended(challenge.scopes, header, login.fault)
            self.login_ended.tell(_facts(login, challenge))
            if len(self._ended) > MAX_LOGINS:
                self._ended.popitem(last=False)
            login.ready.set()
            login.done.set()


def _facts(login: Login, challenge: token_source.Challenge) -> dict[str, Any]:
    """Facts of a login that has ended, for the record."""
    outcome = "failed" if login.fault else "logged in"
    who = {"server": login.server, "key": login.caller_key}
    return {**who, "outcome": outcome, "reason": login.fault, "scopes": [*challenge.scopes]}


def _name(link: Link) -> str:
    """The key of the question for a login, among the questions of a call."""
    return f"log in to {link.name}"


class Reach(Protocol):
    """The key and the link of each caller at a mounted server.

    Callers with equal keys share one connection, and with it sessions, lists and tokens; no others do.
    """

    def key(self, context: ToolContext) -> str:
        """The key of a caller's connection; empty for the one without a caller."""
        ...

    def link(self, link: Link, context: ToolContext) -> Link:
        """The link to the server for a caller; without a caller, for a request that has none."""
        ...


_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_OWN: Final = frozenset(
    "accept accept-encoding authorization connection content-encoding content-length content-type cookie "
    "date expect host http2-settings keep-alive last-event-id proxy-authorization proxy-connection te "
    "trailer transfer-encoding upgrade".split()
)
"""Headers that the bridge and HTTP itself use."""

_CREDENTIALS: Final = frozenset(("authorization", "cookie", "proxy-authorization"))
_PASS_THROUGH: Final = (
    '; the Authorization of callers is passed through by `"auth": {"type": "forward"}` alone, see docs'
)

_FACTS: Final[Mapping[str, Callable[[Identity], str | None]]] = {
    "identity.name": lambda one: one.name,
    "identity.subject": lambda one: one.subject,
    "identity.client": lambda one: one.client,
    "identity.issuer": lambda one: one.issuer,
    "identity.roles": lambda one: _joined("role", one.roles),
    "identity.scopes": lambda one: _joined("scope", one.scopes),
}


@dataclass(frozen=True)
class HeaderMapping:
    """Headers that a mounted server is sent, by what is known of the caller of each request.

    A value is a fact of the caller's identity, such as `identity.name`, or `header.NAME`: a header that the
    client has sent. What a caller does not have is not sent.
    """

    headers: Mapping[str, str]  # the header of the server, by name, and where its value is from
    _sources: Mapping[str, str] = field(default_factory=dict[str, str], init=False)

    def __post_init__(self) -> None:
        sources = {name.lower(): source for name, source in self.headers.items()}
        if len(sources) < len(self.headers):
            raise errors.DefinitionError("`forward` names a header twice; remove one")
        for name, source in sources.items():
            _check(name, source)
        object.__setattr__(self, "_sources", sources)

    def key(self, context: ToolContext) -> str:
        """A digest of the values that are sent; see `Reach`."""
        values = self._values(context)
        return hashlib.sha256(json.dumps(sorted(values.items())).encode()).hexdigest() if values else ""

    def link(self, link: Link, context: ToolContext) -> Link:
        return replace(link, about_caller=self._values(context))

    def _values(self, context: ToolContext) -> dict[str, str]:
        found = {name: _value(source, context) for name, source in self._sources.items()}
        return {name: value for name, value in found.items() if value is not None}


def _check(name: str, source: str) -> None:
    place = f"`forward`: the header {name!r}"
    if not _NAME.fullmatch(name):
        raise errors.DefinitionError(f"{place} is no name of a header; correct it")
    if name in _OWN or name.startswith(("mcp-", "sec-")):
        more = _PASS_THROUGH if name == "authorization" else ""
        raise errors.DefinitionError(f"{place} is one of HTTP or of the protocol; use another name{more}")
    kind, _, read = source.partition(".")
    if kind == "header" and _NAME.fullmatch(read.lower()):
        if read.lower() in _CREDENTIALS:
            raise errors.DefinitionError(f"{place} would send a credential of the caller{_PASS_THROUGH}")
    elif source not in _FACTS:
        known = ", ".join([*_FACTS, "header.NAME"])
        raise errors.DefinitionError(f"{place} is from {source!r}, which is none of {known}")


def _value(source: str, context: ToolContext) -> str | None:
    """The value of a header for a caller."""
    fact = _FACTS.get(source)
    if fact is not None:
        value = None if context.identity is None else fact(context.identity)
    else:
        sent = context.sent(source.partition(".")[2].lower()) if isinstance(context, WireContext) else ()
        if len(sent) > 1:
            raise errors.CallError(
                f"the request has more than one header {source.partition('.')[2]}; send one"
            )
        value = sent[0] if sent else None
    # Spaces at the ends are lost on the way: two callers could become one.
    if value is not None and (not value.isascii() or not value.isprintable() or value != value.strip()):
        raise errors.CallError(
            f"the value of {source} of this caller cannot be sent in a header; nothing was sent"
        )
    return value or None


def _joined(kind: str, values: frozenset[str]) -> str:
    if any("," in value or " " in value for value in values):
        raise errors.CallError(f"a {kind} of this caller has a comma or a space in it; nothing was sent")
    return ",".join(sorted(values)) if kind == "role" else " ".join(sorted(values))


_NO_CALLER: Final = "it wants the token of a caller, and this request has none"


@dataclass(frozen=True)
class ExchangeReach:
    """A `Reach` by token exchange: each token has its own connection, as it may allow less than others."""

    auth: TokenExchange
    _endpoint: ExchangeEndpoint = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Share among all callers what is found out about the token endpoint."""
        object.__setattr__(self, "_endpoint", ExchangeEndpoint(self.auth))

    def key(self, context: ToolContext) -> str:
        """A digest of the caller and of the caller's token."""
        if context.identity is None:
            return ""
        sent = json.dumps([context.identity.key, _token(context)])
        return hashlib.sha256(sent.encode()).hexdigest()

    def link(self, link: Link, context: ToolContext) -> Link:
        """The link with the token of a caller."""
        caller, hidden = context.identity, (*link.hidden, *self.auth.secrets)
        if caller is None:
            return replace(link, hidden=hidden, credentials=NoToken(link.name))
        source = ExchangedToken(
            link.name, link.url, self.auth, caller, _token(context), endpoint=self._endpoint
        )
        return replace(link, hidden=hidden, credentials=source)


def _token(context: ToolContext) -> str:
    sent = context.sent("authorization") if isinstance(context, WireContext) else []
    scheme, _, token = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token:
        raise errors.CallError("the request has no bearer token that can be exchanged for one of the server")
    return token


@dataclass(frozen=True)
class NoToken(TokenSource):
    """The credentials of requests without a caller: there are none, and the server is not asked."""

    name: str

    async def header(self, caller: Identity | None) -> str | None:
        raise errors.UpstreamUnavailableError(self.name, _NO_CALLER, sent=False)

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        return False


@dataclass(frozen=True)
class _Both:
    """Two ways at once."""

    one: Reach
    other: Reach

    def key(self, context: ToolContext) -> str:
        keys = [self.one.key(context), self.other.key(context)]
        return json.dumps(keys) if any(keys) else ""

    def link(self, link: Link, context: ToolContext) -> Link:
        return self.other.link(self.one.link(link, context), context)


def logins_of(auth: object) -> CallerLogins | None:
    return CallerLogins(auth) if isinstance(auth, OAuth) and auth.per_user else None


def reach_of(
    link: Link, forward: Mapping[str, str] | None, auth: object, logins: CallerLogins | None
) -> Reach:
    """The `Reach` of callers at a server, by `forward`, by `auth` or by both."""
    own = ExchangeReach(auth) if isinstance(auth, TokenExchange) else logins
    mapping = _mapping(link, forward) if forward else None
    if not link.url:
        raise errors.DefinitionError(
            f"mount {link.name!r}: headers are sent over HTTP, not by {link.transport}"
        )
    if mapping is None:
        return cast("Reach", own)
    return _Both(mapping, own) if own is not None else mapping


def _mapping(link: Link, forward: Mapping[str, str]) -> HeaderMapping:
    given = {name.lower() for name in link.headers}
    if twice := [name for name in forward if name.lower() in given]:
        raise errors.DefinitionError(
            f"mount {link.name!r}: `headers` and `forward` both have {twice[0]}; remove one of them"
        )
    return HeaderMapping(forward)
