"""The cost of authentication over HTTP: the same server without it, with a static token, with a JWT.

    python benchmarks/authenticated.py [--rounds 15] [--calls 300] [--quick] [--json FILE]

All three listen in one process. Calls go to them in turn, one after another, over connections that stay open;
every round divides its medians by those of the server without authentication.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import jwt
from measuring import markdown
from reporting import say, surroundings

SECRET: Final = "a secret of this benchmark, 32 bytes or more"
TOKEN: Final = "a-static-token-of-43-characters-0123456789a"
VERSION: Final = "2026-07-28"
SERVER: Final = f"""
from contextlib import ExitStack
import anyio
from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.auth import JWT, StaticTokens
from mcp_toolset.transports.http.app import bound_socket, run_app

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

auths = [
    None,
    StaticTokens({{"ci": {TOKEN!r}}}),
    JWT(issuer="https://idp.example.com", audience="https://tools.example.com/mcp", secret={SECRET!r}),
]

async def main():
    with ExitStack() as stack:
        sockets = [stack.enter_context(bound_socket("127.0.0.1", 0)) for _ in auths]
        print(*(one.getsockname()[1] for one in sockets), flush=True)
        async with anyio.create_task_group() as group:
            for auth, listening in zip(auths, sockets):
                group.start_soon(run_app, ToolsetServer(Toolset(add), auth=auth).http_app(), listening)

anyio.run(main)
"""


def credentials() -> dict[str, str | None]:
    """The `Authorization` header for each server; the JWT has as many claims as those of large issuers."""
    claims = {
        "iss": "https://idp.example.com",
        "aud": "https://tools.example.com/mcp",
        "sub": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "azp": "desk",
        "exp": int(time.time()) + 86400,
        "scope": "openid profile tools:read tools:write",
        "realm_access": {"roles": [f"role-{number}" for number in range(20)]},
    }
    return {"none": None, "static token": TOKEN, "JWT": jwt.encode(claims, SECRET)}


class Caller:
    """A client of one server in one era: the bytes of a call, and a connection that stays open."""

    def __init__(self, port: int, token: str | None, era: str, path: str = "/mcp", name: str = "add") -> None:
        """Connect; in the legacy era, open a session. The tool adds two numbers."""
        self._path = path
        self._connection = socket.create_connection(("127.0.0.1", port))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        common = ["Accept: application/json, text/event-stream", "Content-Type: application/json"]
        if token is not None:
            common.append(f"Authorization: Bearer {token}")
        params: dict[str, Any] = {"name": name, "arguments": {"a": 1, "b": 2}}
        if era == "modern":
            prefix = "io.modelcontextprotocol/"
            about = {"protocolVersion": VERSION, "clientInfo": {"name": "benchmark", "version": "1"}}
            params["_meta"] = {f"{prefix}{key}": value for key, value in about.items()}
            params["_meta"][f"{prefix}clientCapabilities"] = {}
            own = [f"MCP-Protocol-Version: {VERSION}", "Mcp-Method: tools/call", f"Mcp-Name: {name}"]
        else:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
            hello["clientInfo"] = {"name": "benchmark", "version": "1"}
            head, _ = self._asked(self._request(common, "initialize", hello))
            session = next(line for line in head.split("\r\n") if line.lower().startswith("mcp-session-id"))
            own = ["MCP-Protocol-Version: 2025-11-25", session]
        self._call = self._request([*common, *own], "tools/call", params)
        if '"3"' not in self._asked(self._call)[1]:
            raise RuntimeError("the call was not answered")

    def call(self) -> float:
        """Call once; the seconds that it took."""
        began = time.perf_counter()
        self._asked(self._call)
        return time.perf_counter() - began

    def close(self) -> None:
        """Leave."""
        self._connection.close()

    def _request(self, headers: list[str], method: str, params: dict[str, Any]) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        first = [f"POST {self._path} HTTP/1.1", "Host: 127.0.0.1:8000"]
        return "\r\n".join([*first, *headers, f"Content-Length: {len(body)}", "", body]).encode()

    def _asked(self, request: bytes) -> tuple[str, str]:
        self._connection.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._connection.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        text = head.decode().lower()
        size = int(text.split("content-length: ")[1].split("\r\n")[0])
        while len(body) < size:
            body += self._connection.recv(65536)
        return head.decode(), body.decode()


@contextmanager
def serving() -> Iterator[list[int]]:
    """The servers that run: their ports."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield [int(port) for port in process.stdout.readline().split()]
        finally:
            process.kill()


def measured(era: str, rounds: int, calls: int) -> list[dict[str, Any]]:
    """The rows of one era: for each server its median, and ratios to the server without authentication."""
    tokens = credentials()
    with ExitStack() as stack:
        ports = stack.enter_context(serving())
        callers = {
            kind: Caller(port, token, era) for (kind, token), port in zip(tokens.items(), ports, strict=True)
        }
        for caller in callers.values():
            stack.callback(caller.close)
        for _ in range(calls):
            for caller in callers.values():
                caller.call()
        p50: dict[str, list[float]] = {kind: [] for kind in tokens}
        for _ in range(rounds):
            times: dict[str, list[float]] = {kind: [] for kind in tokens}
            for number in range(calls):
                for kind in list(tokens)[:: -1 if number % 2 else 1]:
                    times[kind].append(callers[kind].call())
            for kind in tokens:
                p50[kind].append(statistics.median(times[kind]))
    return [
        {
            "era": era,
            "authentication": kind,
            "p50_us": round(1e6 * statistics.median(p50[kind]), 1),
            "x_p50": _ratio(p50[kind], p50["none"]),
        }
        for kind in tokens
    ]


def _ratio(some: list[float], base: list[float]) -> float:
    return round(statistics.median(one / other for one, other in zip(some, base, strict=True)), 3)


def main() -> None:
    """Measure both eras."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=300, help="calls of each server in a round")
    parser.add_argument("--quick", action="store_true", help="see that it runs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds, calls = (2, 10) if options.quick else (options.rounds, options.calls)
    finished = surroundings("authenticated", {"rounds": rounds, "calls": calls})
    rows: list[dict[str, Any]] = []
    for era in ("legacy", "modern"):
        say("authenticated", era)
        rows += measured(era, rounds, calls)
    report = {**finished(), "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    sys.stdout.write(markdown(list(rows[0]), [[str(cell) for cell in row.values()] for row in rows]) + "\n")


if __name__ == "__main__":
    main()
