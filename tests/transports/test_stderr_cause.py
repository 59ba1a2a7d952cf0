"""The reason of a program that has ended is the line of its output that has the error."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import anyio
import pytest
from tests.faults.harness import until

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.transports.stdio_client import StderrTail

pytestmark = pytest.mark.anyio

NODE = """
node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module '/srv/missing.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v24.1.0
"""
NODE_ESM = """
Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /srv/index.mjs
    at packageResolve (node:internal/modules/esm/resolve:873:9) {
  code: 'ERR_MODULE_NOT_FOUND'
}

Node.js v20.20.2
"""
NPX = """
npm error code E404
npm error 404 Not Found - GET https://registry.example/@nobody%2fnothing
npm error 404
npm error 404  The requested resource '@nobody/nothing@*' could not be found
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /root/.npm/_logs/debug-0.log
"""
NPM_FILE = """
npm ERR! code ENOENT
npm ERR! syscall open
npm ERR! path /srv/package.json
npm ERR! errno -2
npm ERR! enoent Could not read package.json: Error: ENOENT: no such file or directory
npm ERR! A complete log of this run can be found in: /root/.npm/_logs/debug-0.log
"""
PYTHON = """
INFO: starting
Traceback (most recent call last):
  File "/srv/server.py", line 1, in <module>
    import zzz
ModuleNotFoundError: No module named 'zzz'
"""
PYDANTIC = """
Traceback (most recent call last):
  File "/srv/server.py", line 9, in <module>
pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings
api_key
  Field required [type=missing, input_value={}, input_type=dict]
    For further information visit https://errors.example/2/v/missing
"""
JAVA = """
Error: Could not find or load main class None
Caused by: java.lang.ClassNotFoundException: None
"""
DOCKER = """
docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?

Run 'docker run --help' for more information
"""
RUST = """
thread 'main' (3270) panicked at r.rs:1:94:
cannot start: "no api key"
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/5980/library/std/src/panicking.rs:689:5
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
"""
GO = """
panic: no api key in the environment

goroutine 1 [running]:
main.main()
	/srv/main.go:6 +0x25
exit status 2
"""
UVX = """
error: Failed to spawn: `nothing-here`
  Caused by: No such file or directory (os error 2)
"""
ARGPARSE = """
usage: server.py [-h] --root ROOT
server.py: error: the following arguments are required: --root
"""
SHELL = "sh: 1: foo: not found\n"


def cause_of(text: str) -> str:
    tail = StderrTail("x")
    tail._keep(text.encode())
    return tail.cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (NODE, "Error: Cannot find module '/srv/missing.js'"),
        (NODE_ESM, "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /srv/index.mjs"),
        (NPX, "npm error 404 Not Found - GET https://registry.example/@nobody%2fnothing"),
        (NPM_FILE, "npm ERR! enoent Could not read package.json: Error: ENOENT: no such file or directory"),
        (PYTHON, "ModuleNotFoundError: No module named 'zzz'"),
        (
            PYDANTIC,
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings api_key "
            "Field required [type=missing, input_value={}, input_type=dict]",
        ),
        (JAVA, "Caused by: java.lang.ClassNotFoundException: None"),
        (
            DOCKER,
            "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. "
            "Is the docker daemon running?",
        ),
        (RUST, "thread 'main' (3270) panicked at r.rs:1:94: cannot start: \"no api key\""),
        (GO, "panic: no api key in the environment"),
        (UVX, "Caused by: No such file or directory (os error 2)"),
        (ARGPARSE, "server.py: error: the following arguments are required: --root"),
        (SHELL, "sh: 1: foo: not found"),
        ("\n\n", ""),
        ("Node.js v20.1.0\n", ""),
        ("listening\nready", "ready"),
    ],
)
def test_u91_the_cause_is_the_line_that_has_the_error(text: str, cause: str):
    assert cause_of(text) == cause


def test_f12_the_ring_of_lines_stays_small_whatever_comes() -> None:
    tail = StderrTail("up")
    for chunk in (b"x" * 65536, b"y\n" * 30_000, b"\n" * 1000, b"\xff" * 70_000, b"\nlast words\n\n", b"cut"):
        tail._keep(chunk)
    assert tail.cause == "cut"
    assert len(tail._lines) <= 50
    assert max(map(len, tail._lines)) <= 500


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
async def test_u91_a_node_server_that_cannot_start_is_down_for_its_own_reason(tmp_path: Path):
    (tmp_path / "server.mjs").write_text("import 'a-package-that-is-not-installed'\n")
    for program, told in (
        (["node", "missing.js"], "Error: Cannot find module"),
        (["node", "server.mjs"], "Cannot find package 'a-package-that-is-not-installed'"),
        ([sys.executable, "-c", "import zzz"], "ModuleNotFoundError: No module named 'zzz'"),
    ):
        mount = RemoteToolset(program, name="dead", cwd=tmp_path, start_timeout=20)
        with anyio.fail_after(30):
            async with mount:
                assert mount.status.state in ("offline", "failed", "stopped"), mount.status
                assert told in mount.status.reason, json.dumps(mount.status.reason)


PRINTS_ONCE = """
import sys
from pathlib import Path
begun = Path("begun")
if not begun.exists():
    begun.touch()
    print("Welcome!", flush=True)
    sys.exit("error: no network")
sys.exit("error: no key")
"""


async def test_u91_what_an_earlier_start_has_printed_is_no_reason_of_a_later_one(tmp_path: Path):
    (tmp_path / "server.py").write_text(PRINTS_ONCE)
    mount = RemoteToolset([sys.executable, "server.py"], name="dead", cwd=tmp_path, start_timeout=20)
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(mount)):
            await until(lambda: "no key" in mount.status.reason)
            assert "printed" not in mount.status.reason, mount.status.reason
