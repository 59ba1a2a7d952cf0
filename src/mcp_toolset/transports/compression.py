"""`decompressed`: the body of a response without its compression."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import httpcore2

from mcp_toolset.concurrency.backoff import Turn
from mcp_toolset.tools.hidden_text import in_log

if TYPE_CHECKING:
    pass


CODINGS: Final = "gzip, deflate"
"""The supported codings, as the header `accept-encoding`."""

_PIECE: Final = 64 * 1024
_SHOWN: Final = 40
"""The number of characters of an unsupported coding in its error."""

_GZIP: Final = 31
_MEMBER: Final = b"\x1f"
_WITH_HEADER: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": 15}


async def decompressed(chunks: AsyncGenerator[bytes], coding: str) -> AsyncGenerator[bytes]:
    """Decompress a body with the `coding` of its header `content-encoding`."""
    unpacker: Any = None
    turn = Turn()
    async with aclosing(chunks):
        async for chunk in chunks:
            is_full = True
            # After a full piece, more of the chunk is left.
            while chunk or is_full:
                # A body of gzip may have several members, each with a beginning and an end (RFC 1952).
                if unpacker is None or (unpacker.eof and chunk.startswith(_MEMBER) and _is_gzip(coding)):
                    unpacker = _unpacker(coding, chunk)
                elif unpacker.eof and chunk:
                    raise httpcore2.RemoteProtocolError("the body goes on after the end of its compression")
                try:
                    piece = unpacker.decompress(chunk, _PIECE)
                except zlib.error as fault:
                    raise httpcore2.RemoteProtocolError(
                        f"the body is not {_shown(coding)}: {fault}"
                    ) from None
                chunk = unpacker.unconsumed_tail or unpacker.unused_data
                is_full = len(piece) == _PIECE
                await turn.pause()
                if piece:
                    yield piece
    if unpacker is not None and not unpacker.eof:
        raise httpcore2.RemoteProtocolError("the body breaks off within its compression")


def _shown(coding: str) -> str:
    return in_log(coding if len(coding) <= _SHOWN else f"{coding[:_SHOWN]}…")


def _is_gzip(coding: str) -> bool:
    return _WITH_HEADER.get(coding.strip().lower()) == _GZIP


def _unpacker(coding: str, begin: bytes) -> Any:
    bits = _WITH_HEADER.get(coding.strip().lower())
    if bits is None:
        message = f"the body is compressed with {_shown(coding)}; only gzip and deflate are read"
        raise httpcore2.RemoteProtocolError(message)
    # Some servers send "deflate" without the header of zlib, whose first byte names method 8.
    return zlib.decompressobj(-15 if bits == 15 and begin[0] & 15 != 8 else bits)
