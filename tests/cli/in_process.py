"""A command of the line in this process: as the real one, with its own files for standard input and output.

A process of its own costs a second. The command's way out is by descriptors, which its children share, so the
descriptors are what is exchanged here. Afterwards nothing of it is left: no module, variable or log handler.
"""

import io
import logging
import os
import pty
import select
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO
from unittest.mock import patch

from mcp_toolset.cli.main import main


def run_here(
    arguments: Sequence[str], folder: Path, environ: Mapping[str, str], stdin: str
) -> subprocess.CompletedProcess[str]:
    """Run one command line in `folder`; it must not be one that ends its process."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        with _surroundings(folder, environ), _descriptors(given, out, err):
            with _ending_here():
                code = main(list(arguments))
        return subprocess.CompletedProcess(list(arguments), code, _text(out), _text(err))


def run_on_terminal(
    arguments: Sequence[str], folder: Path, environ: Mapping[str, str], columns: int
) -> tuple[int, str]:
    """Run one command line that says a few lines; its exit code and what a terminal of that width shows."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    with os.fdopen(ours, "rb", 0), os.fdopen(theirs, "wb", 0) as screen, TemporaryFile() as given:
        with _surroundings(folder, environ), _descriptors(given, screen, screen):
            with _ending_here():
                code = main(list(arguments))
        shown = b""
        while select.select([ours], [], [], 0)[0]:
            shown += os.read(ours, 65536)
    return code, shown.decode().replace("\r\n", "\n")


@contextmanager
def _ending_here() -> Iterator[None]:
    """The command may not end this process, and has to end the threads that it has started itself."""
    others = set(threading.enumerate())

    def leave(code: int) -> None:
        raise AssertionError(f"the process would end with {code}")

    def leave_no_thread(code: int) -> None:
        for thread in set(threading.enumerate()) - others:
            if not thread.daemon:
                thread.join(30)
                if thread.is_alive():
                    raise AssertionError(f"{thread} is left, for which the process would end with {code}")

    signals = "mcp_toolset.concurrency.signals"
    with patch(f"{signals}.leave", leave), patch(f"{signals}.leave_no_thread", leave_no_thread):
        yield


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@contextmanager
def _descriptors(*files: IO[bytes]) -> Iterator[None]:
    streams = sys.stdin, sys.stdout, sys.stderr
    kept = [os.dup(number) for number in range(3)]
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, "r", closefd=False), "utf-8")
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), "utf-8", line_buffering=True)
        for number in (1, 2)
    )
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)


@contextmanager
def _surroundings(folder: Path, environ: Mapping[str, str]) -> Iterator[None]:
    place, variables = Path.cwd(), dict(os.environ)
    modules, path, words = dict(sys.modules), list(sys.path), list(sys.argv)
    log, handlers, level = logging.getLogger(), list(logging.getLogger().handlers), logging.getLogger().level
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    for handler in handlers:
        log.removeHandler(handler)
    try:
        yield
    finally:
        os.chdir(place)
        os.environ.clear()
        os.environ.update(variables)
        sys.path[:], sys.argv[:] = path, words
        sys.modules["__main__"] = modules["__main__"]
        for name, module in list(sys.modules.items()):
            # What the folder's own programs are must not be found by the next test.
            if name not in modules and str(getattr(module, "__file__", None)).startswith(str(folder)):
                del sys.modules[name]
        for handler in list(log.handlers):
            log.removeHandler(handler)
        for handler in handlers:
            log.addHandler(handler)
        log.setLevel(level)
