"""Odd messages for every door, but those that are about HTTP (`odd_posts`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.differences.odd_methods import odd_requests_of_methods
from tests.differences.requests import (
    ABSENT,
    ENVELOPE,
    INITIALIZED,
    PREFIX,
    Ask,
    Edited,
    Message,
    OddRequest,
    call,
    hello,
    note,
)

LIST = Ask("tools/list")
NEXT = {"id": "next"}
_NOT_OBJECTS = {"null": None, "list": [], "text": "text", "number": 5, "true": True}
_LONG = "x" * 10_000


def _text(text: str | bytes) -> tuple[Message]:
    return (text.encode() if isinstance(text, str) else text,)


def _list(edit: Callable[[bytes], bytes]) -> tuple[Message]:
    """A list whose text is edited."""
    return (Edited(LIST, edit),)


def _echo(value: str | bytes) -> tuple[Message]:
    """A call of `echo` with a text as it is written here."""
    written = value.encode() if isinstance(value, str) else value
    return (Edited(call("echo", {"text": "?"}), lambda text: text.replace(b'"?"', written)),)


UNREADABLE: dict[str, tuple[Message, ...]] = {
    "no json": _text("hello"),
    "cut off": _list(lambda text: text[:-1]),
    "two objects in one": _list(lambda text: text + text),
    "trailing comma": _list(lambda text: text[:-1] + b",}"),
    "single quotes": _list(lambda text: text.replace(b'"', b"'")),
    "comment": _list(lambda text: text + b" // list"),
    "unquoted key": _list(lambda text: text.replace(b'"id"', b"id")),
    "byte order mark": _list(lambda text: b"\xef\xbb\xbf" + text),
    "two methods": _list(lambda text: text[:-1] + b',"method":"ping"}'),
    "two ids": _list(lambda text: text[:-1] + b',"id":"other"}'),
    "spaces around": _list(lambda text: b" \t" + text + b" "),
    "carriage return after": _list(lambda text: text + b"\r"),
    "not a number": _echo("NaN"),
    "infinity": _echo("-Infinity"),
    "bytes that are no text": _echo(b'"\xff\xfe"'),
    "half a surrogate": _echo(r'"\ud800"'),
    "zero byte": _echo('"\0"'),
    "escaped zero": _echo(r'"\u0000"'),
    "tab in a text": _echo('"\t"'),
    "number too large": _echo("1e999"),
    "integer of 400 digits": _echo("9" * 400),
    "integer of 5000 digits": _echo("9" * 5000),
    "nested 10000 deep": _echo("[" * 10_000 + "]" * 10_000),
}
TOP: dict[str, tuple[Message, ...]] = {
    "top null": _text("null"),
    "top true": _text("true"),
    "top number": _text("5"),
    "top text": _text('"tools/list"'),
    "top empty object": _text("{}"),
    "empty batch": _text("[]"),
    "batch of an empty object": _text("[{}]"),
    "batch in a batch": _list(lambda text: b"[[" + text + b"]]"),
    "batch of one": _list(lambda text: b"[" + text + b"]"),
    "batch of two": _list(lambda text: b"[" + text + b"," + text.replace(b"odd", b"even") + b"]"),
    "batch of a notification": _text('[{"jsonrpc":"2.0","method":"notifications/initialized"}]'),
    "batch of a request and a number": _list(lambda text: b"[" + text + b",5]"),
}
IDS: dict[str, Any] = {
    "null": None,
    "fraction": 1.5,
    "whole fraction": 7.0,
    "true": True,
    "list": [],
    "object": {},
    "empty": "",
    "negative": -1,
    "zero": 0,
    "past 64 bits": 2**64,
    "long": _LONG,
    "unicode": "π\u2028\U0001f600",
    "digits": "17",
}
JSONRPC = {"absent": ABSENT, "1.0": "1.0", "number": 2.0, "2.00": "2.00", "null": None, "list": ["2.0"]}
METHODS: dict[str, Any] = {
    "absent": ABSENT,
    "null": None,
    "number": 5,
    "list": ["tools/list"],
    "empty": "",
    "upper case": "TOOLS/LIST",
    "trailing space": "tools/list ",
    "half": "tools",
    "reserved": "rpc.discover",
    "language server": "$/cancelRequest",
    "vendor": "vendor/method",
    "long": _LONG,
    "unicode": "työkalut/лист",
    "of the client, sampling": "sampling/createMessage",
    "of the client, roots": "roots/list",
    "of the client, elicitation": "elicitation/create",
    "notification as a request, initialized": "notifications/initialized",
    "notification as a request, cancelled": "notifications/cancelled",
    "notification as a request, unknown": "notifications/unknown",
    "tasks get": "tasks/get",
    "tasks list": "tasks/list",
    "tasks cancel": "tasks/cancel",
    "tasks result": "tasks/result",
    "tasks update": "tasks/update",
}
TOKENS: dict[str, Any] = {
    "number": 5,
    "text": "t",
    "null": None,
    "fraction": 1.5,
    "true": True,
    "list": [],
    "object": {},
}
META: dict[str, dict[str, Any]] = {
    "unknown key": {"example.com/x": 1},
    "key that is no name": {"": 1, "a b/": 2},
    "traceparent that is none": {"traceparent": 5},
}
NOTES: dict[str, Message] = {
    "cancelled unknown id": note("notifications/cancelled", {"requestId": "nothing"}),
    "cancelled null": note("notifications/cancelled", {"requestId": None}),
    "cancelled list": note("notifications/cancelled", {"requestId": []}),
    "cancelled without id": note("notifications/cancelled", {"reason": "x"}),
    "cancelled without params": note("notifications/cancelled", enveloped=False),
    "cancelled reason number": note("notifications/cancelled", {"requestId": "nothing", "reason": 5}),
    "initialized again": INITIALIZED,
    "initialized with params": note("notifications/initialized", {"more": 1}),
    "progress unknown": note("notifications/progress", {"progressToken": "nothing", "progress": 1}),
    "progress text": note("notifications/progress", {"progressToken": "nothing", "progress": "half"}),
    "progress without params": note("notifications/progress", enveloped=False),
    "roots changed": note("notifications/roots/list_changed"),
    "notification unknown": note("notifications/unknown", {"x": 1}),
    "notification without envelope": note("notifications/unknown", enveloped=False),
    "notification without prefix": note("unknown"),
    "notification params list": note("notifications/unknown", [1]),
    "notification params null": note("notifications/unknown", None),
    "request without id": note("tools/list"),
    "call without id": note("tools/call", {"name": "echo", "arguments": {"text": "a"}}),
    "ping without id": note("ping"),
    "stray result": b'{"jsonrpc":"2.0","id":99,"result":{}}',
    "stray error": b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}',
    "error without id": b'{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}',
    "error id null": b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
    "error that is text": b'{"jsonrpc":"2.0","id":99,"error":"x"}',
    "result null": b'{"jsonrpc":"2.0","id":99,"result":null}',
    "result and error": b'{"jsonrpc":"2.0","id":99,"result":{},"error":{"code":1,"message":"x"}}',
    "result without id": b'{"jsonrpc":"2.0","result":{}}',
}
ENVELOPES: dict[str, Ask] = {
    "no envelope": Ask("tools/list", enveloped=False),
    "no envelope, params empty": Ask("tools/list", {}, enveloped=False),
    "no envelope in a call": call(enveloped=False),
    "envelope empty": Ask("tools/list", {"_meta": {}}),
    "version absent": Ask("tools/list", meta={f"{PREFIX}/protocolVersion": ABSENT}),
    "version number": Ask("tools/list", meta={f"{PREFIX}/protocolVersion": 5}),
    "version null": Ask("tools/list", meta={f"{PREFIX}/protocolVersion": None}),
    "version empty": Ask("tools/list", meta={f"{PREFIX}/protocolVersion": ""}),
    "version of the future": Ask("tools/list", meta={f"{PREFIX}/protocolVersion": "2099-01-01"}),
    "version no date": Ask("tools/list", meta={f"{PREFIX}/protocolVersion": "latest"}),
    "capabilities absent": Ask("tools/list", meta={f"{PREFIX}/clientCapabilities": ABSENT}),
    "capabilities null": Ask("tools/list", meta={f"{PREFIX}/clientCapabilities": None}),
    "capabilities list": Ask("tools/list", meta={f"{PREFIX}/clientCapabilities": []}),
    "capabilities odd inside": Ask("tools/list", meta={f"{PREFIX}/clientCapabilities": {"sampling": 5}}),
    "capabilities odd inside a call": call(meta={f"{PREFIX}/clientCapabilities": {"sampling": 5}}),
    "capabilities list in a call": call(meta={f"{PREFIX}/clientCapabilities": []}),
    "client absent": Ask("tools/list", meta={f"{PREFIX}/clientInfo": ABSENT}),
    "client null": Ask("tools/list", meta={f"{PREFIX}/clientInfo": None}),
    "client text": Ask("tools/list", meta={f"{PREFIX}/clientInfo": "odd"}),
    "client without name": Ask("tools/list", meta={f"{PREFIX}/clientInfo": {"version": "1"}}),
    "client without name in a call": call(meta={f"{PREFIX}/clientInfo": {"version": "1"}}),
    "level of the envelope unknown": Ask("tools/list", meta={f"{PREFIX}/logLevel": "loud"}),
    "level of the envelope unknown in a call": call(meta={f"{PREFIX}/logLevel": "loud"}),
    "level of the envelope number": call(meta={f"{PREFIX}/logLevel": 5}),
    "level of the envelope": call(meta={f"{PREFIX}/logLevel": "debug"}),
    "discover without envelope": Ask("server/discover", enveloped=False),
    "discover version unknown": Ask("server/discover", meta={f"{PREFIX}/protocolVersion": "2099-01-01"}),
    "unknown method without envelope": Ask("vendor/method", enveloped=False),
    "unknown method, version unknown": Ask("vendor/method", meta={f"{PREFIX}/protocolVersion": "2099-01-01"}),
}
IN_LEGACY: dict[str, Ask] = {
    "enveloped in a legacy session": Ask("tools/list", meta=ENVELOPE),
    "enveloped call in a legacy session": call(meta=ENVELOPE),
    "enveloped discover in a legacy session": Ask("server/discover", meta=ENVELOPE),
    "enveloped listen in a legacy session": Ask("subscriptions/listen", {"notifications": {}}, meta=ENVELOPE),
}
SEVERAL: dict[str, tuple[Message, ...]] = {
    "one id twice": (
        call("wait", {"gate": "twice"}),
        call(),
        call("release", {"gate": "twice"}, fields={"id": "end"}),
    ),
    "one id as number and text": (
        call("wait", {"gate": "kinds"}, fields={"id": 7}),
        call(fields={"id": "7"}),
        call("release", {"gate": "kinds"}, fields={"id": "end"}),
    ),
    "call cancelled": (
        call("wait", {"gate": "cancelled"}),
        note("notifications/cancelled", {"requestId": "odd", "reason": "x"}),
    ),
    "call cancelled twice": (
        call("wait", {"gate": "again"}),
        note("notifications/cancelled", {"requestId": "odd"}),
        note("notifications/cancelled", {"requestId": "odd"}),
    ),
    "call cancelled by the id's other kind": (
        call("wait", {"gate": "other kind"}, fields={"id": 8}),
        note("notifications/cancelled", {"requestId": "8"}),
    ),
}
FIRST: dict[str, tuple[Message, ...]] = {
    "list first": (LIST,),
    "list first, no envelope": (Ask("tools/list", enveloped=False),),
    "call first, no envelope": (call(enveloped=False),),
    "ping first": (Ask("ping", enveloped=False),),
    "initialized first": (INITIALIZED, Ask("tools/list", enveloped=False)),
    "notification first": (note("notifications/unknown", enveloped=False), hello()),
    "garbage first": (b"hello", hello()),
    "batch first": (b"[]", hello()),
    "result first": (b'{"jsonrpc":"2.0","id":99,"result":{}}', hello()),
    "batch of a handshake": (b"[" + hello().written("legacy") + b"]",),
    "handshake and list at once": (hello(), Ask("tools/list", fields=NEXT, enveloped=False)),
    "handshake, initialized and list at once": (
        hello(),
        INITIALIZED,
        Ask("tools/list", fields=NEXT, enveloped=False),
    ),
    "list and handshake at once": (Ask("tools/list", fields=NEXT, enveloped=False), hello()),
    "two handshakes at once": (hello(), Ask("initialize", hello().params, NEXT, enveloped=False)),
    "handshake without initialized": (hello(), call(fields=NEXT, enveloped=False)),
    "handshake cancelled": (hello(), note("notifications/cancelled", {"requestId": "odd"}, enveloped=False)),
    "handshake as a notification": (Ask("initialize", hello().params, {"id": ABSENT}, enveloped=False),),
    "handshake without params": (Ask("initialize", enveloped=False),),
    "handshake params list": (Ask("initialize", [], enveloped=False),),
    "handshake without version": (hello(protocolVersion=ABSENT),),
    "handshake version unknown": (hello(protocolVersion="1999-01-01"),),
    "handshake version number": (hello(protocolVersion=5),),
    "handshake version oldest": (hello(protocolVersion="2024-11-05"),),
    "handshake version modern": (hello(protocolVersion="2026-07-28"),),
    "handshake without client": (hello(clientInfo=ABSENT),),
    "handshake client list": (hello(clientInfo=[]),),
    "handshake without capabilities": (hello(capabilities=ABSENT),),
    "handshake capabilities null": (hello(capabilities=None),),
    "handshake capabilities odd inside": (hello(capabilities={"sampling": 5}),),
    "handshake unknown member": (hello(more=1),),
    "handshake enveloped": (Ask("initialize", hello().params, meta=ENVELOPE),),
    "discover first, no envelope": (Ask("server/discover", enveloped=False),),
    "discover, then handshake": (Ask("server/discover", fields=NEXT, meta=ENVELOPE), hello()),
    "modern, then handshake": (Ask("tools/list", fields=NEXT, meta=ENVELOPE), hello()),
    "version unknown, then handshake": (
        Ask("server/discover", fields=NEXT, meta={**ENVELOPE, f"{PREFIX}/protocolVersion": "2099-01-01"}),
        hello(),
    ),
    "handshake, then modern": (hello(), INITIALIZED, Ask("tools/list", fields=NEXT, meta=ENVELOPE)),
    "unknown method first": (Ask("vendor/method", enveloped=False),),
    "level first": (Ask("logging/setLevel", {"level": "debug"}, enveloped=False),),
}


def odd_messages() -> list[OddRequest]:
    """The table, in the order in which it is sent."""
    return [*_on_open_connections(), *_first()]


def _first() -> Iterable[OddRequest]:
    for name, messages in FIRST.items():
        # The parameters of a handshake alone are no matter of how its message has come.
        framing = len(messages) > 1 or not name.startswith("handshake")
        yield OddRequest(name, messages, ("legacy",), fresh=True, framing=framing)


def _on_open_connections() -> Iterable[OddRequest]:
    for name, messages in (*UNREADABLE.items(), *TOP.items(), *SEVERAL.items()):
        yield OddRequest(name, messages)
    for name, ask in _framed():
        yield OddRequest(name, (ask,))
    for name, ask in odd_requests_of_methods():
        # A subscription has no answer, and an error beside the method is read as one by some.
        answered = ask.method != "subscriptions/listen" and not ask.fields
        yield OddRequest(name, (ask,), framing=False, answered=answered)
    for name, ask in ENVELOPES.items():
        yield OddRequest(name, (ask,), ("modern",), answered=True)
    for name, ask in IN_LEGACY.items():
        yield OddRequest(name, (ask,), ("legacy",), answered=True)


def _framed() -> Iterable[tuple[str, Message]]:
    for name, number in IDS.items():
        yield f"id {name}", Ask("tools/list", fields={"id": number})
    yield "id null in a call", call(fields={"id": None})
    for name, value in JSONRPC.items():
        yield f"jsonrpc {name}", Ask("tools/list", fields={"jsonrpc": value})
    for name, method in METHODS.items():
        yield f"method {name}", Ask(method)
    for name, value in _NOT_OBJECTS.items():
        yield f"params {name}", Ask("tools/list", value)
        yield f"params {name} in a call", Ask("tools/call", value)
        yield f"meta {name}", Ask("tools/list", {"_meta": value})
        yield f"meta {name} in a call", Ask("tools/call", {"name": "fail", "_meta": value})
    for name, token in TOKENS.items():
        yield f"token {name}", call(meta={"progressToken": token})
    for name, meta in META.items():
        yield f"meta {name}", call(meta=meta)
    yield from NOTES.items()
