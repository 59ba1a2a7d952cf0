"""`LoginPages`: where the browser of a caller begins a login at a mounted server, and comes back from it.

A person who opens the address of a login logs in for the caller who has asked for it. So the first page says
who that is, and waits for a click; the browser that clicked must be the one that comes back. Where the
application knows the user of a browser (`scope["user"]`), that user must be the caller.
"""

from __future__ import annotations

import hmac
import html
import secrets
from collections.abc import Callable
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.types import Scope, Send

from mcp_toolset.context.principal import CALLBACK_PATH, LOGIN_PATH, PendingLogin, principal_of

Headers = list[tuple[bytes, bytes]]
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
        """Serve the logins that `find` knows."""
        self._find = find

    @staticmethod
    def takes(path: str) -> bool:
        return path == CALLBACK_PATH or path.startswith(LOGIN_PATH)

    async def answer(self, path: str, scope: Scope, send: Send) -> None:
        if scope["method"] != "GET":
            return await _reply(send, 405, b"", [(b"allow", b"GET")])
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
        await _reply(send, 303, b"", [(b"location", there.encode("latin-1")), *_SAFE[1:3]])

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
    """Whether the application knows the user of the browser, as another one than the caller."""
    known = principal_of(scope)
    return known is not None and known != login.caller_key


def _proof(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()


def _cookie(scope: Scope) -> str:
    """The secret of the browser; empty if it has none."""
    sent: Headers = [pair for pair in scope["headers"] if pair[0] == b"cookie"]
    try:
        jar = SimpleCookie("; ".join(value.decode("latin-1") for _, value in sent))
    except CookieError:
        return ""
    return jar[_COOKIE].value if _COOKIE in jar else ""


async def _page(send: Send, status: int, text: str, cookie: str = "") -> None:
    said = f"{_COOKIE}={cookie}; Path=/oauth; HttpOnly; SameSite=Lax; Max-Age=900"
    more: Headers = [(b"set-cookie", said.encode())] if cookie else []
    await _reply(send, status, _PAGE.format(text).encode(), [*_SAFE, *more])


async def _reply(send: Send, status: int, body: bytes, headers: Headers) -> None:
    head = [(b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
