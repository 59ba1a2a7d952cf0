"""Odd parameters of the methods that a client knows: calls, what is read, prompts, completions, lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.differences.both_servers import TEMPLATE, URI
from tests.differences.requests import ABSENT, PREFIX, Ask, call, hello

_PROMPT = {"type": "ref/prompt", "name": "greet"}
_PLACE = {"type": "ref/resource", "uri": TEMPLATE}
_TYPED = {"name": "name", "value": "a"}
_LONG = "x" * 10_000


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


CALLS: dict[str, Ask] = {
    "call without name": Ask("tools/call", {"arguments": {}}),
    "call without arguments": Ask("tools/call", {"name": "add"}),
    "call name null": call(None),
    "call name number": call(5),
    "call name empty": call(""),
    "call name unknown": call("nothing"),
    "call name upper case": call("ADD"),
    "call name with space": call("add "),
    "call name unicode": call("aðd"),
    "call name long": call(_LONG),
    "call arguments null": call("add", None),
    "call arguments list": call("add", [1, 4]),
    "call arguments text": call("add", '{"a": 1, "b": 4}'),
    "call argument missing": call("add", {"a": 1}),
    "call argument unknown": call("add", {"a": 1, "b": 4, "c": 5}),
    "call argument null": call("add", {"a": 1, "b": None}),
    "call argument digits": call("add", {"a": "1", "b": 4}),
    "call argument text": call("add", {"a": "one", "b": 4}),
    "call argument true": call("add", {"a": True, "b": 4}),
    "call argument whole fraction": call("add", {"a": 1.0, "b": 4}),
    "call argument fraction": call("add", {"a": 1.5, "b": 4}),
    "call argument past 64 bits": call("add", {"a": 2**70, "b": 4}),
    "call argument number for text": call("echo", {"text": 5}),
    "call argument object for text": call("echo", {"text": {"a": 1}}),
    "call argument deep for text": call("echo", {"text": _nested(150)}),
    "call argument of 1 MB": call("echo", {"text": "x" * 1_000_000}),
    "call argument unicode": call("echo", {"text": "π\u2028\U0001f600"}),
    "call argument of 5000 members": call("add", {"a": 1, "b": 4, **{f"x{n}": n for n in range(5000)}}),
    "call that fails": call("fail", {}),
    "call unknown member": Ask("tools/call", {"name": "echo", "arguments": {"text": "a"}, "more": 1}),
    "call as a task": Ask("tools/call", {"name": "echo", "arguments": {"text": "a"}, "task": {"ttl": 1}}),
    "call task number": Ask("tools/call", {"name": "echo", "arguments": {"text": "a"}, "task": 5}),
    "call state unknown": Ask("tools/call", {"name": "fail", "requestState": "x"}),
    "call state number": Ask("tools/call", {"name": "fail", "requestState": 5}),
    "call answers list": Ask("tools/call", {"name": "fail", "inputResponses": []}),
    "call answers odd": Ask("tools/call", {"name": "fail", "inputResponses": {"a": 5}}),
    "call answers unasked": Ask(
        "tools/call", {"name": "fail", "inputResponses": {"a": {"action": "decline"}}}
    ),
}
READS: dict[str, Ask] = {
    "read without uri": Ask("resources/read", {}),
    "read uri null": Ask("resources/read", {"uri": None}),
    "read uri number": Ask("resources/read", {"uri": 5}),
    "read uri empty": Ask("resources/read", {"uri": ""}),
    "read uri unknown": Ask("resources/read", {"uri": "odd://nothing"}),
    "read uri of a foreign scheme": Ask("resources/read", {"uri": "file:///etc/passwd"}),
    "read uri relative": Ask("resources/read", {"uri": "text"}),
    "read uri upper case": Ask("resources/read", {"uri": URI.upper()}),
    "read uri with fragment": Ask("resources/read", {"uri": f"{URI}#a"}),
    "read uri with space": Ask("resources/read", {"uri": f"{URI} "}),
    "read template": Ask("resources/read", {"uri": "odd://shelf/7"}),
    "read template itself": Ask("resources/read", {"uri": TEMPLATE}),
    "read uri long": Ask("resources/read", {"uri": f"odd://{_LONG}"}),
    "read unknown member": Ask("resources/read", {"uri": URI, "more": 1}),
}
PROMPTS: dict[str, Ask] = {
    "prompt without name": Ask("prompts/get", {}),
    "prompt name number": Ask("prompts/get", {"name": 5}),
    "prompt name unknown": Ask("prompts/get", {"name": "nothing", "arguments": {}}),
    "prompt without arguments": Ask("prompts/get", {"name": "greet"}),
    "prompt arguments null": Ask("prompts/get", {"name": "greet", "arguments": None}),
    "prompt arguments list": Ask("prompts/get", {"name": "greet", "arguments": ["x"]}),
    "prompt argument number": Ask("prompts/get", {"name": "greet", "arguments": {"name": 5}}),
    "prompt argument unknown": Ask("prompts/get", {"name": "greet", "arguments": {"name": "x", "more": "y"}}),
}
COMPLETIONS: dict[str, Any] = {
    "empty": {},
    "without ref": {"argument": _TYPED},
    "without argument": {"ref": _PROMPT},
    "ref text": {"ref": "greet", "argument": _TYPED},
    "ref type unknown": {"ref": {"type": "ref/tool", "name": "add"}, "argument": _TYPED},
    "ref prompt unknown": {"ref": {**_PROMPT, "name": "nothing"}, "argument": _TYPED},
    "ref template unknown": {"ref": {**_PLACE, "uri": "odd://no/{x}"}, "argument": _TYPED},
    "argument unknown": {"ref": _PROMPT, "argument": {"name": "nothing", "value": ""}},
    "argument without value": {"ref": _PROMPT, "argument": {"name": "name"}},
    "argument value number": {"ref": _PROMPT, "argument": {"name": "name", "value": 5}},
    "context text": {"ref": _PROMPT, "argument": _TYPED, "context": "x"},
    "context argument number": {"ref": _PROMPT, "argument": _TYPED, "context": {"arguments": {"a": 5}}},
    "context unknown member": {"ref": _PROMPT, "argument": _TYPED, "context": {"more": 5}},
}
CURSORS: dict[str, Any] = {"unknown": "bogus", "empty": "", "null": None, "number": 5, "object": {}}
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
LISTENING: dict[str, Any] = {
    "without params": ABSENT,
    "without a filter": {},
    "filter null": {"notifications": None},
    "filter list": {"notifications": ["toolsListChanged"]},
    "filter empty": {"notifications": {}},
    "filter unknown": {"notifications": {"everything": True}},
    "filter text": {"notifications": {"toolsListChanged": "yes"}},
    "filter false": {"notifications": {"toolsListChanged": False}},
    "filter of tools": {"notifications": {"toolsListChanged": True}},
    "resources text": {"notifications": {"resourceSubscriptions": URI}},
    "resources of numbers": {"notifications": {"resourceSubscriptions": [5]}},
    "resources unknown": {"notifications": {"resourceSubscriptions": ["odd://nothing"]}},
}
OTHERS: dict[str, Ask] = {
    "ping": Ask("ping"),
    "ping with params": Ask("ping", {"more": 1}),
    "level": Ask("logging/setLevel", {"level": "debug"}),
    "level unknown": Ask("logging/setLevel", {"level": "loud"}),
    "level absent": Ask("logging/setLevel", {}),
    "level number": Ask("logging/setLevel", {"level": 5}),
    "subscribe": Ask("resources/subscribe", {"uri": URI}),
    "subscribe unknown": Ask("resources/subscribe", {"uri": "odd://nothing"}),
    "subscribe without uri": Ask("resources/subscribe", {}),
    "unsubscribe": Ask("resources/unsubscribe", {"uri": URI}),
    "discover": Ask("server/discover"),
    "discover unknown member": Ask("server/discover", {"more": 1}),
    "initialize again": hello(),
    "initialize again enveloped": Ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}),
    "member unknown": Ask("tools/list", fields={"more": 1}),
    "result beside the method": Ask("tools/list", fields={"result": {}}),
    "error beside the method": Ask("tools/list", fields={"error": {"code": 1, "message": "x"}}),
    "meta version of the other era": Ask("tools/list", meta={f"{PREFIX}/protocolVersion": "2025-11-25"}),
}


def odd_requests_of_methods() -> Iterable[tuple[str, Ask]]:
    """The table, in the order in which it is sent."""
    yield from (*CALLS.items(), *READS.items(), *PROMPTS.items(), *OTHERS.items())
    for name, params in COMPLETIONS.items():
        yield f"completion {name}", Ask("completion/complete", params)
    for name, cursor in CURSORS.items():
        for method in LISTS:
            yield f"{method} cursor {name}", Ask(method, {"cursor": cursor})
    for name, params in LISTENING.items():
        yield f"listen {name}", Ask("subscriptions/listen", params, {"id": f"listen {name}"})
