"""Odd requests over HTTP: their verb, path and headers; the messages in them are `odd_messages`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.differences.odd_messages import LIST
from tests.differences.requests import ABSENT, ERAS, PREFIX, Ask, Message, call, hello, note

Value = str | list[str]


@dataclass(frozen=True)
class OddPost:
    """One request over HTTP, which is usual but for what is given here.

    Attributes:
        name: What is odd about it.
        message: Its body; `None` is an empty one.
        headers: Headers that differ; `ABSENT` leaves one out, a list sends one several times.
        eras: The eras in which it is sent.
        verb: Its method.
        path: Where it goes.
        ends: Whether the session is ended by a DELETE before.
        streams: Whether only the head of the answer is read, as more of it may come at any time.
    """

    name: str
    message: Message | None = LIST
    headers: Mapping[str, Value] = field(default_factory=dict[str, Value])
    eras: tuple[str, ...] = ERAS
    verb: str = "POST"
    path: str = "/mcp"
    ends: bool = False
    streams: bool = False


ACCEPT: dict[str, Any] = {
    "absent": ABSENT,
    "empty": "",
    "json": "application/json",
    "events": "text/event-stream",
    "any": "*/*",
    "any of application": "application/*, text/*",
    "html": "text/html",
    "upper case": "APPLICATION/JSON, TEXT/EVENT-STREAM",
    "weighted": "application/json;q=0.5, text/event-stream;q=0.9",
    "refused": "application/json;q=0, text/event-stream;q=0",
    "on two lines": ["application/json", "text/event-stream"],
    "garbage": ";;,,/",
}
CONTENT: dict[str, Any] = {
    "absent": ABSENT,
    "empty": "",
    "text": "text/plain",
    "form": "application/x-www-form-urlencoded",
    "charset": "application/json; charset=utf-8",
    "latin": "application/json; charset=latin-1",
    "upper case": "Application/JSON",
    "json rpc": "application/json-rpc",
    "suffixed": "application/vnd.x+json",
    "twice": ["application/json", "application/json"],
}
VERSION: dict[str, Any] = {
    "absent": ABSENT,
    "empty": "",
    "unknown": "1999-01-01",
    "future": "2099-01-01",
    "no date": "latest",
    "other legacy": "2025-06-18",
    "oldest": "2024-11-05",
    "of the legacy era": "2025-11-25",
    "of the modern era": "2026-07-28",
    "two in one": "2025-11-25, 2026-07-28",
    "twice the same": ["2026-07-28", "2026-07-28"],
    "twice": ["2026-07-28", "2025-11-25"],
    "with spaces": "  2026-07-28  ",
}
HOSTS: dict[str, Any] = {
    "absent": ABSENT,
    "empty": "",
    "foreign": "evil.example",
    "foreign with port": "evil.example:80",
    "loopback without port": "localhost",
    "loopback upper case": "LOCALHOST:8000",
    "loopback in front": "localhost.evil.example:80",
    "loopback of six": "[::1]:80",
    "loopback with dot": "localhost.:80",
    "port that is none": "localhost:x",
    "user in front": "user@localhost:80",
    "twice": ["localhost:1", "evil.example"],
}
ORIGINS: dict[str, Any] = {
    "foreign": "https://evil.example",
    "null": "null",
    "empty": "",
    "loopback": "http://localhost:3000",
    "loopback without port": "http://localhost",
    "loopback over tls": "https://localhost:3000",
    "loopback in front": "http://localhost.evil.example",
    "no url": "localhost",
    "twice": ["http://localhost:1", "https://evil.example"],
}
SESSIONS: dict[str, Any] = {
    "absent": ABSENT,
    "empty": "",
    "unknown": "0" * 32,
    "with spaces": "a b",
    "of a path": "../../etc/passwd",
    "long": "x" * 5000,
}
ROUTED: dict[str, dict[str, Any]] = {
    "method header absent": {"Mcp-Method": ABSENT},
    "method header empty": {"Mcp-Method": ""},
    "method header of another": {"Mcp-Method": "tools/call"},
    "method header upper case": {"Mcp-Method": "TOOLS/LIST"},
    "method header twice": {"Mcp-Method": ["tools/list", "tools/list"]},
    "method header with spaces": {"Mcp-Method": "  tools/list  "},
    "name header where none belongs": {"Mcp-Name": "add"},
}
NAMED: dict[str, dict[str, Any]] = {
    "name header absent": {"Mcp-Name": ABSENT},
    "name header empty": {"Mcp-Name": ""},
    "name header of another": {"Mcp-Name": "echo"},
    "name header upper case": {"Mcp-Name": "ADD"},
    "name header in base64": {"Mcp-Name": "=?base64?YWRk?="},
    "name header in broken base64": {"Mcp-Name": "=?base64?YWR?="},
    "name header twice": {"Mcp-Name": ["add", "add"]},
    "param header unknown": {"Mcp-Param-A": "1"},
    "both headers absent": {"Mcp-Name": ABSENT, "Mcp-Method": ABSENT},
}
BODIES: dict[str, dict[str, Any]] = {
    "length absent": {"Content-Length": ABSENT},
    "length garbage": {"Content-Length": "five"},
    "length negative": {"Content-Length": "-1"},
    "length twice": {"Content-Length": ["5", "6"]},
    "length over all limits": {"Content-Length": "9" * 12},
    "body compressed": {"Content-Encoding": "gzip"},
    "body to be continued": {"Expect": "100-continue"},
}
PATHS = {
    "path with slash": "/mcp/",
    "path upper case": "/MCP",
    "path percent-encoded": "/%6dcp",
    "path with dots": "/x/../mcp",
    "path with two slashes": "//mcp",
    "path with query": "/mcp?x=1",
    "path unknown": "/nothing",
    "path root": "/",
    "path of messages": "/messages/",
    "path of messages, session unknown": f"/messages/?session_id={'0' * 32}",
    "path of messages, session odd": "/messages/?session_id=x",
    "path of events": "/sse",
    "path absolute": "http://localhost:1/mcp",
}
GETS: dict[str, dict[str, Any]] = {
    "get": {},
    "get of events": {"Accept": "text/event-stream"},
    "get of json": {"Accept": "application/json"},
    "get without accept": {"Accept": ABSENT},
    "get of anything": {"Accept": "*/*"},
    "get after an event": {"Accept": "text/event-stream", "Last-Event-ID": "5"},
    "get after an event that is none": {"Accept": "text/event-stream", "Last-Event-ID": "../x"},
    "get without session": {"Accept": "text/event-stream", "Mcp-Session-Id": ABSENT},
    "get of an unknown session": {"Accept": "text/event-stream", "Mcp-Session-Id": "0" * 32},
    "get of a foreign origin": {"Accept": "text/event-stream", "Origin": "https://evil.example"},
}
INSIDE: dict[str, tuple[Message, dict[str, Any]]] = {
    "body of the legacy version": (Ask("tools/list", meta={f"{PREFIX}/protocolVersion": "2025-11-25"}), {}),
    "header and body of the future": (
        Ask("tools/list", meta={f"{PREFIX}/protocolVersion": "2099-01-01"}),
        {"MCP-Protocol-Version": "2099-01-01"},
    ),
    "body without envelope": (Ask("tools/list", enveloped=False), {}),
    "initialize in the modern era": (hello(), {}),
    "notification with the header of another": (note("notifications/unknown"), {"Mcp-Method": "tools/list"}),
    "session named in the modern era": (LIST, {"Mcp-Session-Id": "0" * 32}),
    "call that accepts json only": (call(), {"Accept": "application/json"}),
}


def odd_posts() -> list[OddPost]:
    """The table, in the order in which it is sent."""
    headers = [OddPost(name, headers=headers) for name, headers in (*ROUTED.items(), *BODIES.items())]
    named = [OddPost(name, call(), headers) for name, headers in NAMED.items()]
    paths = [OddPost(name, path=path) for name, path in PATHS.items()]
    gets = [OddPost(name, None, headers, verb="GET", streams=True) for name, headers in GETS.items()]
    inside = [OddPost(name, *both, ("modern",)) for name, both in INSIDE.items()]
    return [*_of_headers(), *_of_sessions(), *headers, *named, *paths, *gets, *_of_verbs(), *inside]


def _of_headers() -> Iterable[OddPost]:
    for header, values in (
        ("Accept", ACCEPT),
        ("Content-Type", CONTENT),
        ("MCP-Protocol-Version", VERSION),
        ("Host", HOSTS),
        ("Origin", ORIGINS),
    ):
        for name, value in values.items():
            yield OddPost(f"{header} {name}", headers={header: value})
            if header in ("Accept", "MCP-Protocol-Version"):
                yield OddPost(f"{header} {name}, of a call", call(), {header: value})


def _of_sessions() -> Iterable[OddPost]:
    for name, value in SESSIONS.items():
        yield OddPost(f"session {name}", headers={"Mcp-Session-Id": value}, eras=("legacy",))
        yield OddPost(f"session {name}, of a call", call(), {"Mcp-Session-Id": value}, ("legacy",))
    yield OddPost("session ended", ends=True, eras=("legacy",))
    yield OddPost("session ended, of a call", call(), ends=True, eras=("legacy",))
    yield OddPost("session ended twice", None, verb="DELETE", ends=True, eras=("legacy",))
    yield OddPost("session ended, then a stream", None, {}, ("legacy",), verb="GET", ends=True, streams=True)
    yield OddPost("handshake in a session", hello(), eras=("legacy",))
    yield OddPost("handshake without headers", hello(), _without("MCP-Protocol-Version", "Mcp-Session-Id"))
    yield OddPost("handshake, session unknown", hello(), {"Mcp-Session-Id": "0" * 32}, ("legacy",))


def _of_verbs() -> Iterable[OddPost]:
    for verb in ("HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "ODD", "post"):
        yield OddPost(f"verb {verb}", None, verb=verb)
        yield OddPost(f"verb {verb} of events", None, verb=verb, path="/sse")
    yield OddPost("verb DELETE without session", None, {"Mcp-Session-Id": ABSENT}, verb="DELETE")
    yield OddPost("verb PUT with a body", verb="PUT")
    yield OddPost("empty body", None)
    yield OddPost("empty body of a call", None, {"Mcp-Method": "tools/call", "Mcp-Name": "add"})
    asking = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    yield OddPost("preflight", None, asking, verb="OPTIONS")


def _without(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, ABSENT)
