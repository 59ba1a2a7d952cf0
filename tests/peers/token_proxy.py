"""A proxy on loopback that adds a token to every request: `TOKEN=… token_proxy.py URL`.

For clients of others that send no token, such as the conformance suite.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import httpx2
from starlette.types import Receive, Scope, Send
from tests.support.served import hosted

_OF_THE_CONNECTION = {b"connection", b"keep-alive", b"transfer-encoding", b"content-length"}


class TokenProxy:
    """An ASGI application that passes requests on, with a token."""

    def __init__(self, client: httpx2.AsyncClient, token: str) -> None:
        self.client, self.token = client, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        given = [(name, value.strip()) for name, value in scope["headers"] if name not in _OF_THE_CONNECTION]
        headers = [*given, (b"authorization", f"Bearer {self.token}".encode())]
        path = scope["raw_path"].decode() + ("?" + scope["query_string"].decode()).rstrip("?")
        async with anyio.create_task_group() as group:
            group.start_soon(_end_with, receive, group.cancel_scope)
            async with self.client.stream(scope["method"], path, headers=headers, content=body) as answer:
                head = [
                    (name, value)
                    for name, value in answer.headers.raw
                    if name.lower() not in _OF_THE_CONNECTION
                ]
                await send({"type": "http.response.start", "status": answer.status_code, "headers": head})
                async for part in answer.aiter_raw():
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            group.cancel_scope.cancel()


async def _end_with(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


@asynccontextmanager
async def _client(url: str) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=url, timeout=None, follow_redirects=False) as client:
        yield client


async def main(url: str) -> None:
    async with _client(url) as client, hosted(TokenProxy(client, os.environ["TOKEN"])) as here:
        sys.stdout.write(f"proxy at {here}\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
