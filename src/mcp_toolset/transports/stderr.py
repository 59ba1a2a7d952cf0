"""`StderrTail`: drains the stderr of a child process and stores its last lines."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final, TextIO

import anyio
import anyio.to_thread

from mcp_toolset.tools.core.source import PRINTED_LOGGER, STDERR_LOGGER
from mcp_toolset.tools.text.hidden_text import in_log

KEPT_LINES: Final = 50
LINE_LENGTH: Final = 500
LOGGED: Final = 200
"""Lines that are logged in a second; of more, the last ones are."""

_FURTHER: Final = 3
"""Lines after the first line of an error that may belong to it."""

_NPM: Final = re.compile(r"npm (?:error|ERR!) ")
_ERROR: Final = re.compile(
    r"(?:Uncaught |Unhandled [a-z ]*)?[\w.$:]*(?:Error|Exception|Panic)(?: \[\w+\])?: "  # Python, Node, JVM
    r"|npm (?:error|ERR!) (?!code |errno |syscall |path |dest |cwd |A complete log|\d+ *$)\S"
    r"|(?:error|fatal|fatal error|panic|Caused by|docker)(?: [^:]{1,80})?: |Exception in thread "
    r"|Unhandled exception\."
    r"|thread '.*' (?:\(\d+\) )?panicked at |Segmentation fault",
    re.IGNORECASE,
)
"""The line of an error in what interpreters, installers and run times write when they end."""

_NOISE: Final = re.compile(
    r"Node\.js v\d|npm (?:error|ERR!)|at \S|\d+: |stack backtrace:|goroutine \d|note: |exit status \d"
    r"|Run '|See '|For (?:more|further) |code: |requireStack: |[\^}\])]+,?$|throw |node:internal/",
    re.IGNORECASE,
)
"""Lines around an error that do not say what it is."""

PRINTED_MEND: Final = "have the program write its log to stderr"

_printed = logging.getLogger(PRINTED_LOGGER)
_CHUNK: Final = 65536
_BLOCKS: Final = sys.platform == "win32"
"""Whether pipes can only be read by threads that wait in them."""


class StderrTail:
    """The last lines of a child's stderr; memory stays constant whatever is written."""

    def __init__(self, name: str, scrub: Callable[[str], str] = str) -> None:
        """Log lines, at debug level and passed through `scrub`, to `mcp_toolset.stderr.NAME`."""
        self._scrub = scrub
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._partial = b""
        self._untold: deque[bytes] = deque(maxlen=KEPT_LINES)
        self._left_out = 0
        self._room, self._at = float(LOGGED), 0.0
        self._log = logging.getLogger(f"{STDERR_LOGGER}.{name}")
        self._name = name
        self.printed = ""
        """The first line on standard output that is no message of the protocol."""

    @property
    def cause(self) -> str:
        """Why the program ended, as far as its last lines say: the error, otherwise the last line."""
        lines = [*self._lines, self._partial.decode("utf-8", "replace").strip()]
        telling = [number for number, line in enumerate(lines) if _ERROR.match(line)]
        if not telling:
            return next((line for line in reversed(lines) if line and not _NOISE.match(line)), "")
        at = telling[-1]
        # npm writes about one error in many lines, of which the first one says what is wrong.
        block = at
        while _NPM.match(lines[block]) and block:
            block -= 1
            at = block if block in telling else at
        said = [lines[at]]
        if not _NPM.match(lines[at]):
            for line in lines[at + 1 : at + 1 + _FURTHER]:
                if not line or _NOISE.match(line):
                    break
                said.append(line)
        return " ".join(said)[:LINE_LENGTH]

    def note_printed(self, line: bytes) -> None:
        """Take a line of standard output that is no message; the first one is told of at once."""
        if not self.printed and (text := _text_of(line)):
            self.printed = self._scrub(text)
            told = "server %r printed %r to standard output, where only messages of the protocol belong; %s"
            _printed.warning(told, self._name, in_log(self.printed), PRINTED_MEND)

    def explained(self, reason: str) -> str:
        """Why the program has ended, with the error that it wrote, and what it printed in the wrong place."""
        cause = self.cause
        told = [f"stderr: {cause}"] if cause else []
        if self.printed:
            told.append(f"it printed {in_log(self.printed)!r} to standard output; {PRINTED_MEND}")
        return self._scrub(f"{reason} ({', '.join(told)})" if told else reason)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[TextIO]:
        """A file for the child to write to, drained until the block ends."""
        self._lines.clear()
        self._partial, self.printed = b"", ""
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
            if self._partial:
                self._keep(b"\n")
            self._tell([], last=True)

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
        if self._log.isEnabledFor(logging.DEBUG):
            self._tell(lines)
        # Most lines of a flood are dropped: they cost nothing but the split.
        self._lines.extend(map(_text_of, lines[-KEPT_LINES:]))

    def _tell(self, lines: list[bytes], *, last: bool = False) -> None:
        """Log lines; those of a flood wait, and only the last of them are logged."""
        now = monotonic()
        self._room, self._at = min(LOGGED, self._room + (now - self._at) * LOGGED), now
        self._left_out += max(0, len(self._untold) + len(lines) - KEPT_LINES)
        if not self._untold and len(lines) <= self._room:
            self._left_out = 0
        else:
            self._untold.extend(lines)
            if self._room < KEPT_LINES and not last:
                return
            lines = [*self._untold]
            self._untold.clear()
        if self._left_out:
            self._log.debug("… %d lines left out", self._left_out)
            self._left_out = 0
        for line in lines:
            # Indented lines, such as those of a traceback, stay so.
            if _text_of(line):
                self._log.debug("%s", self._scrub(_decoded(line).rstrip()))
        self._room -= len(lines)


def _text_of(line: bytes) -> str:
    return _decoded(line).strip()


def _decoded(line: bytes) -> str:
    return line[:LINE_LENGTH].decode("utf-8", "replace")
