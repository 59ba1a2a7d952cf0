"""An HTTP server that repeats what it is sent, wherever it can: in texts, errors, headers, challenges."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

PATHS = ("tells", "errs", "fails", "refuses", "forbids")
"""How it repeats: as an MCP server in texts or errors, by 500, by 401 and by 403."""


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Echoing

    def do_GET(self) -> None:
        base = self.server.base
        if "oauth-protected-resource" in self.path:
            resource = base + self.path.partition("oauth-protected-resource")[2]
            self._json(200, {"resource": resource, "authorization_servers": [base]})
        elif "oauth-authorization-server" in self.path:
            names = {name: f"{base}/{name}" for name in ("authorization_endpoint", "token_endpoint")}
            lists = {"code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"]}
            self._json(200, {"issuer": base, **names, **lists})
        else:
            self._json(405, {"said": self._said("")})

    def do_DELETE(self) -> None:
        self._json(405, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        said = self._said(body)
        kind = next((path for path in PATHS if self.path.startswith(f"/{path}")), "")
        if self.path == "/token_endpoint":
            issued = self.server.issued.pop(0) if self.server.issued else ""
            if issued:
                self._json(200, {"access_token": issued, "token_type": "Bearer", "expires_in": 300})
            else:
                self._json(400, {"error": "invalid_grant", "error_description": said})
        elif kind == "tells":
            self._message(json.loads(body), said)
        elif kind == "errs":
            self._error(json.loads(body), said)
        elif kind == "fails":
            self._json(500, {"error": said})
        else:
            error = "invalid_token" if kind == "refuses" else "insufficient_scope"
            quoted = re.sub(r'[^ -~]|["\\]', "", said)
            challenge = f'Bearer error="{error}", scope="all", error_description="{quoted}"'
            self._json(401 if kind == "refuses" else 403, {"error": said}, {"WWW-Authenticate": challenge})

    def _said(self, body: str) -> str:
        given = " ".join(value for name, value in self.headers.items() if name.lower() != "user-agent")
        return f"no login with {given} {self.path} {unquote(body)}"

    def _message(self, message: dict[str, Any], said: str) -> None:
        info = {"name": said, "title": said, "version": said}
        schema = {"type": "object", "properties": {"a": {"type": "string", "description": said}}}
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": info,
                "instructions": said,
            },
            "tools/list": {"tools": [{"name": "say", "description": said, "inputSchema": schema}]},
            "tools/call": {"isError": True, "content": [{"type": "text", "text": said}]},
            "ping": {},
        }
        result = results.get(message.get("method", ""))
        if "id" not in message:
            self._json(202, None)
        elif result is None:
            self._error(message, said)
        else:
            self._json(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _error(self, message: dict[str, Any], said: str) -> None:
        error = {"code": -32601, "message": said, "data": {"said": [said]}}
        self._json(200, {"jsonrpc": "2.0", "id": message.get("id"), "error": error})

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        given = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
        for name, text in given.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what it writes is no output of ours."""


class Echoing(ThreadingHTTPServer):
    """The server; `issued` are the access tokens that it gives next."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Echo)
        self.base = f"http://127.0.0.1:{self.server_address[1]}"
        self.issued: list[str] = []


@contextmanager
def echoing() -> Iterator[Echoing]:
    """The server, for a block."""
    with Echoing() as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(60)
