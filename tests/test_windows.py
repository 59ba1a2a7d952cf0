"""What can be shown of Windows without it: every module loads without what only POSIX systems have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mcp_toolset.catalog.pins import lockfile
from mcp_toolset.errors import ConfigError

PROGRAM = """
import importlib, os, pkgutil, signal, sys
import anyio, asyncio, click, filelock, httpx2, mcp, mcp.client.stdio, mcp.server.stdio, rich.console
import mcp.client.sse, mcp.client.streamable_http, mcp.server.sse, sqlite3, subprocess, uvicorn

for name in ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NONBLOCK", "getuid", "killpg", "mkfifo", "setsid"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1"):
    delattr(signal, name)

import mcp_toolset
loaded = 0
for module in pkgutil.walk_packages(mcp_toolset.__path__, "mcp_toolset."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        loaded += 1
for name in mcp_toolset.__all__:
    getattr(mcp_toolset, name)
print(loaded)
"""


def test_u4_every_module_loads_without_what_windows_lacks() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200


def test_u4_the_pins_are_locked_where_folders_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockfile, "PATIENCE", 0.01)
    one, other = (lockfile.LockFile(tmp_path / "mcp.lock.json") for _ in range(2))
    beside = lockfile.LockFile._locked_beside  # pyright: ignore[reportPrivateUsage]
    with beside(one), pytest.raises(ConfigError, match="another process is writing it"), beside(other):
        pass
    with beside(other):
        pass
