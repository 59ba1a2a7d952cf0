"""How far a bridge grows for clients that ask and do not read: `[SECONDS [CALLS [BYTES [WHICH …]]]]`.

A bridge is sent many calls at once, over stdio, over HTTP and over SSE, and no answer is read. It has a
stdio server behind it, and then an HTTP server; `SSE-HTTP` is one of these. It prints the most memory that
the bridge held meanwhile, beyond what it held before.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
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


@dataclass(frozen=True)
class Load:
    """What is asked of each bridge, and for how long it is watched."""

    seconds: float
    calls: int
    size: int


def call(number: int, **arguments: Any) -> dict[str, Any]:
    params = {"name": "raw_echo", "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def memory_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def watched(pid: int, idle: int, seconds: float) -> str:
    """The most memory over `idle` within the time, and what is held at its end."""
    most, end = idle, time.monotonic() + seconds
    while time.monotonic() < end:
        most = max(most, memory_of(pid))
        time.sleep(0.02)  # noqa: TID251
    return f"{(most - idle) / MB:7.1f} MB at most, {(memory_of(pid) - idle) / MB:7.1f} MB after {seconds:g} s"


class Upstream(BaseHTTPRequestHandler):
    """A server without any library over HTTP, which answers with JSON."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            return self._answer(202, b"")
        answer = {"jsonrpc": "2.0", "id": message["id"], **_outcome(message)}
        return self._answer(200, json.dumps(answer).encode())

    def do_GET(self) -> None:
        self._answer(405, b"")

    def _answer(self, status: int, body: bytes) -> None:
        with suppress(OSError):
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _outcome(message: Mapping[str, Any]) -> dict[str, Any]:
    given = message.get("params", {}).get("arguments", {})
    match message["method"]:
        case "initialize":
            about, can = {"name": "raw", "version": "1"}, {"tools": {}}
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": about}}
        case "tools/list":
            return {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
        case "tools/call":
            text = given.get("text") or "x" * given["size"]
            return {"result": {"content": [{"type": "text", "text": text}]}}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


@contextmanager
def upstream(kind: str) -> Generator[dict[str, Any]]:
    """The entry of a server in a configuration."""
    if kind == "stdio":
        yield {"command": sys.executable, "args": ["-S", str(HERE / "raw_upstream.py")]}
        return
    command = [sys.executable, __file__, "--upstream"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield {"url": f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"}
        finally:
            process.kill()


@contextmanager
def bridge(kind: str, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    """A bridge as its users start it, with one server behind it."""
    with TemporaryDirectory() as folder, upstream(kind) as server:
        config = Path(folder) / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"raw": server}}))
        command = [sys.executable, "-m", "mcp_toolset", "serve", str(config), *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()


def over_stdio(kind: str, load: Load) -> str:
    with bridge(kind) as process:
        assert process.stdin is not None and process.stdout is not None

        def say(message: Mapping[str, Any]) -> None:
            assert process.stdin is not None
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()

        say(BEGIN)
        process.stdout.readline()
        say(BEGUN)
        say(call(0, text="ready"))
        process.stdout.readline()
        idle = memory_of(process.pid)

        def ask() -> None:
            with suppress(OSError):
                for number in range(load.calls):
                    say(call(number + 1, size=load.size))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            return watched(process.pid, idle, load.seconds)
        finally:
            process.kill()
            asking.join()


def posted(
    port: int, message: Mapping[str, Any], headers: Mapping[str, str], stack: ExitStack, path: str = "/mcp"
) -> Any:
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
    connection.sendall(f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    return connection


@contextmanager
def listening(kind: str) -> Generator[tuple[subprocess.Popen[bytes], int, ExitStack]]:
    """A bridge that listens, and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with bridge(kind, "--transport", "http", "--port", str(port)) as process, ExitStack() as stack:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)  # noqa: TID251
        yield process, port, stack


def over_sse(kind: str, load: Load) -> str:
    with listening(kind) as (process, port, stack):
        stream = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        stream.sendall(f"GET /sse HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
        events = stack.enter_context(stream.makefile("rb"))

        def data() -> bytes:
            return next(line for line in iter(events.readline, b"") if line.startswith(b"data: "))

        path = data().decode()[6:].strip()
        ready = call(0, text="ready")
        for message in (BEGIN, BEGUN, ready):
            posted(port, message, {}, stack, path).recv(65536)
            if "id" in message:
                data()
        idle = memory_of(process.pid)
        for number in range(load.calls):
            posted(port, call(number + 1, size=load.size), {}, stack, path)
        return watched(process.pid, idle, load.seconds)


def over_http(kind: str, load: Load) -> str:
    with listening(kind) as (process, port, stack):
        head = posted(port, BEGIN, {}, stack).recv(65536).decode("latin-1").lower()
        session = {
            "mcp-session-id": head.partition("mcp-session-id: ")[2].partition("\r\n")[0],
            "mcp-protocol-version": "2025-11-25",
        }
        posted(port, BEGUN, session, stack).recv(65536)
        ready = call(0, text="ready")
        posted(port, ready, session, stack).recv(65536)
        idle = memory_of(process.pid)
        for number in range(load.calls):
            posted(port, call(number + 1, size=load.size), session, stack)
        return watched(process.pid, idle, load.seconds)


def main(arguments: Sequence[str]) -> None:
    if list(arguments) == ["--upstream"]:
        with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as serving:
            print(serving.server_address[1], flush=True)
            serving.serve_forever()
    numbers = dict(enumerate(arguments[:3]))
    load = Load(float(numbers.get(0, 60)), int(numbers.get(1, 658)), int(numbers.get(2, 8 * MB)))
    doors = {"stdio": over_stdio, "HTTP": over_http, "SSE": over_sse}
    for kind in ("stdio", "HTTP"):
        for name, run in doors.items():
            if len(arguments) < 4 or f"{name}-{kind}" in arguments[3:]:
                told = f"{name:6} before {kind:6} {load.calls} calls of {load.size / MB:g} MB"
                print(f"{told}: {run(kind, load)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
