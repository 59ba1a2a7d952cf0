"""`Account`: the login to one server, as the commands `login` and `logout` use it."""

from __future__ import annotations

import html
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.extensions.upstream_access.server_auth import LoginPage, OAuth
from mcp_toolset.extensions.upstream_access.token_source import (
    Challenge,
    Credential,
    StoredTokens,
    authorization_http,
    store_of,
)
from mcp_toolset.protocol.handshake import DISCOVER
from mcp_toolset.security.credential_store import CredentialKey

PATH: Final = "/callback"
LONGEST: Final = 16_384
"""Bytes of the head of a request."""

TIMEOUT: Final = 10.0
"""Seconds in which a browser must send its request, and take the last page."""

_HOST: Final = "127.0.0.1"
_END: Final = b"\r\n\r\n"


def redirect_uri(port: int) -> str:
    """The address to which an authorization server sends the browser."""
    return f"http://{_HOST}:{port}{PATH}"


def port_for(wanted: int, before: int) -> int:
    for port in (wanted,) if wanted else (before, 0):
        with suppress(OSError), socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((_HOST, port))
            return trial.getsockname()[1]
    return wanted


class LoopbackPage:
    """Brings a person to a page with `leave`, and takes the browser that comes back."""

    def __init__(self, port: int, leave: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self.redirect_uri = redirect_uri(port)
        self._leave = leave
        self._state = ""
        self._landed = ""
        self._back = anyio.Event()
        self._shown = anyio.Event()
        self._left = anyio.Event()
        self._text = ""

    async def visit(self, url: str) -> str:
        """Open `url` for the person; returns the address that the browser came back to."""
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        # Some commands that open a browser end with it.
        async with anyio.create_task_group() as group:
            group.start_soon(self._leave, url)
            await self._back.wait()
            group.cancel_scope.cancel()
        return self._landed

    async def show(self, text: str) -> None:
        """Tell the browser how it ended."""
        self._text = text
        self._shown.set()
        if self._landed:
            with anyio.move_on_after(TIMEOUT):
                await self._left.wait()

    async def answer(self, stream: anyio.abc.ByteStream) -> None:
        """Take one connection; a request with another state is not the browser that is waited for."""
        # What a stranger sends, or when it leaves, is no matter for the login.
        with suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError):
            async with stream:
                target = await _target_of(stream)
                # `urlsplit` raises where a stranger sends what is no URL.
                path, _, query = target.partition("?")
                state = parse_qs(query).get("state", [""])[0]
                ours = self._state and secrets.compare_digest(state.encode(), self._state.encode())
                if not ours or path != PATH or self._landed:
                    return await stream.send(_page("404 Not Found", "No login is waited for here."))
                self._landed = self.redirect_uri.removesuffix(PATH) + target
                self._back.set()
                await self._shown.wait()
                await stream.send(_page("200 OK", self._text))
                self._left.set()


@asynccontextmanager
async def loopback_page(
    port: int, leave: Callable[[str], Coroutine[Any, Any, None]]
) -> AsyncGenerator[LoopbackPage]:
    """Listen for the length of a block."""
    page = LoopbackPage(port, leave)
    listener = await anyio.create_tcp_listener(local_host=_HOST, local_port=port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, page.answer)
        try:
            yield page
        finally:
            group.cancel_scope.cancel()


class PastedPage:
    """Has the person paste the address that their browser came to, on whatever machine that is."""

    def __init__(self, port: int, ask: Callable[[str], Awaitable[str]]) -> None:
        self.redirect_uri = redirect_uri(port)
        self._ask = ask

    async def visit(self, url: str) -> str:
        """Ask the person to open `url`; returns the address that they paste, or one for the pasted code."""
        pasted = (await self._ask(url)).strip()
        if "?" in pasted:
            return pasted
        state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        return f"{self.redirect_uri}?code={pasted}&state={state}"


async def _target_of(stream: anyio.abc.ByteStream) -> str:
    """The target of the request; empty if it is none."""
    head = b""
    with anyio.move_on_after(TIMEOUT):
        while _END not in head and len(head) < LONGEST:
            head += await stream.receive(LONGEST)
    method, _, rest = head.partition(b" ")
    target = rest.partition(b" ")[0].decode("latin-1")
    return target if method == b"GET" and _END in head and target.startswith("/") else ""


def _page(status: str, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>mcp-toolset</title><p>{html.escape(text)}</p>".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


_ASKED: Final = {"accept": "application/json, text/event-stream"}


@dataclass(frozen=True)
class Account:
    """The login to one server.

    Attributes:
        url: Its address.
        auth: The way to get tokens.
        headers: Further headers of its requests.
        user: The key of the caller whose login it is; empty for the one that all callers share.
    """

    name: str
    url: str = field(repr=False)
    auth: OAuth = field(default_factory=OAuth)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    user: str = ""

    async def port(self) -> int:
        """The port to come back to: the one of the last login, which is registered, if it is free."""
        kept = await self._kept()
        return port_for(self.auth.redirect_port, 0 if kept is None else kept.redirect_port)

    async def login(self, page: LoginPage, scopes: Sequence[str]) -> Credential:
        """Log in, and keep the tokens."""
        source = self._source(replace(self.auth, page=page))
        kept = await self._kept()
        granted = kept.scopes if kept is not None and scopes else ()
        return await source.login(replace(await self._challenge(), scopes=(*granted, *scopes)))

    async def is_kept(self) -> bool:
        """True if there are tokens."""
        return await self._kept() is not None

    async def logout(self) -> str:
        """Remove the tokens; returns what has become of them."""
        store, key = store_of(self.auth), self._key()
        # A bridge may be renewing them, and would keep them once more.
        async with store.locked(key):
            kept = await self._kept()
            await store.remove(key)
        if kept is None:
            return "no tokens are kept"
        try:
            async with authorization_http(self.name, self.url, self.auth) as http:
                revoked = await http.revoke(kept)
        except UpstreamUnavailableError as fault:
            return f"logged out; the tokens were not revoked: {fault.reason}"
        return "logged out" if revoked else "logged out; its authorization server revokes no tokens"

    async def _challenge(self) -> Challenge:
        """The server's answer to a request without credentials."""
        import httpx2

        body = {"jsonrpc": "2.0", "id": 1, "method": DISCOVER}
        given = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        request = httpx2.Request("POST", self.url, json=body, headers={**given, **_ASKED})
        async with authorization_http(self.name, self.url, self.auth) as http:
            return Challenge(401, await http.challenge(request))

    async def _kept(self) -> Credential | None:
        record = await store_of(self.auth).load(self._key())
        return None if record is None else Credential.kept(record)

    async def users(self) -> list[str]:
        """The keys of the callers whose logins to this server are kept."""
        own = self._key()
        return [key.user for key in await store_of(self.auth).list() if key == replace(own, user=key.user)]

    def _key(self) -> CredentialKey:
        return self._source(self.auth).key

    def _source(self, auth: OAuth) -> StoredTokens:
        return StoredTokens(self.name, self.url, auth, store_of(auth), how="", user=self.user)


async def accounts() -> list[tuple[CredentialKey, Credential]]:
    """The credentials that are kept for the user, with what they are for."""
    store = store_of(OAuth())
    records = [(key, await store.load(key)) for key in await store.list()]
    return [(key, Credential.kept(record)) for key, record in records if record is not None]
