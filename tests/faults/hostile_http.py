"""A hostile server on HTTP: streamable HTTP at /mcp and SSE at /sse, by the standard library alone."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from behaviour import Behaviour, text  # pyright: ignore[reportMissingImports]

BEHAVIOUR = Behaviour.read()
SESSION = f"session-{os.getpid()}"
GATE = threading.Event()
WAITING: list[tuple[queue.Queue[dict[str, Any] | None], Any]] = []
STREAMS: list[queue.Queue[dict[str, Any] | None]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_GET(self) -> None:
        self._log(None)
        if self.path.partition("?")[0] != "/sse":
            return self._status(405) if "get" not in BEHAVIOUR.script else self._stream_that_ends()
        stream: queue.Queue[dict[str, Any] | None] = queue.Queue()
        STREAMS.append(stream)
        self._stream_head()
        endpoint = BEHAVIOUR.script.get("endpoint", "") + f"/messages?session_id={len(STREAMS) - 1}"
        self._event(endpoint, "endpoint")
        while (item := stream.get()) is not None:
            self._event(json.dumps(item))
        self.close_connection = True

    def _stream_that_ends(self) -> None:
        if BEHAVIOUR.script["get"] == "drop":
            self.close_connection = True
            return
        self._stream_head()
        self.close_connection = True

    def do_DELETE(self) -> None:
        self._log(None)
        self._status(200)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._log(message)
        if self.path.startswith("/messages"):
            return self._post_to_stream(message)
        if "redirect" in BEHAVIOUR.script:
            self.send_response(307)
            self.send_header("location", BEHAVIOUR.script["redirect"])
            self.send_header("content-length", "0")
            return self.end_headers()
        session = self.headers.get("mcp-session-id")
        if session not in (None, SESSION):
            error = {"code": -32600, "message": "Session not found"}
            return self._json({"jsonrpc": "2.0", "id": None, "error": error}, 404)
        if "id" not in message:
            return self._status(202)
        self._answer(message)

    def _answer(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        name = params.get("name") if message["method"] == "tools/call" else None
        if name == "cut" or message["method"] == "subscriptions/listen":
            self._stream_head()
            self.wfile.write(b": a beginning\n\n")
            self.close_connection = True
        elif name == "flood":
            self._stream_head()
            self.wfile.write(b"".join(map(self._event_of, self._flood(message))))
            self.close_connection = True
        elif name == "drop":
            self.close_connection = True
        elif name == "half":
            self._json({"jsonrpc": "2.0", "id": message["id"], "result": text("all")}, 200, missing=5)
            self.close_connection = True
        elif name == "garbled":
            self._json({"jsonrpc": "2.0", "id": message["id"], "result": text("all")}, 200, encoding="gzip")
        elif name == "open":
            GATE.set()
            self._json({"jsonrpc": "2.0", "id": message["id"], "result": text("done")}, 200)
        elif name == "wait":
            GATE.wait()
            self._json({"jsonrpc": "2.0", "id": message["id"], "result": text("done")}, 200)
        elif name == "big":
            result = text("x" * params["arguments"]["size"])
            self._stream_head()
            self._event(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
            self.close_connection = True
        elif (answer := BEHAVIOUR.answer(message)) is None:
            self.rfile.read(1)
            self.close_connection = True
        else:
            self._json({"jsonrpc": "2.0", "id": message["id"], **answer}, 200)

    def _flood(self, message: dict[str, Any]) -> Generator[dict[str, Any]]:
        """Log messages and progress in turn, a log message last, and then the result."""
        token = message["params"].get("_meta", {}).get("progressToken")
        for step in range(message["params"]["arguments"]["count"]):
            params = (
                {"progressToken": token, "progress": step} if step % 2 else {"level": "info", "data": step}
            )
            method = f"notifications/{'progress' if step % 2 else 'message'}"
            yield {"jsonrpc": "2.0", "method": method, "params": params}
        yield {"jsonrpc": "2.0", "id": message["id"], "result": BEHAVIOUR.stamped(text("done"))}

    def _event_of(self, message: dict[str, Any]) -> bytes:
        return f"event: message\ndata: {json.dumps(message)}\n\n".encode()

    def _post_to_stream(self, message: dict[str, Any]) -> None:
        name = (message.get("params") or {}).get("name")
        if name == "refuse_post":
            return self._status(500)
        if name == "drop":
            self.close_connection = True
            return
        self._status(202)
        stream = STREAMS[int(self.path.rpartition("=")[2])]
        if name == "end_stream":
            stream.put(None)
        elif name == "flood":
            for said in self._flood(message):
                stream.put(said)
        elif name == "wait":
            WAITING.append((stream, message["id"]))
        elif name == "open":
            for waiting, number in [*WAITING, (stream, message["id"])]:
                waiting.put({"jsonrpc": "2.0", "id": number, "result": text("done")})
        elif "id" in message and (answer := BEHAVIOUR.answer(message)) is not None:
            stream.put({"jsonrpc": "2.0", "id": message["id"], **answer})

    def _log(self, message: Any) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        BEHAVIOUR.log({"verb": self.command, "headers": headers, "message": message, "at": time.monotonic()})

    def _status(self, code: int) -> None:
        self.send_response(code)
        self.send_header("content-length", "0")
        self.end_headers()

    def _json(self, value: Any, code: int, *, missing: int = 0, encoding: str = "") -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body) + missing))
        if encoding:
            self.send_header("content-encoding", encoding)
        if not BEHAVIOUR.script.get("modern"):
            self.send_header("mcp-session-id", SESSION)
        self.end_headers()
        self.wfile.write(body)

    def _stream_head(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()

    def _event(self, data: str, event: str = "message") -> None:
        self.wfile.write(f"event: {event}\ndata: {data}\n\n".encode())
        self.wfile.flush()


class Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def main() -> None:
    server = Listening(("127.0.0.1", BEHAVIOUR.script.get("port", 0)), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.close()
    server.serve_forever()


main()
