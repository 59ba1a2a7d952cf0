"""`watchdog`: ends a child's process group when this process was killed and could not do that itself.

A killed process closes its pipes. A polite child sees the end of its input and exits; a child that ignores
the end of input, or that started others, would stay for ever. The watchdog is a shell that waits on a pipe of
this process: at its end the group gets SIGTERM and then SIGKILL, after the same waits as in a stop.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio

_SHELL: Final = Path("/bin/sh")
_SCRIPT: Final = """
trap '' HUP INT TERM QUIT
read -r said && [ "$said" = stopped ] && exit 0
sleep 2; kill -s TERM -- "-$1" 2>/dev/null || exit 0
sleep 2; kill -s KILL -- "-$1" 2>/dev/null
"""
_PATIENCE: Final = 1.0
_POLL: Final = 0.002
_log = logging.getLogger("mcp_toolset.upstream")


@asynccontextmanager
async def watchdog(group: int) -> AsyncGenerator[None]:
    """Watch over the process group of a child for the length of a block.

    On systems without a POSIX shell nothing is watched over.

    Args:
        group: The id of the group.
    """
    if not _SHELL.exists():
        yield
        return
    try:
        shell = _started(group)
    except OSError as fault:
        _log.warning("process group %d has no watchdog: %s", group, fault)
        yield
        return
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await _dismissed(shell)


def _started(group: int) -> subprocess.Popen[bytes]:
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
            await anyio.sleep(_POLL)
        return
    shell.kill()
    shell.wait()
