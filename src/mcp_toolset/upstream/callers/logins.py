"""`CallerLogins`: each caller reaches a mounted server with tokens of its own, which it gets by logging in.

A login goes on in a task: `Login` is its page, which waits for a browser. The ticket in the address of that
page and the `state` of the authorization request are random, used once, and end with the login.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio

from mcp_toolset.catalog.snapshot import CatalogSnapshot, take_snapshot
from mcp_toolset.config.server_auth import OAuth
from mcp_toolset.context.logins import CALLBACK_PATH, LOGIN_PATH
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import CallError, LoginRequiredError, UpstreamError
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.identity import Identity
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.upstream.credentials.login import Challenge
from mcp_toolset.upstream.credentials.token_source import StoredTokens, store_of
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


class CallerTokens:
    """The tokens of one caller; a `TokenSource`.

    Attributes:
        needed: Whether the caller has to log in.
    """

    def __init__(self, source: StoredTokens) -> None:
        """Give out what `source` keeps for the caller."""
        self._source = source
        self.needed = False

    async def header(self, caller: Identity | None) -> str | None:
        """See `TokenSource`."""
        return await self._source.header(caller)

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        """See `TokenSource`."""
        try:
            return await self._source.challenged(status, challenge, used, caller)
        except LoginRequiredError:
            self.needed = True
            raise

    async def accepted(self, used: str | None) -> None:
        """See `TokenSource`."""
        await self._source.accepted(used)

    async def withdrawn(self) -> None:
        """See `TokenSource`."""
        await self._source.withdrawn()

    async def changed(self) -> None:
        """See `TokenSource`."""
        await self._source.changed()
        self.needed = False

    @property
    def secrets(self) -> tuple[str, ...]:
        """See `TokenSource`."""
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
        """See `LoginPage`."""
        self._address, self.state = url, parse_qs(urlsplit(url).query).get("state", [""])[0]
        self.ready.set()
        await self._arrived.wait()
        return self._back

    def begin(self, browser: str) -> str | None:
        """See `PendingLogin`."""
        if self.browser not in ("", browser) or not self._address:
            return None
        self.browser = browser
        return self._address

    async def arrive(self, address: str) -> bool:
        """See `PendingLogin`."""
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
        self._pending: dict[str, Login] = {}
        self.on_login: Callable[[str], None] = lambda key: None
        definition: dict[str, Any] = {
            "name": LOG_IN,
            "description": "Logs you in to this server. Its other tools are listed once you are logged in.",
            "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
            "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
        }
        self.offer: CatalogSnapshot = take_snapshot([definition])

    def key(self, context: ToolContext) -> str:
        """A digest of the caller."""
        return "" if context.identity is None else _digest(context.identity)

    def link(self, link: Link, context: ToolContext) -> Link:
        """The link with the tokens of a caller; without one, with those of `mcp-toolset login`."""
        user = "" if context.identity is None else context.identity.key
        tokens = self._tokens(link, self._auth, user)
        hidden = (*link.hidden, *self._auth.secrets)
        return replace(link, hidden=hidden, credentials=CallerTokens(tokens) if user else tokens)

    def _tokens(self, link: Link, auth: OAuth, user: str) -> StoredTokens:
        how = f"call the tool {LOG_IN}" if user else f"mcp-toolset login {link.name}"
        return StoredTokens(link.name, link.url, auth, self._store, how=how, user=user)

    def find(self, ticket: str) -> Login | None:
        """The pending login of a ticket, or of a `state`."""
        for login in self._pending.values():
            if secrets.compare_digest(ticket.encode(), login.ticket.encode()) or (
                login.state and secrets.compare_digest(ticket.encode(), login.state.encode())
            ):
                return login
        return None

    async def log_in(self, link: Link, context: ToolContext, start: Callable[..., Any]) -> None:
        """Have the caller log in.

        Raises:
            InputRequired: a modern client is to open a page, and to repeat its call.
            CallError: the caller has not logged in; the message says how.
        """
        login = await self._begun(link, context, start)
        told = f"Log in to {link.name}. The page asks whether you are {in_log(login.caller)}."
        by_hand = f"{link.name}: you have to log in first: open {login.url} in a browser, then call again"
        if not isinstance(context, WireContext) or not context.opens_pages:
            raise CallError(by_hand)
        answer = await context.open_page(told, login.url, name=f"log in to {link.name}")
        if not answer.accepted:
            raise CallError(f"{link.name}: the login was declined, so nothing was called")
        with anyio.move_on_after(WAIT):
            await login.done.wait()
        if login.fault or not login.done.is_set():
            raise CallError(login.fault or by_hand)

    async def _begun(self, link: Link, context: ToolContext, start: Callable[..., Any]) -> Login:
        caller = context.identity
        origin = context.origin if isinstance(context, WireContext) else None
        address = self._auth.callback or (None if origin is None else origin + CALLBACK_PATH)
        if caller is None or address is None:
            raise CallError(f"{link.name}: a caller logs in over HTTP, where this server has a page for it")
        login = self._pending.get(caller.key)
        if login is None:
            if len(self._pending) >= MAX_LOGINS:
                raise CallError(f"{link.name}: too many logins are pending; call again later")
            login = self._pending[caller.key] = Login(link.name, caller.name, caller.key, address)
            start(self._run, login, link, caller)
        with anyio.move_on_after(_BEGIN):
            await login.ready.wait()
        if login.fault or not login.ready.is_set():
            raise CallError(login.fault or f"{link.name}: no login page was given in time; call again later")
        return login

    async def _run(self, login: Login, link: Link, caller: Identity) -> None:
        tokens = self._tokens(link, replace(self._auth, page=login), caller.key)
        try:
            with anyio.fail_after(LOGIN_TIME):
                await tokens.login(Challenge())
            self.on_login(_digest(caller))
        except UpstreamError as fault:
            login.fault = link.scrubbed(str(fault))
        except TimeoutError:
            login.fault = f"{link.name}: the login was not completed within {LOGIN_TIME:g} s; call again"
        finally:
            del self._pending[caller.key]
            login.ready.set()
            login.done.set()


def _digest(caller: Identity) -> str:
    return hashlib.sha256(caller.key.encode()).hexdigest()
