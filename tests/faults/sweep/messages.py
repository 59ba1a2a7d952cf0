"""What a hostile server puts in the place of one of its answers. Plain Python, no SDK: servers import it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]


def _line(message: Any) -> bytes:
    return json.dumps(message).encode()


def _with_result(result: Any) -> Callable[[Message], list[bytes]]:
    return lambda answer: [_line({"jsonrpc": "2.0", "id": answer["id"], "result": result})]


def _with_error(error: Any) -> Callable[[Message], list[bytes]]:
    return lambda answer: [_line({"jsonrpc": "2.0", "id": answer["id"], "error": error})]


def _before(*messages: Any) -> Callable[[Message], list[bytes]]:
    return lambda answer: [*map(_line, messages), _line(answer)]


def _note(method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


def _nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def _deep(answer: Message) -> list[bytes]:
    number = json.dumps(answer["id"])
    return [f'{{"jsonrpc":"2.0","id":{number},"result":{{"x":{_nested(1000)}}}}}'.encode()]


MESSAGES: dict[str, Callable[[Message], list[bytes]]] = {
    "silent": lambda answer: [],
    "garbage": lambda answer: [b"this is no JSON"],
    "garbage before": lambda answer: [b"\xff\xfe", b"[1, 2", b"{}", b"null", _line(answer)],
    "cut": lambda answer: [_line(answer)[: len(_line(answer)) // 2]],
    "no text": lambda answer: [_line(answer).replace(b'"jsonrpc"', b'"json\xffrpc"')],
    "wrong version": lambda answer: [_line({**answer, "jsonrpc": "1.0"})],
    "twice": lambda answer: [_line(answer), _line(answer)],
    "another id": lambda answer: [_line({**answer, "id": 987654})],
    "id as text": lambda answer: [_line({**answer, "id": f"x{answer['id']}"})],
    "no id": lambda answer: [_line({key: value for key, value in answer.items() if key != "id"})],
    "result null": _with_result(None),
    "result empty": _with_result({}),
    "result list": _with_result([]),
    "result text": _with_result("done"),
    "result and error": lambda answer: [_line({**answer, "error": {"code": 1, "message": "both"}})],
    "neither": lambda answer: [_line({"jsonrpc": "2.0", "id": answer["id"]})],
    "error text": _with_error("it failed"),
    "error without code": _with_error({"message": "it failed"}),
    "error": _with_error({"code": -32000, "message": "it failed"}),
    "error huge code": _with_error({"code": 10**30, "message": "it failed"}),
    "deep": _deep,
    "storm before": _before(*[_note("message", level="info", data=n) for n in range(300)]),
    "progress of nobody": _before(_note("progress", progressToken=4711, progress=1)),
    "odd notifications": _before(
        _note("message"), _note("nonsense", a=1), _note("cancelled", requestId=None)
    ),
    "list_changed before": _before(*[_note("tools/list_changed")] * 30),
    "question before": _before(
        {
            "jsonrpc": "2.0",
            "id": "q",
            "method": "elicitation/create",
            "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
        }
    ),
    "unknown request before": _before({"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": {}}),
}
"""Names of faults, and what is sent instead of an answer."""

SPOILED = frozenset(
    {
        "result null",
        "result empty",
        "result list",
        "result text",
        "neither",
        "error text",
        "error without code",
        "error",
        "error huge code",
        "deep",
        "cut",
        "no text",
        "garbage",
        "silent",
        "wrong version",
        "another id",
        "id as text",
        "no id",
    }
)
"""Faults after which the call that they hit has no result, so that it must end in an error."""
