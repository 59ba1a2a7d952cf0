"""`loopback_page`: the page on this machine to which a login returns (RFC 8252, section 7.3).

A listener on a free port of 127.0.0.1 waits for the browser that comes back from the authorization server. It
keeps that browser waiting until the tokens are there, and then shows one sentence.
"""

from __future__ import annotations

import html
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc

__all__ = ["LoopbackPage", "PastedPage", "loopback_page", "port_for"]

PATH: Final = "/callback"
LONGEST: Final = 16_384
"""Bytes of the head of a request."""

PATIENCE: Final = 10.0
"""Seconds in which a browser must send its request, and take the last page."""

_HOST: Final = "127.0.0.1"
_END: Final = b"\r\n\r\n"


def redirect_uri(port: int) -> str:
    """Where an authorization server sends the browser."""
    return f"http://{_HOST}:{port}{PATH}"


def port_for(wanted: int, before: int) -> int:
    """The port to listen on: the wanted one, else the one of before if it is free, else a free one."""
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
        """Have the person open `url`; returns the address that the browser came back to."""
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
            with anyio.move_on_after(PATIENCE):
                await self._left.wait()

    async def answer(self, stream: anyio.abc.ByteStream) -> None:
        """Take one connection; a request with another state is not the browser that is waited for."""
        # What a stranger sends, or when it leaves, is no matter for the login.
        with suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError):
            async with stream:
                target = await _target_of(stream)
                # `urlsplit` raises where a stranger sends what is no URL.
                path, _, query = target.partition("?")
                said = parse_qs(query).get("state", [""])[0]
                ours = self._state and secrets.compare_digest(said.encode(), self._state.encode())
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
        """Ask by `ask`, which shows the address of the page and returns what was pasted."""
        self.redirect_uri = redirect_uri(port)
        self._ask = ask

    async def visit(self, url: str) -> str:
        """Have the person open `url`; returns the address that they paste, or one for the pasted code."""
        pasted = (await self._ask(url)).strip()
        if "?" in pasted:
            return pasted
        state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        return f"{self.redirect_uri}?code={pasted}&state={state}"


async def _target_of(stream: anyio.abc.ByteStream) -> str:
    """The target of the request; empty if it is none."""
    head = b""
    with anyio.move_on_after(PATIENCE):
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
