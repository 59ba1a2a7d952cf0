"""Serving on standard input and output, so that a signal or a closed pipe ends it at once.

A thread that reads standard input cannot be interrupted: a server told to stop would hang until the client
writes again. Here pipes and terminals are driven by readiness, and `LineDispatcher` speaks over them. While
serving, descriptor 0 is empty and descriptor 1 leads to stderr, so that a print or a child cannot corrupt
the protocol. Where descriptors cannot be waited for (Windows, trio), or on request, the SDK's transport is
used, which reads in a thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

import anyio

from mcp_toolset.context.incoming import Answers
from mcp_toolset.transports.line_dispatcher import DRAIN, LineDispatcher
from mcp_toolset.transports.pipes import PipePair, can_wait, is_cut, lean, never_waits, readable, unshared
from mcp_toolset.transports.serving import INLINE, serve_connection

_FLUSH: Final = 0.5
"""Seconds that a client has to read the last answers."""


async def serve_stdio(server: Answers, *, drain: float = DRAIN) -> None:
    """Serve one client until it closes standard input, or the task is cancelled.

    Requests in flight at that end have `drain` seconds to be answered, while the client can read.
    """
    if not (lean() and all(can_wait(end) or never_waits(end) for end in (0, 1))):
        from mcp_toolset.sdk.transports import stdio_server
        from mcp_toolset.transports.message_dispatcher import serve_streams

        async with stdio_server() as (read, write):
            await serve_streams(server, read, write)
        return
    with _claimed() as (reader, writer), readable(reader) as own_reader, unshared(writer) as (own, write):
        pipes = PipePair(own_reader, own, write)
        dispatcher = LineDispatcher(pipes, inline=INLINE, holds_back=True, drain=drain)
        try:
            async with server.opened():
                await serve_connection(server, dispatcher)
        finally:
            with anyio.move_on_after(_FLUSH, shield=True):
                await pipes.flushed()
            pipes.stop()


def left() -> bool:
    """Whether the client can read no more of what is written to standard output."""
    return lean() and is_cut(1)


@contextmanager
def _claimed() -> Generator[tuple[int, int]]:
    """Private duplicates of the standard pipes; the public ones are diverted meanwhile."""
    sys.stdout.flush()
    reader, writer = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2 if _is_open(2) else nothing, 1)
    os.close(nothing)
    try:
        yield reader, writer
    finally:
        # What was printed and not yet flushed must not come out on the protocol's pipe at exit.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(reader, 0)
        os.dup2(writer, 1)
        os.close(reader)
        os.close(writer)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
