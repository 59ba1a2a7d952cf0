"""`SseAnswers`: the answers that wait for one client of the SSE transport, within a budget of bytes.

All answers of such a client go on one stream, one after the other, so a client that does not read has them
pile up. A result for which there is no room is replaced by an error; while many answers wait, no further
message of the client is taken. Other clients are not held back by that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import mcp_types as types

from mcp_toolset.protocol.dispatch import OnRequest
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, MCPError
from mcp_toolset.sdk.models import SessionMessage
from mcp_toolset.transports.http.send_buffers import Unsent

Params = Mapping[str, Any] | None

MANY: Final = 256
"""Answers that may wait for one client before nothing more of it is taken."""

_ENVELOPE: Final = 200
"""Bytes that any answer has at least."""


class SseAnswers:
    """The stream on which the messages for one client are written."""

    def __init__(self, write: Any, unsent: Unsent, peer: str) -> None:
        """Write to `write` what goes to a client at an address."""
        self._write = write
        self._unsent = unsent
        self._peer = peer
        self._waiting = 0
        self._room = asyncio.Event()

    def checked(self, on_request: OnRequest) -> OnRequest:
        """The handler of requests, whose result is dropped at once if there is no room for it."""

        async def within_budget(
            context: Any, method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            result = await on_request(context, method, params)
            size = weight_of(result)
            limit = self._unsent.limit(self._peer, size)
            if limit is None:
                return result
            # The error keeps this frame.
            del result
            raise MCPError(INTERNAL_ERROR, self._unsent.refusal(self._peer, size, limit))

        return within_budget

    async def send(self, item: SessionMessage) -> None:
        """Send a message once the client takes it; an answer counts until then."""
        message = item.message
        size = weight_of(message.result) if isinstance(message, types.JSONRPCResponse) else _ENVELOPE
        self._unsent.add(self._peer, size)
        self._waiting += 1
        try:
            await self._write.send(item)
        finally:
            self._waiting -= 1
            self._room.set()
            self._unsent.give_back(self._peer, size)

    async def room(self) -> None:
        """Wait until few answers wait."""
        while self._waiting >= MANY:
            self._room.clear()
            await self._room.wait()

    async def aclose(self) -> None:
        """Write no more."""
        await self._write.aclose()

    async def __aenter__(self) -> SseAnswers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class SseRequests:
    """The messages of that client, taken while there is room for what they are answered with."""

    def __init__(self, read: Any, answers: SseAnswers) -> None:
        """Read from `read`."""
        self._read = read
        self._answers = answers

    @property
    def last_context(self) -> Any:
        """What the sender of the last message had set."""
        return getattr(self._read, "last_context", None)

    def __aiter__(self) -> SseRequests:
        return self

    async def __anext__(self) -> Any:
        await self._answers.room()
        return await anext(self._read)

    def close(self) -> None:
        """Take no more."""
        self._read.close()

    async def aclose(self) -> None:
        """Take no more."""
        await self._read.aclose()


def weight_of(value: object) -> int:
    """About how many bytes a JSON value has; its long texts are what counts."""
    size = _ENVELOPE
    left: list[object] = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            found = cast("dict[str, object]", item)
            size += sum(map(len, found))
            left.extend(found.values())
        elif isinstance(item, list | tuple):
            left.extend(cast("Iterable[object]", item))
        else:
            size += 8
    return size
