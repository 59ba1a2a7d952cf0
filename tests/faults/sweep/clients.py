"""The sweep over hostile clients: every message of a session × every fault × both eras × stdio and HTTP.

In each case a client sends one message in a wrong way. Afterwards three things must hold: the connection
answers the rest of the session or ends, a polite client is served after it, and nothing is left.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from tests.faults.sweep.case import Case
from tests.support.served import listening

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.transports.line_dispatcher import LineDispatcher, PipePair
from mcp_toolset.transports.serve_connection import INLINE, serve_connection

GRACE = 20.0
VERSION = {False: "2025-11-25", True: "2026-07-28"}
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION[True],
    "io.modelcontextprotocol/clientInfo": {"name": "odd", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
Message = dict[str, Any]


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
async def wait() -> str:
    """Wait for a moment."""
    await anyio.sleep(0.05)
    return "done"


def request(number: int, method: str, *, modern: bool, **params: Any) -> Message:
    more = {"_meta": META} if modern else {}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **more}}


def session(*, modern: bool) -> list[Message]:
    """The messages of a polite client."""
    hello = {
        "protocolVersion": VERSION[False],
        "capabilities": {},
        "clientInfo": {"name": "odd", "version": "1"},
    }
    first = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]
    return [
        *([request(1, "server/discover", modern=True)] if modern else first),
        request(2, "tools/list", modern=modern),
        request(3, "tools/call", modern=modern, name="echo", arguments={"text": "a"}),
        request(4, "tools/call", modern=modern, name="wait", arguments={}),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}},
        request(5, "tools/call", modern=modern, name="echo", arguments={"text": "b"}),
    ]


def _raw(message: Message) -> bytes:
    return json.dumps(message).encode()


def _changed(**members: Any) -> Callable[[Message], list[bytes]]:
    return lambda message: [_raw({**message, **members})]


FAULTS: dict[str, Callable[[Message], list[bytes]]] = {
    "left out": lambda message: [],
    "twice": lambda message: [_raw(message), _raw(message)],
    "garbage before": lambda message: [b"no JSON", b"\xff\xfe", b"[]", b"null", b'"a"', _raw(message)],
    "garbage instead": lambda message: [b"{" * 50],
    "half": lambda message: [_raw(message)[:25]],
    "no version": lambda message: [_raw({k: v for k, v in message.items() if k != "jsonrpc"})],
    "old version": _changed(jsonrpc="1.0"),
    "id null": _changed(id=None),
    "id true": _changed(id=True),
    "id 1.5": _changed(id=1.5),
    "id list": _changed(id=[1]),
    "id huge": _changed(id=10**30),
    "id long": _changed(id="x" * 100_000),
    "method number": _changed(method=5),
    "method unknown": _changed(method="no/such"),
    "method long": _changed(method="m" * 100_000),
    "params list": _changed(params=[1]),
    "params text": _changed(params="a"),
    "params empty": _changed(params={}),
    "meta wrong": _changed(params={"_meta": "text"}),
    "token wrong": _changed(
        params={"name": "echo", "arguments": {"text": "a"}, "_meta": {"progressToken": []}}
    ),
    "arguments wrong": _changed(params={"name": "echo", "arguments": "text"}),
    "name wrong": _changed(params={"name": 5}),
    "surrogate": lambda message: [_raw(message)[:-1] + b', "x": "\\ud800"}'],
    "deep": lambda message: [_raw(message)[:-1] + b', "x": ' + b"[" * 5000 + b"]" * 5000 + b"}"],
    "no text": lambda message: [_raw(message).replace(b"jsonrpc", b"json\xffrpc")],
    "answers": lambda message: [
        _raw({"jsonrpc": "2.0", "id": 77, "result": {}}),
        _raw({"jsonrpc": "2.0", "id": 78, "error": {"code": 1, "message": "no"}}),
        _raw(message),
    ],
    "cancels": lambda message: [
        *(
            _raw({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": n}})
            for n in (None, 1, 99, "x", [])
        ),
        _raw(message),
    ],
    "storm": lambda message: [
        *[_raw({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})] * 50,
        _raw(message),
    ],
    "batch": lambda message: [b"[" + _raw(message) + b"]"],
    "leaves": lambda message: [],
    "leaves in a line": lambda message: [_raw(message)[:25]],
}
"""Names of faults, and what is sent instead of a message."""


async def cases(folder: Path) -> list[Case]:
    """Every case."""
    return [
        Case(transport, modern, fault, at)
        for transport in ("stdio", "http")
        for modern in (False, True)
        for fault in FAULTS
        for at in range(len(session(modern=modern)))
    ]


async def fell_short(case: Case, folder: Path) -> list[str]:
    """What did not hold in a case; empty if all did."""
    wrong: list[str] = []
    sweep = _over_stdio if case.transport == "stdio" else _over_http
    try:
        with anyio.fail_after(4 * GRACE):
            async with ToolsetServer(Toolset(echo, wait)) as server:
                await sweep(case, server, wrong)
                async with Client(server.lowlevel) as polite:
                    answered = await polite.call_tool("echo", {"text": "polite"})
                    if answered.is_error:
                        wrong.append("a polite client was refused")
    except TimeoutError:
        wrong.append("it did not end")
    # Whatever left the block is what the sweep looks for; it is told, and fails the case.
    except Exception as fault:
        wrong.append(f"{type(fault).__name__} came out: {fault}")
    return wrong


def _sent(case: Case) -> list[list[bytes]]:
    messages = session(modern=case.modern)
    return [
        FAULTS[case.fault](message) if at == case.at else [_raw(message)]
        for at, message in enumerate(messages)
    ]


async def _over_stdio(case: Case, server: ToolsetServer, wrong: list[str]) -> None:
    """True if the last call is answered, or the connection has ended, and serving ends with the input."""
    async with _connection() as (ours, theirs, close), anyio.create_task_group() as group:
        done, answered, heard = anyio.Event(), anyio.Event(), bytearray()

        def hear(chunk: bytes) -> None:
            heard.extend(chunk)
            if b'"id":5,' in heard.replace(b" ", b""):
                answered.set()

        group.start_soon(_serve, server, ours, done)
        theirs.start(hear, done.set)
        _tell(case, theirs)
        if _is_answered_last(case) and not await _either(answered, done):
            wrong.append("the last call was not answered")
        await theirs.flushed()
        theirs.close_writer()
        close()
        if not await _either(done):
            wrong.append("serving did not end with the input")
        group.cancel_scope.cancel()


async def _serve(server: ToolsetServer, pipes: PipePair, done: anyio.Event) -> None:
    """Serve one client on pipes, as on standard input and output."""
    dispatcher = LineDispatcher(pipes, inline=INLINE, holds_back=True)
    try:
        async with server.answers.opened():
            await serve_connection(server.answers, dispatcher)
    finally:
        done.set()


def _tell(case: Case, pipes: PipePair) -> None:
    for at, lines in enumerate(_sent(case)):
        for line in lines:
            pipes.write_line(line)
        if case.fault.startswith("leaves") and at == case.at:
            return


def _is_answered_last(case: Case) -> bool:
    """True if the last call arrives as it should, and nothing before it is swallowed with its line."""
    last = case.at == len(session(modern=case.modern)) - 1
    return not last and not case.fault.startswith("leaves")


async def _either(*events: anyio.Event) -> bool:
    """True if one of the events comes in time."""
    with anyio.move_on_after(GRACE) as patience:
        async with anyio.create_task_group() as group:

            async def until(event: anyio.Event) -> None:
                await event.wait()
                group.cancel_scope.cancel()

            for event in events:
                group.start_soon(until, event)
    return not patience.cancelled_caught


@asynccontextmanager
async def _connection() -> AsyncGenerator[tuple[PipePair, PipePair, Callable[[], None]]]:
    """The server's end, the client's end, and a function that ends what the client sends."""
    (there, to), (back, fro) = os.pipe(), os.pipe()
    open_ = {there, to, back, fro}
    for descriptor in open_:
        os.set_blocking(descriptor, False)
    ours, theirs = PipePair(there, fro), PipePair(back, to)

    def close() -> None:
        open_.discard(to)
        os.close(to)

    try:
        yield ours, theirs, close
    finally:
        ours.stop()
        theirs.stop()
        for descriptor in open_:
            os.close(descriptor)


async def _over_http(case: Case, server: ToolsetServer, wrong: list[str]) -> None:
    """True if each post is answered in time, and none with a status of 500."""
    async with listening(server.http_app()) as url:
        async with httpx2.AsyncClient(trust_env=False, timeout=GRACE) as client:
            await _posted(case, client, f"{url}/mcp", wrong)


async def _posted(case: Case, client: httpx2.AsyncClient, url: str, wrong: list[str]) -> None:
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    messages = session(modern=case.modern)
    for at, lines in enumerate(_sent(case)):
        for body in lines:
            named = dict(headers)
            if case.modern:
                named |= {"mcp-protocol-version": VERSION[True], "mcp-method": str(messages[at]["method"])}
                if "name" in messages[at].get("params", {}):
                    named["mcp-name"] = messages[at]["params"]["name"]
            try:
                with anyio.fail_after(GRACE):
                    response = await client.post(url, content=body, headers=named)
            except (httpx2.HTTPError, TimeoutError) as fault:
                wrong.append(f"message {at}: no answer ({type(fault).__name__})")
                return
            if response.status_code >= 500:
                wrong.append(f"message {at}: status {response.status_code}: {response.text[:100]}")
            if "mcp-session-id" in response.headers:
                headers["mcp-session-id"] = response.headers["mcp-session-id"]
        if case.fault.startswith("leaves") and at == case.at:
            return
