"""Pages beside MCP: `MonitoringPages` for probes, `LoginPages` for browsers.

A probe has no token, and gets the bare status. A caller who may call gets the details.
The first page of a login names the caller who has asked for it, and waits for a click, as anybody may open
its address. The browser that clicked must be the one that comes back. If the application knows the user of a
browser (`scope["user"]`), that user must be the caller.
"""

from __future__ import annotations

import hmac
import html
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

from pydantic_core import to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_toolset.context.connection import CALLBACK_PATH, LOGIN_PATH, PendingLogin, identity_of, principal_of
from mcp_toolset.extending.extension import HttpPage
from mcp_toolset.tools.call import Identity
from mcp_toolset.transports.http.messages import JSON, Head, Headers, reply

HEALTH_PATH: Final = "/health"
READY_PATH: Final = "/ready"

_FRESH: Final = [(b"cache-control", b"no-store")]
_READ: Final = [(b"allow", b"GET, HEAD")]


class Monitored(Protocol):
    """A server that says how it is doing."""

    def health(self, identity: Identity | None) -> dict[str, Any]: ...

    def is_ready(self) -> bool: ...

    def readiness(self, identity: Identity | None) -> dict[str, Any]: ...


class MonitoringPages:
    """An ASGI application for the pages; what is at other paths is asked of another one."""

    def __init__(self, monitor: Monitored, pages: Mapping[str, HttpPage], other: ASGIApp) -> None:
        self._monitor = monitor
        self._pages = {path: page for path, page in pages.items() if path not in (HEALTH_PATH, READY_PATH)}
        self.paths = frozenset((HEALTH_PATH, READY_PATH, *self._pages))
        self._open = self.paths - {path for path, page in self._pages.items() if not page.public}
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_in(scope)
        if scope["type"] != "http" or path not in self.paths:
            return await self._other(scope, receive, send)
        if (page := self._pages.get(path)) is not None:
            return await _show(page, scope, send)
        caller = identity_of(scope)
        told = self._monitor.health(caller) if path == HEALTH_PATH else self._monitor.readiness(caller)
        await _tell(scope, send, told)

    async def tell_anyone(self, scope: Scope, send: Send) -> None:
        path = path_in(scope)
        if (page := self._pages.get(path)) is not None:
            return await _show(page, scope, send)
        ready = path == HEALTH_PATH or self._monitor.is_ready()
        well = "ok" if path == HEALTH_PATH else "ready"
        await _tell(scope, send, {"status": well if ready else "unready"})

    def is_probe(self, path: str, head: Head) -> bool:
        """True if a request gets what everyone may know: it has no token, and no web page has sent it."""
        return path in self._open and b"authorization" not in head.fields and b"origin" not in head.fields


def path_in(scope: Scope) -> str:
    """The path of a request within the application, wherever that is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


async def _tell(scope: Scope, send: Send, told: dict[str, Any]) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        return await reply(send, 405, headers=_READ)
    await reply(send, 503 if told["status"] == "unready" else 200, to_json(told), JSON, _FRESH)


async def _show(page: HttpPage, scope: Scope, send: Send) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        return await reply(send, 405, headers=_READ)
    accepted = Head(scope["headers"]).fields.get(b"accept", b"").decode("latin-1")
    body, kind = page.answer(identity_of(scope), accepted)
    await reply(send, 200, body, kind.encode(), _FRESH)


Find = Callable[[str], PendingLogin | None]

_COOKIE: Final = "mcp_toolset_login"
_PAGE: Final = (
    """<!doctype html><html lang="en"><meta charset="utf-8"><title>Log in</title><body>{}</body></html>"""
)
_ASK: Final = (
    "<h1>Log in to {server}?</h1><p>The account that you log in with will be used by <b>{caller}</b> on this "
    "server.</p><p>If you are not {caller}, or somebody sent you this address, close this page.</p>"
    '<p><a href="?continue={proof}">I am {caller}: continue</a></p>'
)
_DONE: Final = "<h1>You are logged in to {server}</h1><p>You can close this page.</p>"
_FAILED: Final = "<h1>The login to {server} has failed</h1><p>Ask for it again where you began it.</p>"
_ENDED: Final = "<h1>This login has ended</h1><p>Ask for it again where you began it.</p>"
_OTHER: Final = "<h1>This login was begun by another user, or in another browser</h1>"
_SAFE: Final[Headers] = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]


class LoginPages:
    """An ASGI application for `/oauth/login/…` and `/oauth/callback`."""

    def __init__(self, find: Find) -> None:
        self._find = find

    @staticmethod
    def takes(path: str) -> bool:
        return path == CALLBACK_PATH or path.startswith(LOGIN_PATH)

    async def answer(self, path: str, scope: Scope, send: Send) -> None:
        if scope["method"] != "GET":
            return await reply(send, 405, headers=[(b"allow", b"GET")])
        query = scope.get("query_string", b"").decode("latin-1")
        said = {name: values[0] for name, values in parse_qs(query).items() if len(values) == 1}
        if path == CALLBACK_PATH:
            return await self._came_back(said.get("state", ""), query, scope, send)
        login = self._find(path.removeprefix(LOGIN_PATH))
        if login is None:
            return await _page(send, 404, _ENDED)
        if _is_another(scope, login):
            return await _page(send, 403, _OTHER)
        cookie = _cookie(scope)
        if "continue" not in said or not cookie:
            cookie = cookie or secrets.token_urlsafe(32)
            names = {"server": html.escape(login.server), "caller": html.escape(login.caller)}
            return await _page(send, 200, _ASK.format(**names, proof=_proof(cookie)), cookie)
        is_it = hmac.compare_digest(said["continue"].encode(errors="replace"), _proof(cookie).encode())
        there = login.begin(_proof(cookie)) if is_it else None
        if there is None:
            return await _page(send, 403, _OTHER)
        await reply(send, 303, headers=[(b"location", there.encode("latin-1")), *_SAFE[1:3]])

    async def _came_back(self, state: str, query: str, scope: Scope, send: Send) -> None:
        login = self._find(state) if state else None
        if login is None:
            return await _page(send, 404, _ENDED)
        cookie = _cookie(scope)
        is_same = bool(cookie and login.browser) and hmac.compare_digest(_proof(cookie), login.browser)
        if not is_same or _is_another(scope, login):
            return await _page(send, 403, _OTHER)
        is_done = await login.arrive(f"{CALLBACK_PATH}?{query}")
        told = _DONE if is_done else _FAILED
        await _page(send, 200 if is_done else 502, told.format(server=html.escape(login.server)))


def _is_another(scope: Scope, login: PendingLogin) -> bool:
    known = principal_of(scope)
    return known is not None and known != login.caller_key


def _proof(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()


def _cookie(scope: Scope) -> str:
    sent: Headers = [pair for pair in scope["headers"] if pair[0] == b"cookie"]
    try:
        jar = SimpleCookie("; ".join(value.decode("latin-1") for _, value in sent))
    except CookieError:
        return ""
    return jar[_COOKIE].value if _COOKIE in jar else ""


async def _page(send: Send, status: int, text: str, cookie: str = "") -> None:
    said = f"{_COOKIE}={cookie}; Path=/oauth; HttpOnly; SameSite=Lax; Max-Age=900"
    more: Headers = [(b"set-cookie", said.encode())] if cookie else []
    await reply(send, status, _PAGE.format(text).encode(), headers=[*_SAFE, *more])
