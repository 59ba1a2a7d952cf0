"""HTTP in a process of its own: what is loaded for it, and how it ends under a uvicorn of a program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPResponse
from typing import Any, Final

from tests.transports.test_http_endpoint import HEADERS, META
from tests.transports.test_http_endpoint import call as modern_call
from tests.transports.test_legacy_sessions import INITIALIZE
from tests.transports.test_legacy_sessions import call as legacy_call

SOON: Final = 60.0
"""Seconds for what happens at once: much for a busy machine."""

PROGRAM = """
import socket, sys
import uvicorn
from mcp_toolset import Toolset, ToolsetServer, tool

@tool
def add(a: int, b: int) -> list[str]:
    "What of the SDK is loaded."
    found = {name.partition(".")[0] for name in sys.modules}
    return sorted(found & {"mcp", "mcp_types", "sse_starlette"})

listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
app = ToolsetServer(Toolset(add)).http_app()
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
"""
JSON = {name: value for name, value in HEADERS.items() if not name.startswith("mcp-") and name != "host"}
LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {"notifications": {"toolsListChanged": True}, "_meta": META},
}


class Host:
    """A program with a uvicorn of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self._leaving = ExitStack()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def asked(self, method: str, path: str, headers: dict[str, str], message: Any = None) -> HTTPResponse:
        connection = self._leaving.enter_context(
            closing(HTTPConnection("127.0.0.1", self.port, timeout=SOON))
        )
        connection.request(method, path, None if message is None else json.dumps(message), headers)
        return self._leaving.enter_context(closing(connection.getresponse()))

    def session(self) -> dict[str, str]:
        """The headers of a new legacy session."""
        with self.asked("POST", "/mcp", JSON, INITIALIZE) as opened:
            name = opened.headers["mcp-session-id"]
        return {**JSON, "mcp-session-id": name, "mcp-protocol-version": "2025-11-25"}

    def streams(self) -> list[HTTPResponse]:
        """One open stream of each kind, begun."""
        listening = {**JSON, "mcp-protocol-version": HEADERS["mcp-protocol-version"]}
        listening["mcp-method"] = "subscriptions/listen"
        opened = [
            self.asked("GET", "/mcp", self.session()),
            self.asked("GET", "/sse", JSON),
            self.asked("POST", "/mcp", listening, LISTEN),
        ]
        for stream in opened:
            assert stream.status == 200 and stream.readline()
        return opened


def test_serving_over_http_loads_nothing_of_the_sdk() -> None:
    with Host() as host:
        session = host.session()
        host.streams()
        modern = {name: value for name, value in HEADERS.items() if name != "host"}
        for headers, message in ((modern, modern_call()), (session, legacy_call())):
            with host.asked("POST", "/mcp", headers, message) as answer:
                assert json.load(answer)["result"]["structuredContent"] == {"result": []}


def test_f44_a_uvicorn_of_a_program_ends_though_streams_are_open() -> None:
    """It waits for the last response, and tells the application of its end only then."""
    with Host() as host:
        streams = host.streams()
        rest = [threading.Thread(target=stream.read) for stream in streams]
        for each in rest:
            each.start()
        host.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + SOON
        host.process.wait(SOON)
        for each in rest:
            each.join(max(0.0, until - time.monotonic()))
            assert not each.is_alive()
