"""`decompressed`: the body of a reply without its compression, in small pieces.

A body of a megabyte can hold a gigabyte. Each piece is decompressed when it is asked for, so that a reader
that stops at a limit holds no more than that.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import httpcore2

from mcp_toolset.concurrency.backoff import Turn
from mcp_toolset.tools.text.hidden_text import in_log

CODINGS: Final = "gzip, deflate"
"""What is offered to servers, as the header `accept-encoding`."""

_PIECE: Final = 64 * 1024
_GZIP: Final = 31
_MEMBER: Final = b"\x1f"
_WITH_HEADER: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": 15}


async def decompressed(chunks: AsyncGenerator[bytes], coding: str) -> AsyncGenerator[bytes]:
    """A body that is compressed with `coding`, as in the header `content-encoding`."""
    unpacker: Any = None
    turn = Turn()
    async with aclosing(chunks):
        async for chunk in chunks:
            is_full = True
            # A full piece may not be all of what was taken in.
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
                        f"the body is not {in_log(coding)}: {fault}"
                    ) from None
                chunk = unpacker.unconsumed_tail or unpacker.unused_data
                is_full = len(piece) == _PIECE
                await turn.pause()
                if piece:
                    yield piece
    if unpacker is not None and not unpacker.eof:
        raise httpcore2.RemoteProtocolError("the body breaks off within its compression")


def _is_gzip(coding: str) -> bool:
    return _WITH_HEADER.get(coding.strip().lower()) == _GZIP


def _unpacker(coding: str, begin: bytes) -> Any:
    bits = _WITH_HEADER.get(coding.strip().lower())
    if bits is None:
        told = f"the body is compressed with {in_log(coding)}; only gzip and deflate are read"
        raise httpcore2.RemoteProtocolError(told)
    # Some servers send "deflate" without the header of zlib, whose first byte names method 8.
    return zlib.decompressobj(-15 if bits == 15 and begin[0] & 15 != 8 else bits)
