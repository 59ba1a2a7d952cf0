"""A server on streamable HTTP that answers well but for one message, once.

See `stdio_server` for its argument.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from behaviour import Behaviour  # pyright: ignore[reportMissingImports]
from messages import MESSAGES  # pyright: ignore[reportMissingImports]

BEHAVIOUR = Behaviour.read()
SCRIPT = BEHAVIOUR.script
FLAG = Path(SCRIPT["flag"])
LOCK = threading.Lock()
SENT = [0]
JSON, EVENTS = "application/json", "text/event-stream"


REPLIES: dict[str, tuple[int, bytes | None, str]] = {
    **{status: (int(status), b"no", "text/plain") for status in ("500", "404", "401", "429", "302")},
    "empty body": (200, b"", JSON),
    "wrong type": (200, None, "text/html"),
    "accepted": (202, b"", JSON),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_GET(self) -> None:
        self.reply(405, b"")

    def do_DELETE(self) -> None:
        self.reply(200, b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "method" not in message or "id" not in message:
            return self.reply(202, b"")
        found = BEHAVIOUR.answer(message)
        if found is None:
            return self.reply(404, b"")
        answer = {"jsonrpc": "2.0", "id": message["id"], **found}
        if self.is_spoiled(message["method"]):
            self.spoil(SCRIPT["fault"], answer)
        else:
            self.reply(200, json.dumps(answer).encode())

    def is_spoiled(self, method: str) -> bool:
        with LOCK:
            at, SENT[0] = SENT[0], SENT[0] + 1
            if "count" in SCRIPT:
                Path(SCRIPT["count"]).write_text(str(SENT[0]))
            if at != SCRIPT["at"] or FLAG.exists():
                return False
            FLAG.write_text(method)
            return True

    def spoil(self, fault: str, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        match fault:
            case "drop":
                self.close_connection = True
            case "half body":
                self.reply(200, body[:10], length=len(body))
                self.close_connection = True
            case _ if fault in REPLIES:
                status, content, kind = REPLIES[fault]
                self.reply(status, body if content is None else content, kind=kind)
            case "late":
                threading.Event().wait(0.3)
                self.reply(200, body)
            case "stream without answer":
                self.reply(200, b": a beginning\n\n", kind=EVENTS)
            case "broken encoding":
                self.reply(200, body, encoding="gzip")
            case _ if fault.startswith("events: "):
                lines = MESSAGES[fault.removeprefix("events: ")](answer)
                self.reply(200, b"".join(b"data: %b\n\n" % line for line in lines), kind=EVENTS)
            case _:
                self.reply(200, b"\n".join(MESSAGES[fault](answer)))

    def reply(
        self, status: int, body: bytes, *, kind: str = JSON, length: int | None = None, encoding: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body) if length is None else length))
        if encoding:
            self.send_header("content-encoding", encoding)
        if not SCRIPT.get("modern"):
            self.send_header("mcp-session-id", f"session-{os.getpid()}")
        self.end_headers()
        self.wfile.write(body)


class Listening(ThreadingHTTPServer):
    daemon_threads = True


def main() -> None:
    server = Listening(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.close()
    server.serve_forever()


main()
