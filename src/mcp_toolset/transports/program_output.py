"""`output_of`: what a program writes to standard output, with a deadline, for code that is not async."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Final

from mcp_toolset._records import dataclass
from mcp_toolset.transports.stdio_client import signalled, watching

_GRACE: Final = 2.0
"""Seconds that a program is given to end after SIGTERM."""

_SETTLE: Final = 0.5
"""Seconds for which output is awaited once its program has ended."""

_CHUNK: Final = 65536


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """The end of a program: its exit code, below zero for a signal, and what it wrote to standard output."""

    code: int
    output: bytes


def output_of(
    words: Sequence[str], *, environ: Mapping[str, str], folder: Path, seconds: float, most: int
) -> ProgramOutput:
    """Run a program without a shell, and return what it wrote; standard input is empty, stderr is dropped.

    A program that is not done in time is ended with its process group, as is one that writes too much. If
    this process is killed meanwhile, its watchdog ends the group.

    Args:
        words: The program, and its arguments.
        environ: All of its environment.
        folder: Where it runs.
        seconds: Its deadline.
        most: How many bytes it may write.

    Raises:
        OSError: it cannot be started.
        TimeoutError: it did not end in time.
        OverflowError: it wrote more.
    """
    read, more = list[bytes](), list[bool]()
    process = subprocess.Popen(
        list(words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=dict(environ),
        start_new_session=True,
    )
    stdout = process.stdout
    assert stdout is not None

    def take() -> None:
        left = most
        while left >= 0 and (chunk := os.read(stdout.fileno(), _CHUNK)):
            read.append(chunk)
            left -= len(chunk)
        if left < 0:
            more.append(True)
            signalled(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()

    reader = Thread(target=take, daemon=True)
    with _watched(process.pid):
        try:
            reader.start()
            code = process.wait(seconds)
            # What it has left behind, such as an agent, may have the other end as well.
            reader.join(_SETTLE)
            if more:
                raise OverflowError
            return ProgramOutput(code, b"".join(read))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        finally:
            if process.poll() is None:
                _end(process)
                reader.join(_GRACE)
            # A program outside of the group may still have the other end; its reader waits for it.
            if not reader.is_alive():
                stdout.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    if os.name != "posix":
        process.kill()
        process.wait(_GRACE)
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        signalled(process.pid, number)
        signalled(process.pid, signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
            break
    # Its children may have outlived it.
    signalled(process.pid, signal.SIGKILL)


@contextmanager
def _watched(group: int) -> Generator[None]:
    shell = watching(group)
    try:
        yield
    finally:
        if shell is not None:
            assert shell.stdin is not None
            with suppress(OSError), shell.stdin as pipe:
                pipe.write(b"stopped\n")
            try:
                shell.wait(_GRACE)
            except subprocess.TimeoutExpired:
                shell.kill()
                shell.wait()
