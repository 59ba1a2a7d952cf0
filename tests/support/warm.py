"""A process that has imported the SDK and this library, and runs scripts in forks of itself.

A start of Python that imports them costs a second of a processor; a fork costs some milliseconds. `launch.py`
is the program that is started in place of `python SCRIPT`. What is about the start of a process, or its
signals, is not tested with it.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
LAUNCH = str(Path(__file__).with_name("launch.py"))
WARM = "MCP_TOOLSET_TEST_WARM"
"""The variable of the environment that tells scripts in forks of the process that there is one."""

MODULES = (
    "mcp.client.stdio",
    "mcp.client.streamable_http",
    "mcp.server.lowlevel",
    "mcp.server.mcpserver",
    "mcp.server.sse",
    "mcp.server.stdio",
    "mcp.server.streamable_http_manager",
    "uvicorn.main",
    "uvicorn.protocols.http.auto",
    "uvloop",
    "mcp_toolset.cli.main",
    "mcp_toolset.hub.toolset",
    "mcp_toolset.hub.reload",
    "mcp_toolset.serving.serve",
    "mcp_toolset.transports.http.app",
    "mcp_toolset.transports.stdio_client",
    "mcp_toolset.transports.stdio_server",
    "mcp_toolset.upstream.toolset",
)


class Warm:
    """The process; its forks are started by their command."""

    def __init__(self, path: str) -> None:
        self.path = path

    def command(self, *arguments: str) -> list[str]:
        """What is started in place of `python ARGUMENT...`: a script, `-m` and a module, or `-c` and code."""
        return [sys.executable, "-S", LAUNCH, self.path, *arguments]


def python(*arguments: str) -> list[str]:
    """`Warm.command` for a script that runs in such a fork itself, and `python ARGUMENT...` for any other."""
    path = os.environ.get(WARM)
    return Warm(path).command(*arguments) if path else [sys.executable, *arguments]


@contextmanager
def warm_process(modules: Sequence[str] = MODULES) -> Generator[Warm]:
    """Start the process with some modules, and end it with all its forks."""
    with TemporaryDirectory(prefix="warm") as folder:
        path = f"{folder}/socket"
        command = [sys.executable, "-W", "error", "-m", "tests.support.warm", path, *modules]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, cwd=ROOT) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield Warm(path)
            # Its input is closed.


def _run(asked: dict[str, Any], path: str) -> int:
    """Be the script that is asked for, in a fork."""
    os.environ.clear()
    os.environ.update(asked["env"] | {WARM: path})
    os.chdir(asked["cwd"])
    sys.path[1:1] = filter(None, asked["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = argv = asked["argv"]
    try:
        if argv[0] == "-c":
            code = argv.pop(1)
            sys.path[0] = ""
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        elif argv[0] == "-m":
            del argv[0]
            sys.path[0] = asked["cwd"]
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(argv[0]).parent)
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    # The interpreter does the same for a script.
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _be(asked: bytes, descriptors: Sequence[int], path: str) -> None:
    code = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        # Those of other forks, and of the process itself.
        os.closerange(3, 1024)
        signal.set_wakeup_fd(-1)
        code = _run(json.loads(asked), path)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
    finally:
        os._exit(code)


class Forks:
    """The forks that run, each with the connection of the program that it is run for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._selector = selectors.DefaultSelector()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(path)
        self._listening.listen(64)
        self._selector.register(self._listening, selectors.EVENT_READ, self._accept)
        self._selector.register(0, selectors.EVENT_READ, None)
        self._running: dict[int, tuple[int, socket.socket]] = {}

    def run(self) -> None:
        """Serve until standard input is closed."""
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    for pid, _ in self._running.values():
                        os.kill(pid, signal.SIGKILL)
                    return
                # What came before it in this turn may have ended it.
                if self._selector.get_map().get(key.fileobj) is key:
                    key.data()

    def _accept(self) -> None:
        asking, _ = self._listening.accept()
        self._selector.register(asking, selectors.EVENT_READ, lambda: self._heard(asking))

    def _heard(self, asking: socket.socket) -> None:
        try:
            asked, descriptors, _, _ = socket.recv_fds(asking, 1 << 18, 3)
        except ConnectionError:
            # The program was killed before it had read what it was sent.
            asked, descriptors = b"", []
        ends = [(end, pid) for end, (pid, mine) in self._running.items() if mine is asking]
        if not asked:
            # The program was killed.
            self._selector.unregister(asking)
            for end, pid in ends:
                os.kill(pid, signal.SIGKILL)
                self._reap(end)
            asking.close()
            return
        pid = os.fork()
        if pid == 0:
            _be(asked, descriptors, self._path)
        for descriptor in descriptors:
            os.close(descriptor)
        end = os.pidfd_open(pid)
        self._running[end] = (pid, asking)
        self._selector.register(end, selectors.EVENT_READ, lambda: self._ended(end))
        with suppress(OSError):
            asking.send(b"%d" % pid)

    def _ended(self, end: int) -> None:
        asking = self._running[end][1]
        code = self._reap(end)
        with suppress(OSError):
            asking.send(b"%d" % (code if code >= 0 else 128 - code))

    def _reap(self, end: int) -> int:
        self._selector.unregister(end)
        os.close(end)
        pid, _ = self._running.pop(end)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(path: str, *modules: str) -> None:
    """Import what scripts need, then serve."""
    for name in modules:
        import_module(name)
    forks = Forks(path)
    gc.collect()
    gc.freeze()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    forks.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
