"""`output_of`: what a program writes to standard output, with a deadline, for code that is not async."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from threading import Event, Thread
from typing import Final

from mcp_toolset.transports.stdio_client import signalled, watching

_GRACE: Final = 2.0
"""Seconds that a program is given to end after SIGTERM."""

_SETTLE: Final = 0.1
"""Seconds without output after which a program that has ended has written all."""

_CHUNK: Final = 65536


class _OutputReader(Thread):
    """Reads what a program writes, until it has ended and nothing more comes, or it has written too much."""

    def __init__(self, process: subprocess.Popen[bytes], most: int) -> None:
        super().__init__(daemon=True)
        assert process.stdout is not None
        self.stdout = process.stdout
        self.output = bytearray()
        self.ended = Event()  # set once the program has ended
        self._process, self._most = process, most

    def run(self) -> None:
        while len(self.output) <= self._most:
            if os.name == "posix" and not select([self.stdout], [], [], _SETTLE)[0]:
                if self.ended.is_set():
                    return  # what it has left behind, such as an agent, has the other end as well
            elif chunk := os.read(self.stdout.fileno(), _CHUNK):
                self.output += chunk
            else:
                return
        # It would wait for ever for somebody who reads on.
        self._process.kill()


def output_of(
    words: Sequence[str], *, environ: Mapping[str, str], folder: Path, seconds: float, most: int
) -> tuple[int, bytes]:
    """Run a program without a shell; return its exit code, below zero for a signal, and what it wrote.

    Standard input is empty, stderr is dropped. A program that is not done in time is ended with its process
    group and, on Linux, with its descendants outside of the group; so is one that writes too much. If this
    process is killed meanwhile, its watchdog ends the group.

    Args:
        words: The program, and its arguments.
        environ: All of its environment.
        folder: Its working directory.
        seconds: Its deadline.
        most: The largest number of bytes that it may write.

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
    reader = _OutputReader(process, most)
    with _watched(process.pid):
        try:
            reader.start()
            code = process.wait(seconds)
            reader.ended.set()
            reader.join(seconds)
            if reader.is_alive():
                raise TimeoutError
            if len(reader.output) > most:
                _end(process)
                raise OverflowError
            return code, bytes(reader.output)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        finally:
            if process.poll() is None:
                _end(process)
            reader.ended.set()
            reader.join(_GRACE)
            # A program outside of the group may still have the other end; its reader waits for it.
            if not reader.is_alive():
                reader.stdout.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    if os.name != "posix":
        process.kill()
        process.wait(_GRACE)
        return
    outside = {pid: born for pid, born in _descendants(process.pid).items() if _is_outside(pid, process.pid)}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in outside:
            _signal(pid, number, outside[pid])
        signalled(process.pid, number)
        signalled(process.pid, signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
            break
    # Its children may have outlived it.
    signalled(process.pid, signal.SIGKILL)
    for pid, born in outside.items():
        _signal(pid, signal.SIGKILL, born)


def _descendants(root: int) -> dict[int, str]:
    """The descendants of a process, each with the time of its start; none where there is no `/proc`."""
    known = {int(name): _stat(name) for name in _listed("/proc") if name.isdigit()}
    found, last = dict[int, str](), {root}
    while last:
        last = {pid for pid, (parent, _) in known.items() if parent in last and pid not in found}
        found |= {pid: known[pid][1] for pid in last}
    return found


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _stat(pid: int | str) -> tuple[int, str]:
    """The parent and the start of a process; 0 and nothing for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().decode(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0, ""
    return int(fields[1]), fields[19]


def _is_outside(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) != group
    except OSError:
        return False


def _signal(pid: int, number: int, born: str) -> None:
    """Send a signal to a process, if no other one has its number by now."""
    if _stat(pid)[1] == born:
        with suppress(OSError):
            os.kill(pid, number)


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
