"""A server over real HTTP whose callers are authenticated, by static tokens and by an issuer of JWTs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.lowlevel import EventLoopToken, current_token
from tests.extensions.inbound_auth.issuer import AUDIENCE, Issuer, issuing
from tests.support.served import listening, port_of
from tests.transports.test_http_endpoint import HEADERS, META
from tests.transports.test_legacy_sessions import INITIALIZE

from mcp_toolset import ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.auth import JWT, Authenticator, StaticToken, StaticTokens
from mcp_toolset.extensions.inbound_auth.verifiers.jwt import KeySet

SOON: Final = 60.0
ANN, BOB, WEAK = "ann-0123456789abcdef", "bob-0123456789abcdef", "weak-0123456789abcdef"
JSON: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN: Final = {name: value for name, value in HEADERS.items() if name != "host"}

Headers = Sequence[tuple[str, str]]


@tool
def whoami(context: ToolContext) -> str:
    """Say who calls."""
    assert context.identity is not None
    return context.identity.name


def modern(name: str = "whoami") -> dict[str, Any]:
    params = {"name": name, "arguments": {}, "_meta": META}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def legacy(name: str = "whoami") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name, "arguments": {}}}


class Moved:
    """The seconds of a clock that a test can move on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead

    def move(self, seconds: float) -> None:
        self.ahead += seconds


@dataclass
class Answer:
    """A whole response."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def said(self) -> str:
        """All of it, for what must not be in it."""
        return f"{self.headers} {self.text}"


@dataclass
class Served:
    """The server that runs, and its clients' ways to it."""

    port: int
    issuer: Issuer
    auth: Authenticator
    app: Any
    keys: Moved
    loop: EventLoopToken
    leaving: list[HTTPConnection] = field(default_factory=list[HTTPConnection])

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the event loop of the server."""
        anyio.from_thread.run_sync(function, *arguments, token=self.loop)

    def opened(self, method: str, path: str, headers: Headers, message: Any = None) -> HTTPResponse:
        """A response, of which the head has come; headers may be there more than once."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SOON)
        self.leaving.append(connection)
        body = b"" if message is None else json.dumps(message).encode()
        connection.putrequest(method, path, skip_host=any(name == "host" for name, _ in headers))
        for name, value in [*headers, ("content-length", str(len(body)))]:
            connection.putheader(name, value)
        connection.endheaders(body)
        return connection.getresponse()

    def asked(self, method: str, path: str, headers: Headers, message: Any = None) -> Answer:
        with self.opened(method, path, headers, message) as found:
            head = {name.lower(): value for name, value in found.getheaders()}
            # A stream would have no end.
            text = "" if head.get("content-type") == "text/event-stream" else found.read().decode()
            return Answer(found.status, head, text)

    def session(self, token: str) -> list[tuple[str, str]]:
        """The headers of a legacy session of a caller, without the token."""
        found = self.asked("POST", "/mcp", [*JSON.items(), bearer(token)], INITIALIZE)
        assert found.status == 200, found
        name = found.headers["mcp-session-id"]
        return [*JSON.items(), ("mcp-session-id", name), ("mcp-protocol-version", "2025-11-25")]

    def events(self, token: str) -> tuple[HTTPResponse, str]:
        """A stream of HTTP+SSE of a caller, and where messages for it are posted."""
        stream = self.opened("GET", "/sse", [("accept", "text/event-stream"), bearer(token)])
        assert stream.status == 200
        assert stream.readline() == b"event: endpoint\r\n"
        path = stream.readline().decode().removeprefix("data: ").strip()
        stream.readline()
        return stream, path


def bearer(token: str) -> tuple[str, str]:
    return "authorization", f"Bearer {token}"


@contextmanager
def serving_with_auth(clock: Callable[[], float] = time.time, audit: Path | None = None) -> Iterator[Served]:
    """Serve over HTTP, in a thread with an event loop of its own; `clock` is for the tokens."""
    with issuing() as issuer:
        tokens = {
            "ann": StaticToken(ANN, scopes=["mcp"]),
            "bob": StaticToken(BOB, scopes=["mcp"]),
            "weak": WEAK,
        }
        keys = Moved()
        key_set = KeySet(issuer.url, f"{issuer.url}/jwks", clock=keys)
        jwt = JWT(issuer=issuer.url, audience=AUDIENCE, keys=key_set)
        auth = Authenticator([StaticTokens(tokens), jwt], required_scopes=["mcp"], clock=clock)
        server = ToolsetServer(Toolset(whoami), auth=auth, audit=audit)
        app, ready, stop = server.http_app(), threading.Event(), list[Any]()

        async def run() -> None:
            with anyio.CancelScope() as scope:
                async with listening(app) as url:
                    stop.append((current_token(), scope, port_of(url)))
                    ready.set()
                    await anyio.sleep_forever()

        thread = threading.Thread(target=anyio.run, args=(run,))
        thread.start()
        assert ready.wait(SOON)
        token, scope, port = stop[0]
        served = Served(port, issuer, auth, app, keys, token)
        try:
            yield served
        finally:
            for connection in served.leaving:
                connection.close()
            served.soon(scope.cancel)
            thread.join(SOON)
