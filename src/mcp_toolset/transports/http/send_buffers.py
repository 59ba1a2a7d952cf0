"""`Unsent`: the bytes of answers over HTTP that clients have not taken yet, and their budget.

A big body is sent in slices, each once the client has taken the one before, and counts until the last is
sent. An answer for which there is no room is dropped: its client gets a 503 in its place, or the end
of the stream if that has begun. The work of others goes on.
"""

from __future__ import annotations

import json
import logging
from typing import Final

from starlette.types import Message, Send

from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR
from mcp_toolset.transports.http.headers import header
from mcp_toolset.transports.http.limits import HttpLimits

SLICE: Final = 256 * 1024
"""Bytes that are sent at once; smaller bodies are not counted."""

_log = logging.getLogger("mcp_toolset.wire")


class Unsent:
    """What waits, for each address and in all."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._peers: dict[str, int] = {}
        self._told: set[str] = set()
        self.size = 0

    def take(self, peer: str, size: int) -> str | None:
        """Count a body; the name of the limit that it exceeds, if it does."""
        limit = self.limit(peer, size)
        if limit is None:
            self.add(peer, size)
        return limit

    def limit(self, peer: str, size: int) -> str | None:
        """The limit that a body is beyond, if it is beyond one. One body always has room."""
        held = self._peers.get(peer, 0)
        if held and held + size > self._limits.unread_per_peer:
            return "unread_per_peer"
        if self.size and self.size + size > self._limits.unread:
            return "unread"
        return None

    def add(self, peer: str, size: int) -> None:
        """Count a body for which there is room, or which has to be sent all the same."""
        self._peers[peer] = self._peers.get(peer, 0) + size
        self.size += size

    def give_back(self, peer: str, size: int) -> None:
        left = self._peers[peer] - size
        self.size -= size
        if left:
            self._peers[peer] = left
        else:
            del self._peers[peer]
            self._told.discard(peer)

    def refusal(self, peer: str, size: int, limit: str) -> str:
        """What is said in place of an answer; logged once until the address has read everything."""
        text = (
            f"an answer of {size} bytes was dropped: {self._peers.get(peer, 0)} bytes wait for clients at "
            f"{peer} and {self.size} in all ({limit} is {getattr(self._limits, limit)}); read them, or make "
            "fewer requests at once"
        )
        if peer not in self._told:
            self._told.update((peer,) if peer in self._peers else ())
            _log.warning("%s", text)
        return text


class BoundedSend:
    """Where the response to one request goes, within the budget."""

    __slots__ = ("_counts", "_dropped", "_head", "_peer", "_send", "_unsent")

    def __init__(self, unsent: Unsent, peer: str, send: Send, *, counts: bool = True) -> None:
        """Send to a client at an address; without `counts`, bodies have been counted before."""
        self._counts = counts
        self._unsent = unsent
        self._peer = peer
        self._send = send
        self._head: Message | None = None
        self._dropped = False

    async def __call__(self, message: Message) -> None:
        if self._dropped:
            return
        if message["type"] == "http.response.start":
            if _is_big(message):
                # Until there is something to send, another answer can still be given.
                self._head = message
            else:
                await self._send(message)
            return
        body = message.get("body", b"")
        if len(body) > SLICE:
            await self._sliced(body, more=message.get("more_body", False))
            return
        await self._begin()
        await self._send(message)

    async def _begin(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            await self._send(head)

    async def _sliced(self, body: bytes, *, more: bool) -> None:
        size = len(body)
        limit = self._unsent.take(self._peer, size) if self._counts else None
        if limit is not None:
            return await self._drop(self._unsent.refusal(self._peer, size, limit))
        try:
            await self._begin()
            for start in range(0, len(body), SLICE):
                part = body[start : start + SLICE]
                rest = more or start + SLICE < len(body)
                await self._send({"type": "http.response.body", "body": part, "more_body": rest})
        finally:
            # It is in memory as a whole until then.
            if self._counts:
                self._unsent.give_back(self._peer, size)

    async def _drop(self, reason: str) -> None:
        self._dropped = True
        if self._head is None:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        error = {"code": INTERNAL_ERROR, "message": reason}
        text = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(text))]
        await self._send({"type": "http.response.start", "status": 503, "headers": headers})
        await self._send({"type": "http.response.body", "body": text})


def _is_big(head: Message) -> bool:
    size = header(head.get("headers", []), b"content-length")
    return size is not None and size.isdigit() and int(size) > SLICE
