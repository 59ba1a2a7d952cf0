"""What can be shown of Windows without it: every module loads without what only POSIX systems have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.desk import Desk

import mcp_toolset
from mcp_toolset.catalog.pins import lockfile
from mcp_toolset.errors import ConfigError

pytestmark = pytest.mark.needs("*")


SOURCE = Path(mcp_toolset.__file__).parent.parent

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

RUN = """
import json, os, signal, sys
import anyio, asyncio, click, filelock, httpx2, mcp, mcp.client.stdio, mcp.server.stdio, rich.console
import anyio._backends._asyncio, platformdirs, shutil, sqlite3, subprocess, tempfile, threading, zipfile
from pathlib import Path

# The libraries have loaded for the system that is there; what follows finds another one.
for name in ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
for name in ("O_DIRECTORY", "O_NOCTTY", "getuid", "killpg", "mkfifo", "pwrite", "setsid"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1"):
    delattr(signal, name)
sys.platform, os.name = "win32", "simulated"

from mcp import Client
from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.cli.main import main

PROGRAM = '''
from mcp_toolset import Toolset, serve, tool

@tool
def add(a: int, b: int) -> int:
    return a + b

if __name__ == "__main__":
    serve(Toolset(add))
'''
Path("app.py").write_text(PROGRAM)
entry = {"command": sys.executable, "args": ["app.py"], "pins": "quarantine"}
Path("mcp.json").write_text(json.dumps({"mcpServers": {"calc": entry}, "toolset": {"audit": "audit.jsonl"}}))

@tool
def double(number: int) -> int:
    return 2 * number

async def through():
    child = RemoteToolset([sys.executable, "app.py"], name="calc")
    server = ToolsetServer(Toolset(double, child))
    with anyio.fail_after(60):
        async with server, Client(server.lowlevel, mode="legacy") as client:
            await server.settled()
            first = await client.call_tool("double", {"number": 2})
            second = await client.call_tool("add", {"a": 3, "b": 4})
    return first.structured_content, second.structured_content

print(anyio.run(through))
codes = [
    main(words.split())
    for words in (
        "check mcp.json",
        "call mcp.json calc_add a=1 b=2",
        "pin mcp.json",
        "disable mcp.json calc/add",
        "enable mcp.json calc/add",
        "pack app.py",
        "install cursor mcp.json --scope project",
    )
]
print(codes, *sorted(path.name for path in Path().iterdir() if path.suffix in (".mcpb", ".json")))
"""


@pytest.mark.long
def test_e10_the_paths_of_windows_run_with_what_it_has(tmp_path: Path) -> None:
    environ = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[0] == "({'result': 4}, {'result': 7})"
    assert told[-1] == f"{[0] * 7} app.mcpb mcp.json mcp.lock.json", done.stderr
    assert "mcp.json" in (tmp_path / ".cursor" / "mcp.json").read_text()


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_e10_the_files_of_clients_are_found_where_the_system_has_them(platform: str, tmp_path: Path) -> None:
    environ = {"APPDATA": str(tmp_path / "AppData" / "Roaming"), "USERPROFILE": str(tmp_path)}
    desk = Desk(tmp_path, "claude-desktop", platform=platform, environ=environ)
    folder = {"win32": "AppData/Roaming/Claude", "darwin": "Library/Application Support/Claude"}[platform]
    home = tmp_path if platform == "win32" else desk.home
    assert desk.file() == home / folder / "claude_desktop_config.json"


def test_u4_every_module_loads_without_what_windows_lacks() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200


def test_u4_the_pins_are_locked_where_folders_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockfile, "TIMEOUT", 0.01)
    one, other = (lockfile.LockFile(tmp_path / "mcp.lock.json") for _ in range(2))
    beside = lockfile.LockFile._locked_beside  # pyright: ignore[reportPrivateUsage]
    with beside(one), pytest.raises(ConfigError, match="another process is writing it"), beside(other):
        pass
    with beside(other):
        pass
