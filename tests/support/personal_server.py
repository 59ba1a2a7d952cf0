"""An MCP server over HTTP that lists and answers to each user otherwise, and records every byte it receives.

It speaks 2025-11-25, with sessions, or 2026-07-28, with `modern=True`; a thread of the test's own process.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

Headers = Mapping[str, str]


@dataclass
class PersonalServer:
    """What the server knows and has seen.

    Attributes:
        who: The user of a request, by its headers in lower case; `None` is answered 401.
        tools: The tools of each user, with their descriptions.
        received: Every request: its head and its body as one text.
        calls: The user and the tool of each call.
        sessions: The user of each session (legacy).
        held: What calls wait for.
        metadata: What is told of the authorization server (RFC 9728).
        token: Answers forms at `/token`: a status, and JSON.
        offers: What the server declares.
        lacks: The scope that a request lacks, by its headers, method and name; empty for none (403).
        watched: The users and resources of subscriptions.
        missing: Resources that are refused.
        pages: JSON at other paths.
        token_path: Where forms are answered.
    """

    who: Callable[[Headers], str | None]
    tools: Mapping[str, Mapping[str, str]]
    modern: bool = False
    url: str = ""
    challenge: str = "Bearer"
    received: list[str] = field(default_factory=list[str])
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    sessions: dict[str, str] = field(default_factory=dict[str, str])
    held: threading.Event | None = None
    metadata: Mapping[str, Any] | None = None
    token: Callable[[dict[str, str]], tuple[int, dict[str, Any]]] | None = None
    offers: Mapping[str, Any] = field(default_factory=lambda: _OFFERS)
    lacks: Callable[[Headers, str, str], str] = lambda headers, method, name: ""
    watched: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    missing: set[str] = field(default_factory=set[str])
    pages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    token_path: str = "/token"

    def hold(self) -> None:
        """Have calls wait until `release`."""
        self.held = threading.Event()

    def release(self) -> None:
        """Let the calls that wait be answered."""
        if self.held is not None:
            self.held.set()

    def answer(self, user: str, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        info = {"name": "personal", "version": "1"}
        hint = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self.modern else {}
        match method:
            case "initialize" if not self.modern:
                return {"protocolVersion": "2025-11-25", "capabilities": self.offers, "serverInfo": info}
            case "server/discover" if self.modern:
                versions = {"supportedVersions": ["2026-07-28"], "capabilities": self.offers}
                return {**versions, **hint, "serverInfo": info}
            case "tools/list":
                return {"tools": [tool(*each) for each in self.tools.get(user, {}).items()], **hint}
            case "resources/list":
                return {"resources": [{"uri": f"mem://{user}", "name": user}], **hint}
            case "resources/templates/list":
                return {"resourceTemplates": [], **hint}
            case "resources/read" if params["uri"] not in self.missing:
                return {"contents": [{"uri": params["uri"], "text": f"of {user}"}], **hint}
            case "ping":
                return {}
            case "tools/call" if params["name"] in self.tools.get(user, {}):
                self.calls.append((user, params["name"]))
                if self.held is not None:
                    self.held.wait(30)
                result = {"content": [{"type": "text", "text": f"{params['name']} by {user}"}]}
                return {**result, **({"resultType": "complete"} if self.modern else {})}
            case _:
                return self._offered(user, method, params, hint)

    def _offered(
        self, user: str, method: str, params: Mapping[str, Any], hint: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        match method:
            case "prompts/list" if "prompts" in self.offers:
                arguments = [{"name": "topic"}]
                return {"prompts": [{"name": f"ask_{user}", "arguments": arguments}], **hint}
            case "prompts/get" if params["name"] == f"ask_{user}":
                content = {"type": "text", "text": f"of {user}"}
                return {"messages": [{"role": "user", "content": content}], **_whole(hint)}
            case "completion/complete" if "completions" in self.offers:
                return {"completion": {"values": [f"of {user}"]}, **_whole(hint)}
            case "resources/subscribe":
                self.watched.append((user, params["uri"]))
                return {}
            case "skills/list" if "extensions" in self.offers:
                return {"skills": [_skill(user)], **hint}
            case _:
                return None


def _whole(hint: Mapping[str, Any]) -> dict[str, Any]:
    return {"resultType": hint["resultType"]} if hint else {}


def _skill(user: str) -> dict[str, Any]:
    uri = f"kb://of-{user}/SKILL.md"
    file = {"uri": uri, "digest": f"sha256:{hashlib.sha256(user.encode()).hexdigest()}", "size": len(user)}
    frontmatter = {"name": f"of-{user}", "description": f"What {user} does."}
    return {"uri": uri, "frontmatter": frontmatter, "resources": [file]}


_OFFERS = {"tools": {}, "resources": {}}
EVERYTHING = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}}


def tool(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: PersonalServer

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_GET(self) -> None:
        self._received(b"")
        if self.state.metadata is not None and self.path.startswith("/.well-known/oauth-protected-resource"):
            return self._reply(200, {"content-type": "application/json"}, self.state.metadata)
        if (page := self.state.pages.get(self.path)) is not None:
            return self._reply(200, {"content-type": "application/json"}, page)
        self._reply(405 if self.path == "/mcp" else 404)

    def do_DELETE(self) -> None:
        self._received(b"")
        self._reply(200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self._received(body)
        if self.state.token is not None and self.path == self.state.token_path:
            status, answer = self.state.token(dict(parse_qsl(body.decode())))
            return self._reply(status, {"content-type": "application/json"}, answer)
        headers = {name.lower(): value for name, value in self.headers.items()}
        user = self.state.who(headers)
        if user is None:
            return self._reply(401, {"www-authenticate": self.state.challenge})
        message = json.loads(body)
        session = headers.get("mcp-session-id")
        if session is not None and self.state.sessions.get(session) != user:
            return self._reply(404)
        if "id" not in message:
            return self._reply(202)
        params = message.get("params") or {}
        if lacking := self.state.lacks(headers, message["method"], str(params.get("name", ""))):
            told = f'Bearer error="insufficient_scope", scope="{lacking}"'
            return self._reply(403, {"www-authenticate": told})
        found = self.state.answer(user, message["method"], params)
        answer = {"result": found} if found is not None else {"error": {"code": -32601, "message": "no"}}
        more = {"content-type": "application/json"}
        if message["method"] == "initialize" and found is not None:
            name = f"session-{len(self.state.sessions)}"
            self.state.sessions[name] = user
            more["mcp-session-id"] = name
        self._reply(200, more, {"jsonrpc": "2.0", "id": message["id"], **answer})

    def _received(self, body: bytes) -> None:
        self.state.received.append(f"{self.requestline}\n{self.headers}\n{body.decode()}")

    def _reply(self, status: int, headers: Headers = {}, body: Any = None) -> None:  # noqa: B006
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def personal_server(
    tools: Mapping[str, Mapping[str, str]], who: Callable[[Headers], str | None], *, modern: bool = False
) -> Generator[PersonalServer]:
    """The server, for the length of a block."""
    state = PersonalServer(who, tools, modern)
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"state": state})) as http:
        http.daemon_threads = True
        state.url = f"http://127.0.0.1:{http.server_address[1]}/mcp"
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield state
        finally:
            if state.held is not None:
                state.held.set()
            http.shutdown()
            thread.join(10)
