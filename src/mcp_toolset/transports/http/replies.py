"""`reply` and `refuse`: whole HTTP responses; `error_body`: a JSON-RPC error as the body of one."""

from __future__ import annotations

from typing import Any, Final

from starlette.types import Send

from mcp_toolset.protocol.codec import json_of
from mcp_toolset.protocol.json_rpc import ErrorData, RequestId

Headers = list[tuple[bytes, bytes]]

JSON: Final = b"application/json"
PLAIN: Final = b"text/plain; charset=utf-8"
STREAM: Final[Headers] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
"""The head of a stream of events."""

_NONE: Final[Headers] = []


async def reply(
    send: Send, status: int, body: bytes = b"", kind: bytes | None = None, headers: Headers = _NONE
) -> None:
    head = [(b"content-length", b"%d" % len(body)), *headers]
    if kind is not None:
        head.append((b"content-type", kind))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def refuse(
    send: Send,
    status: int,
    code: int,
    message: str,
    *,
    number: RequestId | None = None,
    data: Any = None,
    headers: Headers = _NONE,
) -> None:
    """Refuse a request with a JSON-RPC error; `number` is its id, if that could be read."""
    await reply(send, status, error_body(code, message, number, data), JSON, headers)


def error_body(code: int, message: str, number: RequestId | None = None, data: Any = None) -> bytes:
    error = ErrorData(code, message, data).to_wire()
    return json_of({"jsonrpc": "2.0", "id": number, "error": error})


def event_of(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"
