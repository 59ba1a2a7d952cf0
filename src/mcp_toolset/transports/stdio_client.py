"""`child_dispatcher`: starts a server as a child process and connects to its standard pipes.

Whatever way the connection ends, the child's whole process group ends with it: its input is closed,
then SIGTERM, then SIGKILL, each after a bounded wait, while its output is still read, as a child that
finds its output full could not see that its input has ended. When this process is killed, its
watchdog does the same.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO, cast

import anyio
import anyio.abc

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.signals import patience
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.protocol.dispatch import Dispatcher
from mcp_toolset.protocol.framing import MAX_MESSAGE
from mcp_toolset.transports.line_dispatcher import LineDispatcher
from mcp_toolset.transports.pipes import PipePair, lean, widened

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
        command: The program.
        args: Its arguments.
        env: Variables that it gets beside the inherited ones.
        cwd: Its working directory; `None` for ours.
        encoding: What its messages are written in.
        encoding_error_handler: What is done about bytes that are none of that.
        shows_env: Whether the values of `env` may be shown, as those of our own environment may.
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
        """The command in an object like the SDK's `StdioServerParameters`; `None` for any other object."""
        if isinstance(target, cls):
            return target
        command, args = getattr(target, "command", None), getattr(target, "args", None)
        if not isinstance(command, str) or not isinstance(args, list | tuple):
            return None
        found: Any = target
        return cls(
            command,
            tuple(map(str, cast("list[object]", args))),
            getattr(found, "env", None),
            getattr(found, "cwd", None),
            getattr(found, "encoding", "utf-8"),
            getattr(found, "encoding_error_handler", "strict"),
        )


def inherited_environment() -> dict[str, str]:
    """The part of the environment that each child gets; functions of a shell are left out."""
    found = {name: os.environ.get(name) for name in INHERITED_VARIABLES}
    return {name: value for name, value in found.items() if value is not None and not value.startswith("()")}


@asynccontextmanager
async def child_dispatcher(
    target: ProcessTarget,
    errors: TextIO,
    *,
    name: str,
    note_printed: Callable[[bytes], None] | None = None,
) -> AsyncGenerator[Dispatcher]:
    """Start a child and yield a dispatcher to it; the child ends with the block.

    Where pipes cannot be waited for (Windows, trio), or on request (`lean`), the SDK's transport is used.

    Args:
        target: The command, with the environment that is added to the inherited variables.
        errors: Where its stderr goes.
        name: The name it is mounted under, for messages.
        note_printed: Is told of lines on its stdout that are no JSON.
    """
    if not lean() or target.encoding.lower() not in ("utf-8", "utf8"):
        from mcp_toolset.sdk.dispatch import sdk_child_dispatcher

        async with sdk_child_dispatcher(target, errors) as dispatcher:
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

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        with anyio.move_on_after(patience(_FLUSH, _HURRIED / 5)):
            await self._pipes.flushed()
        self._pipes.close_writer()
        self._stdin.close_writer()
        with anyio.move_on_after(0 if self._stopped else patience(GRACE, _HURRIED)):
            await self._process.wait()
        await _end_group(self._process.pid)
        with anyio.move_on_after(patience(GRACE, _HURRIED)):
            await self._process.wait()
        self._pipes.stop()
        self._tell_oddities()

    @property
    def _stopped(self) -> bool:
        """Whether it is stopped (SIGSTOP), so that it sees nothing of the end of its input."""
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
    for number, seconds in ((signal.SIGTERM, patience(GRACE, _HURRIED)), (signal.SIGKILL, _AFTER_KILL)):
        if not _signalled(group, number):
            return
        # A process that is stopped (SIGSTOP) takes no other signal until it goes on.
        _signalled(group, signal.SIGCONT)
        with anyio.move_on_after(seconds):
            # No event says that a group of processes is empty.
            while _signalled(group, 0):  # noqa: ASYNC110
                await anyio.sleep(_POLL)


def _signalled(group: int, number: int) -> bool:
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
_PATIENCE: Final = 1.0
_SHELL_POLL: Final = 0.002


@asynccontextmanager
async def watchdog(group: int) -> AsyncGenerator[None]:
    """End a child's process group if this process is killed within a block and cannot do that itself.

    A killed process closes its pipes. A child that ignores the end of its input, or that started others,
    would stay for ever. The watchdog is a shell that waits on a pipe of this process: at its end the group
    gets SIGTERM and then SIGKILL, after the same waits as in a stop. Without a POSIX shell there is none.

    Args:
        group: The id of the group.
    """
    if not _SHELL.exists():
        yield
        return
    try:
        shell = _watching(group)
    except OSError as fault:
        logging.getLogger("mcp_toolset.upstream").warning(
            "process group %d has no watchdog: %s", group, fault
        )
        yield
        return
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await _dismissed(shell)


def _watching(group: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(_SHELL), "-c", _SCRIPT, "sh", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": os.defpath},
        start_new_session=True,
    )


async def _dismissed(shell: subprocess.Popen[bytes]) -> None:
    """Tell the watchdog that the group was stopped, and wait for its end."""
    assert shell.stdin is not None
    with suppress(OSError), shell.stdin as pipe:
        pipe.write(b"stopped\n")
    with anyio.move_on_after(_PATIENCE):
        # A shell that reads one line ends at once; no thread is spent on waiting for it.
        while shell.poll() is None:  # noqa: ASYNC110
            await anyio.sleep(_SHELL_POLL)
        return
    shell.kill()
    shell.wait()
