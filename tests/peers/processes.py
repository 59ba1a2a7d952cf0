"""A server as a child process that says where it listens."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

PATIENCE = 60
"""Seconds that a server may take to listen, unless told otherwise, and to end after SIGTERM."""


@contextmanager
def listening_process(
    command: Sequence[str],
    said: str,
    environment: Mapping[str, str] | None = None,
    *,
    timeout: float = PATIENCE,
) -> Generator[str]:
    """Run a server for the length of a block; yields what the group of `said` found in its output.

    Its input is a pipe that is closed when this process ends, however that ends.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        deadline = threading.Timer(timeout, process.kill)
        deadline.start()
        lines: list[str] = []
        try:
            for line in process.stdout:
                lines.append(line)
                if found := re.search(said, line):
                    break
            else:
                raise AssertionError(f"{command} ended before it listened: {''.join(lines)}")
            deadline.cancel()
            with _drained(process.stdout, process):
                yield found[1]
        finally:
            deadline.cancel()
            _stop(process)


@contextmanager
def _drained(output: IO[str], process: subprocess.Popen[str]) -> Generator[None]:
    """Read what the server goes on to print, so that it never waits for a full pipe."""
    # A command that runs in this process meanwhile, and leaves no thread, must not find this one.
    reader = threading.Thread(target=output.read, daemon=True)
    reader.start()
    try:
        yield
    finally:
        _stop(process)
        reader.join(PATIENCE)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
