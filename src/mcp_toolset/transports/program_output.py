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
    process = subprocess.Popen(
        list(words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=dict(environ),
        start_new_session=True,
    )
    stdout, read = process.stdout, list[bytes]()
    assert stdout is not None
    reader = Thread(target=lambda: read.append(stdout.read(most + 1)), daemon=True)
    with _watched(process.pid):
        try:
            reader.start()
            reader.join(seconds)
            if reader.is_alive():
                raise TimeoutError
            if len(read[0]) > most:
                raise OverflowError
            return ProgramOutput(process.wait(seconds), read[0])
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
