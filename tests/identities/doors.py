"""Clients of a served toolset, written by hand: streamable HTTP in both eras, HTTP+SSE in both eras."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
import anyio.abc
import httpx2
from tests.support.served import served

from mcp_toolset import ToolsetServer

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
INFO: Final = {"name": "crossings", "version": "1"}
PREFIX: Final = "io.modelcontextprotocol"
META: Final = {
    f"{PREFIX}/protocolVersion": MODERN,
    f"{PREFIX}/clientInfo": INFO,
    f"{PREFIX}/clientCapabilities": {},
}
HELLO: Final = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO}
ACCEPT: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
Heard = Callable[[str, str], None]


@dataclass(frozen=True)
class Answer:
    """What came back: the status of the HTTP response, the result or the error, and all that was read."""

    status: int
    result: dict[str, Any] | None
    raw: str

    @property
    def text(self) -> str:
        """The text of a tool's result."""
        return "\n".join(block.get("text", "") for block in (self.result or {}).get("content", ()))

    @property
    def is_good(self) -> bool:
        return self.result is not None and not self.result.get("isError")


def _messages(text: str) -> list[dict[str, Any]]:
    """The messages of a body: of JSON, or of events."""
    if text.startswith("{"):
        return [json.loads(text)]
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def _answer(status: int, text: str, number: int) -> Answer:
    found = next((one for one in _messages(text) if one.get("id") == number and "method" not in one), {})
    return Answer(status, found.get("result"), text)


class Door:
    """A client with one request at a time. What it receives is told to `heard`, with what it sent last.

    Attributes:
        token: What it sends.
        session: The id of its session, or of its stream; empty without one.
    """

    era = MODERN
    session = ""

    def __init__(self, http: httpx2.AsyncClient, heard: Heard, group: anyio.abc.TaskGroup) -> None:
        self.http, self.heard, self.group = http, heard, group
        self.token = ""
        self.number = 0
        self.sent = ""

    @property
    def headers(self) -> dict[str, str]:
        return {**ACCEPT, "authorization": f"Bearer {self.token}"}

    def message(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.number += 1
        self.sent = json.dumps(params)
        given = {**params, "_meta": {**META, **params.get("_meta", {})}} if self.era == MODERN else params
        return {"jsonrpc": "2.0", "id": self.number, "method": method, "params": given}

    async def ask(self, method: str, **params: Any) -> Answer:
        """The answer to one request."""
        raise NotImplementedError

    async def listen(self) -> None:
        """Listen to what the server says by itself, until the stream ends."""
        raise NotImplementedError

    async def _read(self, verb: str, path: str, headers: dict[str, str], body: Any = None) -> int:
        """Read an event stream to its end, or for as long as the door is used."""
        try:
            async with self.http.stream(verb, path, headers=headers, json=body) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        self.heard(line, self.sent)
                return answer.status_code
        except httpx2.TransportError:
            return 0


class ModernHttp(Door):
    async def ask(self, method: str, **params: Any) -> Answer:
        message = self.message(method, params)
        headers = {**self.headers, "mcp-protocol-version": MODERN, "mcp-method": method}
        if method in NAMED:
            headers["mcp-name"] = params[NAMED[method]]
        response = await self.http.post("/mcp", headers=headers, json=message)
        self.heard(response.text, self.sent)
        return _answer(response.status_code, response.text, message["id"])

    async def listen(self) -> None:
        wanted = {"toolsListChanged": True, "resourcesListChanged": True}
        message = self.message("subscriptions/listen", {"notifications": wanted})
        headers = {**self.headers, "mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
        self.group.start_soon(self._read, "POST", "/mcp", headers, message)


class LegacyHttp(Door):
    era = LEGACY

    async def ask(self, method: str, **params: Any) -> Answer:
        if not self.session and (refused := await self._open()) is not None:
            return refused
        return await self.post_in(self.session, method, params)

    async def post_in(self, session: str, method: str, params: dict[str, Any]) -> Answer:
        """Send a request in any session."""
        message = self.message(method, params)
        headers = {**self.headers, "mcp-protocol-version": LEGACY, "mcp-session-id": session}
        response = await self.http.post("/mcp", headers=headers, json=message)
        self.heard(response.text, self.sent)
        if response.status_code == 404 and session == self.session:
            self.session = ""
        return _answer(response.status_code, response.text, message["id"])

    async def _open(self) -> Answer | None:
        response = await self.http.post("/mcp", headers=self.headers, json=self.message("initialize", HELLO))
        self.heard(response.text, self.sent)
        if response.status_code != 200:
            return Answer(response.status_code, None, response.text)
        self.session = response.headers["mcp-session-id"]
        headers = {**self.headers, "mcp-protocol-version": LEGACY, "mcp-session-id": self.session}
        await self.http.post(
            "/mcp", headers=headers, json={"jsonrpc": "2.0", "method": "notifications/initialized"}
        )
        return None

    async def listen(self) -> None:
        if not self.session and await self._open() is not None:
            return
        headers = {**self.headers, "mcp-protocol-version": LEGACY, "mcp-session-id": self.session}
        self.group.start_soon(self._read, "GET", "/mcp", headers)


class Sse(Door):
    """HTTP+SSE: one stream, on which all answers come."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._waiting: dict[int, tuple[anyio.Event, list[Answer]]] = {}

    async def ask(self, method: str, **params: Any) -> Answer:
        if not self.session and (refused := await self._open()) is not None:
            return refused
        come, answers = self._waiting[self.number + 1] = anyio.Event(), []
        try:
            posted = await self.post_to(self.session, method, params)
            if posted.status != 202:
                self.session = "" if posted.status == 404 else self.session
                return posted
            await come.wait()
            return answers[0]
        finally:
            del self._waiting[self.number]

    async def post_to(self, path: str, method: str, params: dict[str, Any]) -> Answer:
        """Send a request to any stream; it is answered there."""
        message = self.message(method, params)
        response = await self.http.post(path, headers=self.headers, json=message)
        self.heard(response.text, self.sent)
        return Answer(response.status_code, None, response.text)

    async def _open(self) -> Answer | None:
        found: list[Answer | str] = await self.group.start(self._stream)
        if isinstance(found[0], Answer):
            return found[0]
        self.session = found[0]
        if self.era == LEGACY:
            await self.ask("initialize", **HELLO)
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self.http.post(self.session, headers=self.headers, json=note)
        return None

    async def _stream(self, *, task_status: anyio.abc.TaskStatus[list[Answer | str]]) -> None:
        path = ""
        try:
            async with self.http.stream("GET", "/sse", headers=self.headers) as answer:
                if answer.status_code != 200:
                    text = (await answer.aread()).decode()
                    return task_status.started([Answer(answer.status_code, None, text)])
                async for line in answer.aiter_lines():
                    if line.startswith("data: /"):
                        path = line[6:]
                        task_status.started([path])
                    elif line.startswith("data: "):
                        self._take(line)
        except httpx2.TransportError:
            pass
        finally:
            if self.session == path:
                self.session = ""
            for come, answers in self._waiting.values():
                answers.append(Answer(0, None, "the stream has ended"))
                come.set()

    def _take(self, line: str) -> None:
        self.heard(line, self.sent)
        message = json.loads(line[6:])
        come, answers = self._waiting.get(message.get("id"), (None, []))
        if come is not None and "method" not in message:
            answers.append(Answer(200, message.get("result"), line))
            come.set()

    async def listen(self) -> None:
        if self.era == MODERN:
            wanted = {"notifications": {"toolsListChanged": True}}
            if self.session:
                message = self.message("subscriptions/listen", wanted)
                await self.http.post(self.session, headers=self.headers, json=message)


class LegacySse(Sse):
    era = LEGACY


DOORS: Final[dict[str, type[Door]]] = {
    "modern HTTP": ModernHttp,
    "legacy HTTP": LegacyHttp,
    "modern SSE": Sse,
    "legacy SSE": LegacySse,
}


@asynccontextmanager
async def reached(
    server: ToolsetServer, **options: Any
) -> AsyncGenerator[tuple[httpx2.AsyncClient, anyio.abc.TaskGroup]]:
    """Serve on a free port; yields an HTTP client, and the tasks of clients that listen."""
    async with served(server, within=float("inf"), **options) as url, anyio.create_task_group() as group:
        async with httpx2.AsyncClient(base_url=url, timeout=60) as http:
            yield http, group
            group.cancel_scope.cancel()
