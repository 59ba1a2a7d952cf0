"""`child_dispatcher`: starts a server as a child process; `StderrTail`: the last lines of its stderr.

Whatever way the connection ends, the child's whole process group ends with it: its input is closed, then
SIGTERM, then SIGKILL, each after a bounded wait, while its output is still read: a child that finds its
output full could not see the end of its input. If this process is killed, its watchdog does the same.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self, TextIO, cast

import anyio
import anyio.abc
import anyio.to_thread

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.signals import time_to_close
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.protocol.dispatch import Dispatcher
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.source import PRINTED_LOGGER, STDERR_LOGGER
from mcp_toolset.transports.line_dispatcher import MAX_MESSAGE, LineDispatcher, PipePair, lean, widened

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
"""True if pipes can only be read by threads that wait in them."""


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
        cause_lines = [lines[at]]
        if not _NPM.match(lines[at]):
            for line in lines[at + 1 : at + 1 + _FURTHER]:
                if not line or _NOISE.match(line):
                    break
                cause_lines.append(line)
        return " ".join(cause_lines)[:LINE_LENGTH]

    def note_printed(self, line: bytes) -> None:
        """Take a line of standard output that is no message; the first one is told of at once."""
        if not self.printed and (text := _text_of(line)):
            self.printed = self._scrub(text)
            warning = (
                "server %r printed %r to standard output, where only messages of the protocol belong; %s"
            )
            _printed.warning(warning, self._name, in_log(self.printed), PRINTED_MEND)

    def explained(self, reason: str) -> str:
        """Why the program has ended, with the error that it wrote, and what it printed in the wrong place."""
        cause = self.cause
        parts = [f"stderr: {cause}"] if cause else []
        if self.printed:
            parts.append(f"it printed {in_log(self.printed)!r} to standard output; {PRINTED_MEND}")
        return self._scrub(f"{reason} ({', '.join(parts)})" if parts else reason)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[TextIO]:
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


GRACE: Final = 2.0
"""Seconds that a child is given to end by itself, and again after SIGTERM."""

_HURRIED: Final = 0.25
"""The same after a Ctrl-C."""

_FLUSH: Final = 0.5
_AFTER_KILL: Final = 0.2
"""Nothing survives SIGKILL, but a process that is not reaped still counts as a member of its group."""

_POLL: Final = 0.01

INHERITED_VARIABLES: Final = (
    tuple(
        "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT "
        "TEMP USERNAME USERPROFILE".split()
    )
    if sys.platform == "win32"
    else ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
)
"""The variables of this process that each child gets: places and names, no secrets."""


@dataclass(frozen=True, slots=True)
class ProcessTarget:
    """A command that starts a server.

    Attributes:
        env: Variables that it gets beside the inherited ones.
        cwd: Its working directory; `None` for ours.
        shows_env: True if the values of `env` may be shown, as those of our own environment may.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None
    encoding: str = "utf-8"
    encoding_error_handler: str = "strict"
    shows_env: bool = False

    @classmethod
    def of(cls, target: object) -> ProcessTarget | None:
        if isinstance(target, cls):
            return target
        command, args = getattr(target, "command", None), getattr(target, "args", None)
        if not isinstance(command, str) or not isinstance(args, list | tuple):
            return None
        value: Any = target
        return cls(
            command,
            tuple(map(str, cast("list[object]", args))),
            getattr(value, "env", None),
            getattr(value, "cwd", None),
            getattr(value, "encoding", "utf-8"),
            getattr(value, "encoding_error_handler", "strict"),
        )


def inherited_environment() -> dict[str, str]:
    """The part of the environment that each child gets; functions of a shell are left out."""
    values = {name: os.environ.get(name) for name in INHERITED_VARIABLES}
    return {name: value for name, value in values.items() if value is not None and not value.startswith("()")}


@asynccontextmanager
async def child_dispatcher(
    target: ProcessTarget, errors: TextIO, *, name: str, note_printed: Callable[[bytes], None] | None = None
) -> AsyncGenerator[Dispatcher]:
    """Start a child and yield a dispatcher to it; the child ends with the block.

    Where pipes cannot be waited for (Windows, trio), or on request (`lean`), the SDK's transport is used.
    `note_printed` is told of lines on its stdout that are no JSON.
    """
    if not lean() or target.encoding.lower() not in ("utf-8", "utf8"):
        from mcp_toolset.sdk import sdk_child_dispatcher

        started = {
            "command": target.command,
            "args": list(target.args),
            "env": None if target.env is None else dict(target.env),
            "cwd": target.cwd,
            "encoding": target.encoding,
            "encoding_error_handler": target.encoding_error_handler,
        }
        async with sdk_child_dispatcher(errors, **started) as dispatcher:
            yield dispatcher
        return
    with _Pipe() as stdin, _Pipe() as stdout:
        process = await _started(target, stdin.reader, stdout.writer, errors)
        stdin.close_reader()
        stdout.close_writer()
        child = _Child(name, process, stdin, stdout)
        async with watchdog(process.pid), child.opened() as dispatcher:
            dispatcher.note_text = note_printed
            yield dispatcher


async def _started(target: ProcessTarget, stdin: int, stdout: int, errors: TextIO) -> anyio.abc.Process:
    # Cut short in the middle, this would leave a child that nothing ends.
    with anyio.CancelScope(shield=True):
        return await anyio.open_process(
            [target.command, *target.args],
            stdin=stdin,
            stdout=stdout,
            stderr=errors,
            env=inherited_environment() | dict(target.env or {}),
            cwd=target.cwd,
            start_new_session=True,
        )
    raise AssertionError("a shielded scope that is not cancelled is left by its return")


class _Pipe:
    """The two ends of a pipe, each closed once; ours never block."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def close_reader(self) -> None:
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_reader()
        self.close_writer()


class _Child:
    """A running child and the dispatcher at its pipes."""

    def __init__(self, name: str, process: anyio.abc.Process, stdin: _Pipe, stdout: _Pipe) -> None:
        self._process = process
        self._stdin = stdin
        os.set_blocking(stdin.writer, False)
        os.set_blocking(stdout.reader, False)
        widened(stdout.reader)
        self._pipes = PipePair(stdout.reader, stdin.writer)
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")

        def too_much(why: str) -> UpstreamUnavailableError:
            return UpstreamUnavailableError(name, why)

        self._dispatcher = LineDispatcher(self._pipes, limit=MAX_MESSAGE, too_much=too_much)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[LineDispatcher]:
        try:
            yield self._dispatcher
        finally:
            with anyio.CancelScope(shield=True):
                await self._stop()

    async def _stop(self) -> None:
        self._pipes.start()
        with anyio.move_on_after(time_to_close(_FLUSH, _HURRIED / 5)):
            await self._pipes.flushed()
        self._pipes.close_writer()
        self._stdin.close_writer()
        with anyio.move_on_after(0 if self._stopped else time_to_close(GRACE, _HURRIED)):
            await self._process.wait()
        await _end_group(self._process.pid)
        with anyio.move_on_after(time_to_close(GRACE, _HURRIED)):
            await self._process.wait()
        self._pipes.stop()
        self._tell_oddities()

    @property
    def _stopped(self) -> bool:
        """True if it is stopped (SIGSTOP), so that it sees nothing of the end of its input."""
        with suppress(AttributeError, ChildProcessError):
            asked = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, asked) is not None
        return False

    def _tell_oddities(self) -> None:
        if self._dispatcher.skipped:
            self._log.warning(
                "%d lines of its stdout were no messages and were skipped", self._dispatcher.skipped
            )
        if self._dispatcher.strays:
            self._log.info("%d of its answers had no matching request", self._dispatcher.strays)


async def _end_group(group: int) -> None:
    """End what is left of a process group, also when its leader has gone before."""
    for number, seconds in ((signal.SIGTERM, time_to_close(GRACE, _HURRIED)), (signal.SIGKILL, _AFTER_KILL)):
        if not signalled(group, number):
            return
        # A process that is stopped (SIGSTOP) takes no other signal until it goes on.
        signalled(group, signal.SIGCONT)
        with anyio.move_on_after(seconds):
            # No event says that a group of processes is empty.
            while signalled(group, 0):  # noqa: ASYNC110
                await anyio.sleep(_POLL)


def signalled(group: int, number: int) -> bool:
    """Send a signal; `False` if the group has no process left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


_SHELL: Final = Path("/bin/sh")
_SCRIPT: Final = """
trap '' HUP INT TERM QUIT
read -r said && [ "$said" = stopped ] && exit 0
sleep 2; kill -s TERM -- "-$1" 2>/dev/null || exit 0
sleep 2; kill -s KILL -- "-$1" 2>/dev/null
"""
_TIMEOUT: Final = 1.0
_SHELL_POLL: Final = 0.002


@asynccontextmanager
async def watchdog(group: int) -> AsyncGenerator[None]:
    """End a child's process group if this process is killed within a block and cannot do that itself.

    A killed process closes its pipes. A child that ignores the end of its input, or that started others,
    would stay for ever. The watchdog is a shell that waits on a pipe of this process: at its end the group
    gets SIGTERM and then SIGKILL, after the same waits as in a stop. Without a POSIX shell there is none.
    """
    shell = watching(group)
    if shell is None:
        yield
        return
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await _dismissed(shell)


def watching(group: int) -> subprocess.Popen[bytes] | None:
    """A watchdog of a process group, to be told `stopped`; `None` where there is none."""
    if not _SHELL.exists():
        return None
    try:
        return subprocess.Popen(
            [str(_SHELL), "-c", _SCRIPT, "sh", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.defpath},
            start_new_session=True,
        )
    except OSError as fault:
        log = logging.getLogger("mcp_toolset.upstream")
        log.warning("process group %d has no watchdog: %s", group, fault)
        return None


async def _dismissed(shell: subprocess.Popen[bytes]) -> None:
    """Tell the watchdog that the group was stopped, and wait for its end."""
    assert shell.stdin is not None
    with suppress(OSError), shell.stdin as pipe:
        pipe.write(b"stopped\n")
    with anyio.move_on_after(_TIMEOUT):
        # A shell that reads one line ends at once; no thread is spent on waiting for it.
        while shell.poll() is None:  # noqa: ASYNC110
            await anyio.sleep(_SHELL_POLL)
        return
    shell.kill()
    shell.wait()
