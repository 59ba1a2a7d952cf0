"""Odd requests over HTTP: streamable HTTP in both eras, and SSE as a connection of lines."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from mcp.shared.inbound import encode_header_value
from tests.differences.lines import SOON, ids_of
from tests.differences.odd_posts import OddPost
from tests.differences.outcome import joined, shape_of
from tests.differences.requests import ABSENT, INITIALIZED, VERSIONS, Ask, Message, OddRequest, hello

Headers = Mapping[str, Any]


def sent(port: int, verb: str, path: str, headers: Headers, body: bytes = b"") -> socket.socket:
    """A connection with a request written as it is, odd or not."""
    plain = {"Host": f"127.0.0.1:{port}", "Connection": "close", "Content-Length": str(len(body)), **headers}
    lines = [f"{verb} {path} HTTP/1.1"]
    for name, value in plain.items():
        if value is not ABSENT:
            lines += [f"{name}: {each}" for each in (value if isinstance(value, list) else [value])]
    connection = socket.create_connection(("127.0.0.1", port), SOON)
    try:
        connection.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
    except ConnectionError:
        # It was answered before it was read.
        pass
    return connection


class Answer:
    """The answer to one request over HTTP, of which the body is read as it comes."""

    def __init__(self, connection: socket.socket, verb: str) -> None:
        self._connection = connection
        self._response = http.client.HTTPResponse(connection, method=verb)
        self._response.begin()
        self.status = self._response.status
        self.headers = self._response.headers
        kind = self.headers.get_content_type() if "content-type" in self.headers else "-"
        self.kind = {"application/json": "json", "text/event-stream": "events"}.get(kind, kind)

    def messages(self) -> Iterable[Any]:
        """What it says."""
        if self.kind == "json" and (body := self._response.read()):
            yield json.loads(body)
        elif self.kind == "events":
            yield from (json.loads(data) for event, data in self.events() if event == "message")

    def events(self) -> Iterable[tuple[str, bytes]]:
        """The events of a stream, until it ends."""
        event, data = "message", b""
        while line := self._response.readline():
            name, _, value = line.rstrip(b"\r\n").partition(b":")
            if name == b"event":
                event = value.strip().decode()
            elif name == b"data":
                data = value.strip()
            elif not line.strip() and data:
                yield event, data
                event, data = "message", b""

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def answer_to(port: int, verb: str, path: str, headers: Headers, body: bytes = b"") -> Answer | None:
    """The answer to a request; `None` if the connection is closed without one."""
    connection = sent(port, verb, path, headers, body)
    try:
        return Answer(connection, verb)
    except (ConnectionError, http.client.BadStatusLine):
        connection.close()
        return None


class WebDoor:
    """Streamable HTTP of one server, in one era; in the legacy one by a session."""

    def __init__(self, port: int, era: str) -> None:
        self._port, self._era = port, era
        self._session: str | None = None

    def takes(self, request: OddRequest | OddPost) -> bool:
        """True if its messages can be posted in turn: none waits for a later one."""
        if isinstance(request, OddPost):
            return True
        calls = [each.params for each in request.messages if isinstance(each, Ask)]
        return not any(isinstance(params, dict) and params.get("name") == "wait" for params in calls)

    def outcome(self, request: OddRequest | OddPost) -> str:
        """What comes of a request."""
        if isinstance(request, OddPost):
            return self._of_post(request)
        session = None if request.fresh else self._open_session()
        told: list[str] = []
        for message in request.messages:
            headers = self._head(message, session)
            said, opened = self._posted(headers, _written(message, self._era), ids_of(request))
            session = opened or session
            told.append(said)
        # What has a result, or was refused by its method, has not ended its session.
        lives = " result" in told[-1] or (" error" in told[-1] and not request.framing)
        then = "" if lives and not request.fresh else self._afterwards(session)
        return "; ".join(told) + then

    def close(self) -> None:
        """Leave the session as it is."""

    def _of_post(self, post: OddPost) -> str:
        special = post.ends or post.streams or post.verb in ("GET", "DELETE")
        session = self._new_session() if special else self._open_session()
        if post.ends:
            self._end(session)
        headers = {**self._head(post.message, session), **post.headers}
        body = b"" if post.message is None else _written(post.message, self._era)
        connection = answer_to(self._port, post.verb, post.path, headers, body)
        return _told(connection, self._era, ["odd"], streams=post.streams)[0]

    def _posted(self, headers: Headers, body: bytes, ids: list[Any]) -> tuple[str, str | None]:
        """What comes of a body, and the session that it has opened."""
        return _told(answer_to(self._port, "POST", "/mcp", headers, body), self._era, ids)

    def _head(self, message: Message | None, session: str | None) -> dict[str, Any]:
        accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self._era == "modern":
            return {**accept, "MCP-Protocol-Version": VERSIONS["modern"], **_routed(message)}
        own = {"Mcp-Session-Id": session, "MCP-Protocol-Version": VERSIONS["legacy"]} if session else {}
        return {**accept, **own}

    def _open_session(self) -> str | None:
        if self._session is None:
            self._session = self._new_session()
        return self._session

    def _new_session(self) -> str | None:
        if self._era == "modern":
            return None
        _, session = self._posted(self._head(None, None), hello().written("legacy"), ["odd"])
        assert session is not None
        self._posted(self._head(None, session), INITIALIZED.written("legacy"), [])
        return session

    def _end(self, session: str | None) -> None:
        ended = answer_to(self._port, "DELETE", "/mcp", self._head(None, session))
        assert ended is not None and ended.status == 200
        ended.close()

    def _afterwards(self, session: str | None) -> str:
        """What comes of a list in the session, if it is no result."""
        if self._era == "modern":
            return ""
        listed = Ask("tools/list")
        said, _ = self._posted(self._head(listed, session), listed.written(self._era), ["odd"])
        return "" if " result" in said else f", then {said}"


def _told(
    answer: Answer | None, era: str, ids: list[Any], *, streams: bool = False
) -> tuple[str, str | None]:
    """What is compared of an answer, and the session that it opens."""
    if answer is None:
        return "closed", None
    try:
        told = str(answer.status)
        if "allow" in answer.headers:
            told += f" allow {answer.headers['allow']}"
        if streams and answer.kind == "events":
            return f"{told} events", None
        shapes: list[str] = []
        for message in answer.messages():
            shapes.append(shape_of(message, ids, era))
            # The stream of a subscription has no end; its first word is that it is heard.
            if shapes[-1] == "note notifications/subscriptions/acknowledged":
                break
        # A refusal of the SDK names a session that ends with it; a client takes none from there.
        opened = answer.headers.get("mcp-session-id") if answer.status == 200 else None
        return told + (f" {joined(shapes)}" if shapes else ""), opened
    finally:
        answer.close()


def _routed(message: Message | None) -> dict[str, str]:
    """The headers that repeat what is in the body, as far as it has it."""
    if not isinstance(message, Ask):
        message = message.ask if message is not None and not isinstance(message, bytes) else None
    method = message.method if message is not None else "tools/list"
    params: Any = message.params if message is not None else None
    found = {"Mcp-Method": method}
    if isinstance(params, dict) and method in ("tools/call", "prompts/get", "resources/read"):
        found["Mcp-Name"] = params.get("uri" if method == "resources/read" else "name")
    return {name: encode_header_value(value) for name, value in found.items() if isinstance(value, str)}


def _written(message: Message, era: str) -> bytes:
    return message if isinstance(message, bytes) else message.written(era)


class EventWire:
    """A connection over SSE, as one of lines; a POST that is not accepted is a line as well."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.ended = False
        stream = answer_to(port, "GET", "/sse", {"Accept": "text/event-stream"})
        assert stream is not None and stream.status == 200
        self._stream, self._events = stream, iter(stream.events())
        self._path = next(self._events)[1].decode()
        self._refused: list[bytes] = []

    def send(self, line: bytes) -> None:
        """Post a message."""
        headers = {"Content-Type": "application/json"}
        answer = answer_to(self._port, "POST", self._path, headers, line)
        if answer is None or answer.status != 202:
            told = "closed" if answer is None else f"{answer.status}"
            self._refused.append(json.dumps({"method": f"status {told}"}).encode())
        if answer is not None:
            answer.close()

    def line(self) -> bytes | None:
        """The next message, or `None` when the stream has ended."""
        if self._refused:
            return self._refused.pop()
        found = next(self._events, None)
        self.ended = found is None
        return None if found is None else found[1]

    def close(self) -> None:
        """Leave."""
        self._stream.close()
