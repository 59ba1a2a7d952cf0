"""Servers on standard input and output that start at once, though the SDK takes a second to import.

One process has imported it, and serves each connection over TCP as a process of its own would be served;
`relay.py`, which is what is started, hands its standard input and output on to it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mcp.server.stdio import stdio_server

ROOT = Path(__file__).parents[2]
RELAY = [sys.executable, "-S", str(Path(__file__).with_name("relay.py"))]
Serve = Callable[[str, Any, Any], Awaitable[None]]
"""Serves one relay: the word that it was started with, and the two streams of a transport of the SDK."""


class Sink:
    """What the SDK's transport of standard output writes to, for a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    async def write(self, line: str) -> None:
        self.writer.write(line.encode())

    async def flush(self) -> None:
        await self.writer.drain()


async def _connected(serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    word = (await reader.readline()).decode().strip()
    files: Any = {"stdin": reader, "stdout": Sink(writer)}
    try:
        async with stdio_server(**files) as (read, write):
            await serve(word, read, write)
    except* ConnectionError:
        # The relay was killed.
        pass
    finally:
        writer.close()


async def listening(serve: Serve) -> asyncio.Server:
    """Serve relays; the caller tells them the port."""
    return await asyncio.start_server(partial(_connected, serve), "127.0.0.1", limit=1 << 24)


def port_of(server: asyncio.Server) -> int:
    return server.sockets[0].getsockname()[1]


def run(serve: Serve) -> None:
    """Be the process behind the relays; prints the port."""

    async def forever() -> None:
        server = await listening(serve)
        sys.stdout.write(f"{port_of(server)}\n")
        sys.stdout.flush()
        await server.serve_forever()

    asyncio.run(forever())


@contextmanager
def relays(script: str) -> Generator[Callable[[str], list[str]]]:
    """Start the process behind the relays; yields the command of a server, by its word."""
    command = [sys.executable, "-W", "error", script]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield lambda word: [*RELAY, str(port), word]
        finally:
            process.kill()
