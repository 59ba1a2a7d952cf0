"""`CallerLogins`: the tokens with which each caller reaches a mounted server, after a login of the caller.

A login goes on in a task: `Login` is its page, which waits for a browser. The ticket in the address of that
page and the `state` of the authorization request are random, used once, and end with the login.
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.snapshot import CatalogSnapshot, take_snapshot
from mcp_toolset.context.connection import CALLBACK_PATH, LOGIN_PATH
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import CallError, LoginRequiredError, UpstreamError, UpstreamProtocolError
from mcp_toolset.extensions.upstream_access.credentials.token_source import (
    LOOK,
    Challenge,
    StoredTokens,
    store_of,
)
from mcp_toolset.extensions.upstream_access.server_auth import OAuth
from mcp_toolset.protocol.json_rpc import URL_ELICITATION_REQUIRED
from mcp_toolset.tools.call import Identity, ToolContext
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.upstream.target import Link

LOG_IN: Final = "log_in"
"""The tool that a caller is listed who has to log in."""

LOGIN_TIME: Final = 600.0
"""Seconds in which a login has to be completed."""

MAX_LOGINS: Final = 1000
"""Logins to one server that may be pending at once."""

WAIT: Final = 120.0
"""Seconds that a call waits for the login of a caller who has agreed to open the page."""

_BEGIN: Final = 30.0


Watcher = Callable[[dict[str, Any]], None]
"""Is told the facts of each login that has ended."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that the server has refused for want of a login."""

    challenge: Challenge = field(default_factory=Challenge)  # what the login is to ask for
    used: str = field(default="", repr=False)  # the header of the request


@dataclass(frozen=True, slots=True)
class _Ended:
    """The last login of a caller: what it asked for, the header that it got, else why it has failed."""

    scopes: tuple[str, ...]
    given: str = field(repr=False)
    fault: str


class CallerTokens:
    """The tokens of one caller; a `TokenSource`."""

    def __init__(self, source: Callable[[], StoredTokens], user: str) -> None:
        """Give out what a `source` keeps for the caller."""
        self._made = source
        self._source = source()
        self.user = user  # the key of the caller
        self.needed = False  # whether the caller has to log in
        self.refused: Refused | None = None  # what the server has asked for a login with; `None` so far
        self._looked_at = float("-inf")
        self._gone = anyio.Event()

    def anew(self) -> CallerTokens:
        """The tokens that are kept by now, for another connection."""
        return CallerTokens(self._made, self.user)

    async def header(self, caller: Identity | None) -> str | None:
        if anyio.current_time() >= self._looked_at + LOOK:
            self._looked_at = anyio.current_time()
            if await self._source.are_withdrawn():
                self._gone.set()
        return await self._source.header(caller)

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        try:
            return await self._source.challenged(status, challenge, used, caller)
        except LoginRequiredError as fault:
            self.refused = Refused(Challenge(401, challenge, fault.scopes), used or "")
            self.needed = self.needed or not fault.for_more
            raise

    async def accepted(self, used: str | None) -> None:
        await self._source.accepted(used)

    async def withdrawn(self) -> None:
        await self._gone.wait()

    async def changed(self) -> None:
        await self._source.changed()
        self.needed = False

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._source.secrets


@dataclass(eq=False)
class Login:
    """One login of one caller: its `LoginPage`, and the `PendingLogin` of the pages of this server."""

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
    """See `Reach`; the pending logins at one server."""

    def __init__(self, auth: OAuth) -> None:
        """Have callers log in as `auth` says."""
        self._auth = replace(auth, page=None)
        self._store = store_of(auth)
        self._pending: dict[tuple[str, frozenset[str]], Login] = {}
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self.on_login: Callable[[str], None] = lambda key: None
        self.watchers: dict[object, Watcher] = {}
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

    def _tokens(self, link: Link, auth: OAuth, user: str) -> StoredTokens:
        how = self._command(link, user)
        return StoredTokens(link.name, link.url, auth, self._store, how=how, user=user)

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
                raise UpstreamProtocolError(link.name, URL_ELICITATION_REQUIRED, by_hand, data)
            raise CallError(by_hand)
        answer = await context.open_page(told, login.url, name=_name(link))
        if not answer.accepted:
            raise CallError(f"{link.name}: the login was declined, so the call did not run")
        with anyio.move_on_after(WAIT):
            await login.done.wait()
        if login.fault or not login.done.is_set():
            raise CallError(login.fault or by_hand)

    def _check_ended(self, link: Link, context: ToolContext, refused: Refused, *, more: bool) -> None:
        """Ask no second time in one call."""
        caller = context.identity
        ended = None if caller is None else self._ended.get(caller.key)
        if caller is None or ended is None:
            return
        answered = isinstance(context, WireContext) and _name(link) in context.replay.answers
        if ended.fault and answered:
            del self._ended[caller.key]
            raise CallError(ended.fault)
        if more and ended.given == refused.used and {*refused.challenge.scopes} <= {*ended.scopes}:
            del self._ended[caller.key]
            scopes = in_log(" ".join(refused.challenge.scopes))
            raise CallError(
                f"{link.name}: it still refuses the call after a login for {scopes}: they were not granted, "
                "or your account may not do this"
            )

    async def _begun(
        self, link: Link, context: ToolContext, start: Callable[..., Any], challenge: Challenge
    ) -> Login:
        caller = context.identity
        origin = context.origin if isinstance(context, WireContext) else None
        address = self._auth.callback or (None if origin is None else origin + CALLBACK_PATH)
        if caller is None or address is None:
            by_hand = "" if caller is None else f", or by {self._command(link, caller.key)}"
            raise CallError(
                f"{link.name}: a caller logs in over HTTP, where this server has a page for it{by_hand}"
            )
        key = (caller.key, frozenset(challenge.scopes))
        login = self._pending.get(key)
        if login is None:
            if len(self._pending) >= MAX_LOGINS:
                raise CallError(f"{link.name}: too many logins are pending; call again later")
            login = self._pending[key] = Login(link.name, caller.name, caller.key, address)
            start(self._run, login, link, caller, challenge)
        with anyio.move_on_after(_BEGIN):
            await login.ready.wait()
        if login.fault or not login.ready.is_set():
            raise CallError(login.fault or f"{link.name}: no login page was given in time; call again later")
        return login

    async def _run(self, login: Login, link: Link, caller: Identity, challenge: Challenge) -> None:
        tokens = self._tokens(link, replace(self._auth, page=login), caller.key)
        header = ""
        try:
            with anyio.fail_after(LOGIN_TIME):
                header = (await tokens.login(challenge)).header
            self.on_login(caller.key)
        except UpstreamError as fault:
            login.fault = link.scrubbed(str(fault))
        except TimeoutError:
            login.fault = f"{link.name}: the login was not completed within {LOGIN_TIME:g} s; call again"
        finally:
            del self._pending[caller.key, frozenset(challenge.scopes)]
            self._ended[caller.key] = _Ended(challenge.scopes, header, login.fault)
            for watcher in [*self.watchers.values()]:
                watcher(_facts(login, challenge))
            if len(self._ended) > MAX_LOGINS:
                self._ended.popitem(last=False)
            login.ready.set()
            login.done.set()


def _facts(login: Login, challenge: Challenge) -> dict[str, Any]:
    """What there is to record of a login that has ended."""
    outcome = "failed" if login.fault else "logged in"
    who = {"server": login.server, "key": login.caller_key}
    return {**who, "outcome": outcome, "reason": login.fault, "scopes": [*challenge.scopes]}


def _name(link: Link) -> str:
    """What tells the question for a login from others that a call asks."""
    return f"log in to {link.name}"
