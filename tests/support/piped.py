"""A toolset server on a pair of pipes, as on standard input and output, and a client of raw messages."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from tests.transports.test_line_dispatcher import Peer

from mcp_toolset import ToolsetServer
from mcp_toolset.transports.line_dispatcher import LineDispatcher, PipePair
from mcp_toolset.transports.serve_connection import INLINE, serve_connection

CLIENT = {"name": "c", "version": "1"}
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}


@asynccontextmanager
async def piped(server: ToolsetServer) -> AsyncGenerator[Peer]:
    """Serve one client for the length of a block."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    for end in (ours_in, ours_out, theirs_in):
        os.set_blocking(end, False)
    pair = PipePair(ours_in, ours_out)
    dispatcher = LineDispatcher(pair, inline=INLINE, holds_back=True)
    peer = Peer(dispatcher, theirs_in, theirs_out, pair)
    try:
        async with server.answers.opened(), anyio.create_task_group() as group:
            group.start_soon(serve_connection, server.answers, dispatcher)
            yield peer
            group.cancel_scope.cancel()
    finally:
        pair.stop()
        peer.close()
        peer.stop_reading()
        os.close(ours_in)
        os.close(ours_out)


def legacy(number: Any, method: str, /, **params: Any) -> dict[str, Any]:
    """A request without an envelope."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def modern(number: Any, method: str, /, **params: Any) -> dict[str, Any]:
    """A request with an envelope."""
    return legacy(number, method, **params, _meta=ENVELOPE)


def handshake(number: Any = 0, version: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
    """The handshake of a client with these capabilities."""
    return legacy(number, "initialize", protocolVersion=version, capabilities=capabilities, clientInfo=CLIENT)


async def answers_to(peer: Peer, *messages: dict[str, Any]) -> dict[Any, dict[str, Any]]:
    """Send messages in one go; the answers by the ids of the requests."""
    await peer.send(*messages)
    expected = {message["id"] for message in messages if "id" in message}
    found: dict[Any, dict[str, Any]] = {}
    while found.keys() != expected:
        answer = await peer.receive()
        if "method" not in answer:
            found[answer["id"]] = answer
    return found
