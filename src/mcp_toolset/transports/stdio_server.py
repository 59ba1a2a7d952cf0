"""Serving on standard input and output, so that a signal or a closed pipe ends it at once.

A thread that reads standard input cannot be interrupted: a server told to stop would hang until the client
writes again. Here pipes and terminals are driven by readiness, and `LineDispatcher` speaks over them. While
serving, descriptor 0 is empty and descriptor 1 leads to stderr, so that a print or a child cannot corrupt
the protocol. Where descriptors cannot be waited for (Windows, trio), or on request, the SDK's transport is
used, which reads in a thread.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import anyio

from mcp_toolset.context.connection import Answers
from mcp_toolset.transports import line_dispatcher
from mcp_toolset.transports.serve_connection import INLINE, serve_connection

_FLUSH: Final = 0.5
"""Seconds that a client has to read the last answers."""


async def serve_stdio(server: Answers, *, drain: float = line_dispatcher.DRAIN) -> None:
    """Serve one client until it closes standard input, or the task is cancelled.

    Requests in flight at that end have `drain` seconds to be answered, while the client can read.
    """
    if not (
        line_dispatcher.lean()
        and all(line_dispatcher.can_wait(end) or line_dispatcher.never_waits(end) for end in (0, 1))
    ):
        from mcp_toolset.sdk import stdio_server
        from mcp_toolset.transports.message_dispatcher import serve_streams

        async with stdio_server() as (read, write):
            await serve_streams(server, read, write)
        return
    with _claimed() as (reader, writer), readable(reader) as own_reader, unshared(writer) as (own, write):
        pipes = line_dispatcher.PipePair(own_reader, own, write)
        dispatcher = line_dispatcher.LineDispatcher(pipes, inline=INLINE, holds_back=True, drain=drain)
        try:
            async with server.opened():
                await serve_connection(server, dispatcher)
        finally:
            with anyio.move_on_after(_FLUSH, shield=True):
                await pipes.flushed()
            pipes.stop()


def left() -> bool:
    """True if the client can read no more of what is written to standard output."""
    return line_dispatcher.lean() and line_dispatcher.is_cut(1)


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


@contextmanager
def readable(descriptor: int) -> Generator[int]:
    """A terminal's input without blocking, and without changing the terminal for the shell that has it too.

    Anything else is read when it is ready.
    """
    if not os.isatty(descriptor):
        yield descriptor
        return
    try:
        own = os.open(os.ttyname(descriptor), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        # The terminal has no name here, such as in a container: another reader could take its line first.
        yield descriptor
        return
    try:
        yield own
    finally:
        os.close(own)


@contextmanager
def unshared(descriptor: int) -> Generator[tuple[int, line_dispatcher.Writing | None]]:
    """Open a pipe that others hold as well for writing, without changing it for them.

    Not blocking is a property that all holders of a pipe share, the parent's terminal included. So the
    pipe is opened a second time where the system can do that (Linux); a socket is told at each write;
    anything else is asked for room first.
    """
    with ExitStack() as stack:
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            sock = stack.enter_context(socket.socket(fileno=os.dup(descriptor)))
            yield sock.fileno(), lambda data: sock.send(data, socket.MSG_DONTWAIT)
            return
        if line_dispatcher.never_waits(descriptor):
            yield descriptor, None
            return
        try:
            own = reopened(descriptor)
        except OSError:
            yield descriptor, _polled(descriptor)
            return
        stack.callback(os.close, own)
        yield own, None


def reopened(descriptor: int) -> int:
    """A descriptor of our own for the same pipe, which does not block; `OSError` where there is no such."""
    return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)


def _polled(descriptor: int) -> line_dispatcher.Writing:
    room = select.poll()
    room.register(descriptor, select.POLLOUT)

    def write(data: memoryview) -> int:
        if not room.poll(0):
            raise BlockingIOError
        # A pipe that polls writable takes this much without blocking (POSIX, PIPE_BUF).
        return os.write(descriptor, data[: line_dispatcher.PIPE_BUF])

    return write
