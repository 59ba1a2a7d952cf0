"""A terminal for a process: it has the keyboard, and what is on the screen can be read."""

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.cli.commandline import PATIENCE, environment

CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """A process whose controlling terminal is ours."""

    def __init__(self, ours: int, theirs: int, process: "subprocess.Popen[bytes]") -> None:
        self._ours, self._theirs, self.process = ours, theirs, process
        self.screen = ""
        self._before = self._settings()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def shows(self, *texts: str) -> str:
        """Wait until all of it is on the screen."""
        deadline = time.monotonic() + PATIENCE  # a line that moves is read without an end
        while not all(text in self.screen for text in texts):
            shown = self._read(PATIENCE) and time.monotonic() < deadline
            assert shown, f"not shown: {texts}\n{self.screen}"
        return self.screen

    def end(self) -> int:
        """Wait for the end of the process; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            # The screen is read meanwhile: a process that writes to a full terminal would wait for us.
            self._read(0.05)
            assert time.monotonic() < deadline, f"it does not end\n{self.screen}"
        self._read(0)
        return self.process.returncode

    def intact(self) -> bool:
        """True if the terminal is as it was: a shell that gets it back would not notice anything."""
        return self._settings() == self._before

    def _settings(self) -> tuple[Any, int]:
        return termios.tcgetattr(self._theirs), fcntl.fcntl(self._theirs, fcntl.F_GETFL)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        self.screen += os.read(self._ours, 65536).decode(errors="replace").replace("\r\n", "\n")
        return True


@contextmanager
def terminal(
    command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None, *, columns: int = 120
) -> Iterator[Terminal]:
    """Start a process in a terminal of its own; what is left of it is killed."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder, {"COLUMNS": str(columns), "TERM": "xterm", **(env or {})}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    try:
        yield Terminal(ours, theirs, process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        os.close(ours)
        os.close(theirs)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]
