"""A server that wants tokens, with authorization endpoints that answer as a test says; over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

JSON = "application/json"


@dataclass
class OddEndpoint:
    """What is answered, and what was asked.

    Attributes:
        base: Where it is.
        answers: Status, content type and body by path; `None` as the status writes the body without a head.
        received: The method, path and body of each request.
        metadata: Members of the metadata of the authorization server, which replace its own.
        token: The token that the server itself wants.
        resource_metadata: The address in its challenge; its own unless given.
        authorization_server: The address of its authorization server; its own unless given.
        host: The name that it calls itself by.
    """

    base: str = ""
    answers: dict[str, tuple[int | None, str, bytes]] = field(default_factory=dict[str, Any])
    received: list[str] = field(default_factory=list[str])
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    token: str = ""
    resource_metadata: str = ""
    authorization_server: str = ""
    host: str = "127.0.0.1"

    @property
    def public(self) -> str:
        """Where it says that it is."""
        return self.base.replace("127.0.0.1", self.host)

    def answer(
        self, path: str, body: bytes | dict[str, Any], kind: str = JSON, status: int | None = 200
    ) -> None:
        """Have a path answered."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[path] = (status, kind, raw)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def _taken(self) -> None:
        where: OddEndpoint = self.server.where
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        where.received.append(f"{self.command} {self.path} {body}")
        if self.path in where.answers:
            return self._send(*where.answers[self.path])
        if "oauth-protected-resource" in self.path:
            server = where.authorization_server or where.public
            return self._json(200, {"resource": f"{where.public}/mcp", "authorization_servers": [server]})
        if "oauth-authorization-server" in self.path:
            names = ("authorization_endpoint", "token_endpoint", "registration_endpoint")
            told = {name: f"{where.public}/{name}" for name in names}
            lists = {"code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"]}
            return self._json(200, {"issuer": where.public, **told, **lists, **where.metadata})
        if self.path != "/mcp":
            return self._json(404, {})
        if self.headers.get("authorization") != f"Bearer {where.token}" or not where.token:
            place = where.resource_metadata or f"{where.public}/.well-known/oauth-protected-resource"
            return self._json(401, {}, {"WWW-Authenticate": f'Bearer resource_metadata="{place}"'})
        self._mcp(json.loads(body or "{}"))

    do_GET = do_POST = do_DELETE = _taken

    def _mcp(self, message: dict[str, Any]) -> None:
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "odd", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "said"}]},
            "ping": {},
        }
        if "id" not in message:
            return self._send(202, JSON, b"")
        head = {"jsonrpc": "2.0", "id": message["id"]}
        known = message["method"] in results
        end = (
            {"result": results[message["method"]]} if known else {"error": {"code": -32601, "message": "no"}}
        )
        self._json(200, head | end)

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, JSON, json.dumps(value).encode(), headers)

    def _send(
        self, status: int | None, kind: str, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        if status is None:
            self.close_connection = True
            self.wfile.write(body)
            return
        self.send_response(status)
        for name, value in {
            "content-type": kind,
            "content-length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Write nothing."""


@contextmanager
def odd_endpoint() -> Iterator[OddEndpoint]:
    """Run it on a free port of this machine for a block."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.daemon_threads = True
    where = OddEndpoint(f"http://127.0.0.1:{http.server_address[1]}")
    http.where = where  # pyright: ignore[reportAttributeAccessIssue]
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield where
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
