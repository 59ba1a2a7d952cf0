"""The resources of a replica for each session, stream, mounted server and tool, and for N of them.

    python benchmarks/sizing.py [--sessions 1000] [--json FILE]

Memory is what a server's process has for itself (`Private_*` of Linux), before and after so many more of one
thing; the difference is divided. CPU is that of the server's process, the least of the samples. The servers
that are mounted, and the store, are processes of their own and not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from socket import create_connection, socket
from typing import Any

from costs import CLIENT, HELLO
from measuring import cpu_of, markdown
from reporting import say, surroundings

HERE = Path(__file__).parent
SAMPLES, CALLS = 8, 100
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Place:
    """A server as a process that answers on a port."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    @property
    def cpu(self) -> float:
        return cpu_of(self.process.pid)

    @property
    def memory(self) -> float:
        """KiB that are its own, once they have been the same for a while."""
        seen = list[float]()
        while len(seen) < 3 or max(seen[-3:]) - min(seen[-3:]) > 64:
            time.sleep(0.3)  # noqa: TID251
            lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
            seen.append(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")))
        return seen[-1]

    def connection(self) -> socket:
        return create_connection(("127.0.0.1", self.port), timeout=60)

    def post(self, to: socket, message: dict[str, Any], **headers: str) -> bytes:
        """Post a message to `/mcp`, and return the head and the body of the answer."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        head = {"Host": f"127.0.0.1:{self.port}", "Content-Type": "application/json"}
        head |= {"Accept": "application/json, text/event-stream", "Content-Length": str(len(body)), **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        to.sendall(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
        return answer(to)

    def get(self, to: socket, path: str, **headers: str) -> bytes:
        """Open a stream, and return its head."""
        head = {"Host": f"127.0.0.1:{self.port}", "Accept": "text/event-stream", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        to.sendall(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        return until(to, b"\r\n\r\n")

    def session(self, to: socket) -> dict[str, str]:
        """Open a legacy session, and return its headers."""
        found = self.post(to, {"id": 1, "method": "initialize", "params": HELLO})
        head = found.split(b"\r\n\r\n")[0].decode().splitlines()
        name = next(line.split(": ")[1] for line in head if line.lower().startswith("mcp-session-id"))
        headers = {"Mcp-Session-Id": name, "Mcp-Protocol-Version": "2025-11-25"}
        self.post(to, {"method": "notifications/initialized"}, **headers)
        return headers

    def modern(self, to: socket, method: str, **params: Any) -> bytes:
        """A request of a modern client."""
        headers = {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        if method == "tools/call":
            headers["Mcp-Name"] = params["name"]
        request = {"id": 1, "method": method, "params": {**params, "_meta": MODERN}}
        return self.post(to, request, **headers)


def until(connection: socket, mark: bytes) -> bytes:
    found = b""
    while mark not in found:
        part = connection.recv(65536)
        if not part:
            raise RuntimeError(f"the server closed the connection after {found[:300]!r}")
        found += part
    return found


def answer(connection: socket) -> bytes:
    """One answer: of a length that is said, or the first event of a stream."""
    found = until(connection, b"\r\n\r\n")
    head, _, body = found.partition(b"\r\n\r\n")
    sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    if not head.startswith(b"HTTP/1.1 2"):
        raise RuntimeError(found[:500])
    if not sizes:
        return found if b"data:" in body else found + until(connection, b"data:")
    while len(body) < int(sizes[0].split(b":")[1]):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def serving(
    tools: int = 0, way: str = "listed", mounts: int = 0, target: str = "", *more: str
) -> Generator[Place]:
    """A server in a process, which answers."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(port), str(tools), way, str(mounts), target, *more]
    process = subprocess.Popen([sys.executable, str(HERE / "sized_server.py"), *words])
    place = Place(process, port)
    try:
        waited = time.monotonic() + 120
        while process.poll() is None:
            try:
                with place.connection() as connection:
                    place.modern(connection, "tools/list")
                break
            except OSError:
                if time.monotonic() > waited:
                    raise
                time.sleep(0.1)  # noqa: TID251
        yield place
    finally:
        process.terminate()
        process.wait(30)


def sessions(count: int) -> dict[str, float]:
    """KiB for each client of so many, by what the client keeps open."""
    found = dict[str, float]()
    with serving() as place, ExitStack() as stack:
        found["a replica, without clients"] = place.memory

        def opened() -> socket:
            return stack.enter_context(place.connection())

        def measure(name: str, number: int, kept: str) -> None:
            before = place.memory
            for _ in range(number):
                KEPT[kept](place, opened())
            found[name] = (place.memory - before) / number

        for kept in KEPT:
            measure("", 20, kept)
        for name, kept in NAMES.items():
            say("sizing", name)
            measure(name, count, kept)
    found.pop("")
    return found


def _session(place: Place, to: socket) -> None:
    with to:
        place.session(to)


def _stream(place: Place, to: socket) -> None:
    with place.connection() as other:
        headers = place.session(other)
    place.get(to, "/mcp", **headers)


def _listener(place: Place, to: socket) -> None:
    filters = {"toolsListChanged": True}
    place.modern(to, "subscriptions/listen", notifications=filters)


KEPT = {
    "idle": lambda place, to: place.modern(to, "tools/list"),
    "session": _session,
    "stream": _stream,
    "listener": _listener,
    "sse": lambda place, to: place.get(to, "/sse"),
}
NAMES = {
    "a modern client with an open connection": "idle",
    "a modern client with `subscriptions/listen`": "listener",
    "a legacy session, its client connected when it calls": "session",
    "a legacy session with an open stream": "stream",
    "a session on SSE": "sse",
}


def grown(count: int, server: Callable[[int], AbstractContextManager[Place]]) -> float:
    """KiB for each of `count` more than ten."""
    taken = list[float]()
    for number in (10, 10 + count):
        with server(number) as place:
            taken.append(place.memory)
    return (taken[1] - taken[0]) / count


def calls() -> dict[str, float]:
    """CPU milliseconds of a replica: the least of the samples."""
    found = dict[str, float]()
    with serving() as origin:
        target = f"http://127.0.0.1:{origin.port}/mcp"
        with serving(0, "listed", 1, target) as place, place.connection() as one, place.connection() as two:
            headers = place.session(one)
            name, arguments = "u0_add", {"a": 1, "b": 2}
            params = {"name": name, "arguments": arguments}
            works = {
                "a call, modern client, server on HTTP": lambda: place.modern(two, "tools/call", **params),
                "a call, legacy client, server on HTTP": lambda: place.post(
                    one, {"id": 2, "method": "tools/call", "params": params}, **headers
                ),
                "a list of two tools, modern client": lambda: place.modern(two, "tools/list"),
                "a legacy session opened": lambda: place.session(one),
            }
            for title, work in works.items():
                say("sizing", title)
                taken = list[float]()
                for _ in range(SAMPLES):
                    before = place.cpu
                    for _ in range(CALLS):
                        work()
                    taken.append(1e3 * (place.cpu - before) / CALLS)
                found[title] = min(taken)
    return found


def mounted() -> dict[str, float]:
    found = dict[str, float]()
    say("sizing", "tools")
    found["a listed tool of a mounted server"] = grown(4000, lambda number: serving(number, "listed"))
    found["a deferred tool of a mounted server"] = grown(4000, lambda number: serving(number, "deferred"))
    say("sizing", "mounted servers")
    found["a mounted server on stdio, without its process"] = grown(
        40, lambda number: serving(0, "listed", number, "stdio")
    )
    with serving() as origin:
        target = f"http://127.0.0.1:{origin.port}/mcp"
        found["a mounted server on HTTP"] = grown(200, lambda number: serving(0, "listed", number, target))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    finished = surroundings("sizing", {"sessions": options.sessions})
    memory = sessions(options.sessions) | mounted()
    cpu = calls()
    print(markdown(["memory", "KiB"], [[name, f"{value:,.1f}"] for name, value in memory.items()]))
    print()
    print(markdown(["CPU", "ms"], [[name, f"{value:.2f}"] for name, value in cpu.items()]))
    report = {**finished(), "memory_kib": memory, "cpu_ms": cpu}
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
