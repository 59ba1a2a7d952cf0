"""`StderrTail`: what a child process writes to stderr is drained, and its last lines are kept."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, TextIO

import anyio
import anyio.to_thread

KEPT_LINES: Final = 50
LINE_LENGTH: Final = 500
_CHUNK: Final = 65536
_BLOCKS: Final = sys.platform == "win32"
"""Whether pipes can only be read by threads that wait in them."""


class StderrTail:
    """The last lines of a child's stderr; memory stays constant whatever is written."""

    def __init__(self, name: str, scrub: Callable[[str], str] = str) -> None:
        """Log lines, at debug level and passed through `scrub`, to `mcp_toolset.upstream.NAME`."""
        self._scrub = scrub
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._partial = b""
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")

    @property
    def last(self) -> str:
        """The last line that is not blank, or an empty string."""
        unfinished = self._partial.decode("utf-8", "replace").strip()
        return unfinished or next((line for line in reversed(self._lines) if line), "")

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[TextIO]:
        """A file for the child to write to, drained until the block ends."""
        self._lines.clear()
        self._partial = b""
        reader, writer = os.pipe()
        if not _BLOCKS:
            os.set_blocking(reader, False)
        try:
            with os.fdopen(writer, "w") as child_end:
                async with anyio.create_task_group() as group:
                    # Shielded: a child that is being stopped may still have much to say.
                    draining = anyio.CancelScope(shield=True)
                    group.start_soon(self._drain, reader, draining)
                    try:
                        yield child_end
                    finally:
                        draining.cancel()
        finally:
            if not _BLOCKS:
                self._read(reader)
            os.close(reader)

    async def _drain(self, reader: int, draining: anyio.CancelScope) -> None:
        with draining:
            while True:
                if _BLOCKS:
                    if not await anyio.to_thread.run_sync(self._read, reader, abandon_on_cancel=True):
                        return
                    continue
                await anyio.wait_readable(reader)
                if not self._read(reader):
                    return

    def _read(self, reader: int) -> bool:
        try:
            chunk = os.read(reader, _CHUNK)
        except BlockingIOError:
            return True
        self._keep(chunk)
        return bool(chunk)

    def _keep(self, chunk: bytes) -> None:
        *lines, rest = (self._partial + chunk).split(b"\n")
        self._partial = rest[-LINE_LENGTH:]
        logged = self._log.isEnabledFor(logging.DEBUG)
        # Most lines of a flood are dropped: they cost nothing but the split.
        for line in lines if logged else lines[-KEPT_LINES:]:
            text = line[:LINE_LENGTH].decode("utf-8", "replace").strip()
            self._lines.append(text)
            if logged:
                self._log.debug("%s", self._scrub(text))
