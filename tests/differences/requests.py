"""What an odd request is: one message or several, named, with the eras in which it is sent.

The tables are `odd_messages`, for every door, and `odd_posts`, for HTTP alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ERAS = ("legacy", "modern")
VERSIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
PREFIX = "io.modelcontextprotocol"
INFO = {"name": "odd", "version": "1"}
ABSENT: Any = object()
"""In place of a member or a header that is left out."""

ENVELOPE: dict[str, Any] = {
    f"{PREFIX}/protocolVersion": VERSIONS["modern"],
    f"{PREFIX}/clientCapabilities": {},
    f"{PREFIX}/clientInfo": INFO,
}


@dataclass(frozen=True)
class Ask:
    """One JSON-RPC message, a request unless `fields` say otherwise.

    Attributes:
        method: Its method.
        params: Its parameters, of any type; `ABSENT` leaves them out.
        fields: Members of the message that are set, or left out with `ABSENT`.
        meta: Members of `_meta`; in the modern era of the envelope, where `ABSENT` takes one out.
        enveloped: Whether the modern era adds its envelope.
    """

    method: Any
    params: Any = ABSENT
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    enveloped: bool = True

    def written(self, era: str, number: Any = "odd") -> bytes:
        """The message as it is sent in an era."""
        meta: dict[str, Any] = {**(ENVELOPE if era == "modern" and self.enveloped else {}), **self.meta}
        meta = {key: value for key, value in meta.items() if value is not ABSENT}
        params = self.params
        if meta and (params is ABSENT or (isinstance(params, dict) and "_meta" not in params)):
            params = {**({} if params is ABSENT else params), "_meta": meta}
        message = {"jsonrpc": "2.0", "id": number, "method": self.method, "params": params, **self.fields}
        present = {key: value for key, value in message.items() if value is not ABSENT}
        return json.dumps(present).encode()


@dataclass(frozen=True)
class Edited:
    """A message whose text is changed before it is sent."""

    ask: Ask
    edit: Callable[[bytes], bytes]

    def written(self, era: str, number: Any = "odd") -> bytes:
        """The text as it is sent in an era."""
        return self.edit(self.ask.written(era, number))


Message = bytes | Ask | Edited


@dataclass(frozen=True)
class OddRequest:
    """Messages to send, one after the other without waiting for an answer.

    Attributes:
        name: What is odd about it.
        messages: What is sent.
        eras: The eras in which it is sent.
        fresh: Whether it comes first on a connection of its own, before any handshake.
        framing: Whether it is about messages and connections, rather than about one method.
        answered: Whether there is no doubt that each message is answered, so that the answer is waited for.
    """

    name: str
    messages: tuple[Message, ...]
    eras: tuple[str, ...] = ERAS
    fresh: bool = False
    framing: bool = True
    answered: bool = False


def note(method: Any, params: Any = ABSENT, **more: Any) -> Ask:
    """A notification."""
    return Ask(method, params, {"id": ABSENT}, **more)


def hello(**changed: Any) -> Ask:
    """The handshake of the legacy era, with parameters changed, or left out with `ABSENT`."""
    params = {"protocolVersion": VERSIONS["legacy"], "capabilities": {}, "clientInfo": INFO, **changed}
    kept = {key: value for key, value in params.items() if value is not ABSENT}
    return Ask("initialize", kept, enveloped=False)


INITIALIZED = note("notifications/initialized", enveloped=False)


def call(name: Any = "add", arguments: Any = ABSENT, **more: Any) -> Ask:
    """A call, of 1 + 4 unless the arguments say otherwise."""
    arguments = {"a": 1, "b": 4} if arguments is ABSENT else arguments
    return Ask("tools/call", {"name": name, "arguments": arguments}, **more)
