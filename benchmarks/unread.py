"""How far a bridge grows for clients that ask and do not read: `unread.py [SECONDS [CALLS [BYTES]]]`.

A bridge with a stdio server behind it is sent many calls at once, over stdio and then over HTTP, and no
answer is read. It prints the most memory that the bridge held meanwhile, beyond what it held before.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
CALLS = int(sys.argv[2]) if len(sys.argv) > 2 else 658
SIZE = int(sys.argv[3]) if len(sys.argv) > 3 else 8 * 1024 * 1024
MB = 1024 * 1024
BEGIN: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "unread", "version": "1"},
    },
}
BEGUN: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(number: int) -> dict[str, Any]:
    params = {"name": "raw_echo", "arguments": {"size": SIZE}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def memory_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def watched(pid: int, idle: int) -> str:
    """The most memory over `idle` within the time, and what is held at its end."""
    most, end = idle, time.monotonic() + SECONDS
    while time.monotonic() < end:
        most = max(most, memory_of(pid))
        time.sleep(0.02)  # noqa: TID251
    return f"{(most - idle) / MB:7.1f} MB at most, {(memory_of(pid) - idle) / MB:7.1f} MB after {SECONDS:g} s"


@contextmanager
def bridge(*arguments: str) -> Generator[subprocess.Popen[bytes]]:
    """A bridge as its users start it, with one server behind it."""
    with TemporaryDirectory() as folder:
        config = Path(folder) / "mcp.json"
        server = {"command": sys.executable, "args": ["-S", str(HERE / "raw_upstream.py")]}
        config.write_text(json.dumps({"mcpServers": {"raw": server}}))
        command = [sys.executable, "-m", "mcp_toolset", "serve", str(config), *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()


def over_stdio() -> str:
    with bridge() as process:
        assert process.stdin is not None and process.stdout is not None

        def say(message: Mapping[str, Any]) -> None:
            assert process.stdin is not None
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()

        say(BEGIN)
        process.stdout.readline()
        say(BEGUN)
        say(call(0) | {"params": {"name": "raw_echo", "arguments": {"text": "ready"}}})
        process.stdout.readline()
        idle = memory_of(process.pid)

        def ask() -> None:
            with suppress(OSError):
                for number in range(CALLS):
                    say(call(number + 1))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            return watched(process.pid, idle)
        finally:
            process.kill()
            asking.join()


def posted(port: int, message: Mapping[str, Any], headers: Mapping[str, str], stack: ExitStack) -> Any:
    """A connection that has sent a request and reads as much as it is told to."""
    body = json.dumps(message).encode()
    head = {
        "host": f"127.0.0.1:{port}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "content-length": str(len(body)),
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    connection.sendall(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
    return connection


def over_http() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with bridge("--transport", "http", "--port", str(port)) as process, ExitStack() as stack:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)  # noqa: TID251
        head = posted(port, BEGIN, {}, stack).recv(65536).decode("latin-1").lower()
        session = {
            "mcp-session-id": head.partition("mcp-session-id: ")[2].partition("\r\n")[0],
            "mcp-protocol-version": "2025-11-25",
        }
        posted(port, BEGUN, session, stack).recv(65536)
        ready = call(0) | {"params": {"name": "raw_echo", "arguments": {"text": "ready"}}}
        posted(port, ready, session, stack).recv(65536)
        idle = memory_of(process.pid)
        for number in range(CALLS):
            posted(port, call(number + 1), session, stack)
        return watched(process.pid, idle)


if __name__ == "__main__":
    for name, run in (("stdio", over_stdio), ("HTTP", over_http)):
        print(f"{name:6} {CALLS} calls of {SIZE / MB:g} MB: {run()}", flush=True)
