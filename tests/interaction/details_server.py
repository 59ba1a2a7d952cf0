"""A server on standard input and output, of either era, whose messages carry what no model knows.

Plain Python, no SDK: `details_server.py legacy|modern [log]`; the log gets every message that comes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MODERN = "2026-07-28"
OWN = {"example.com/own": {"kept": None}}
THING = {"uri": "made:up", "name": "thing", "x-color": "red", "_meta": OWN}
TEMPLATE = {"uriTemplate": "made:{what}", "name": "things", "x-color": "green"}
ARGUMENT = {"name": "who", "x-hint": "a name"}
PROMPT = {"name": "greet", "arguments": [ARGUMENT], "x-color": "blue"}
CONTENT = {"uri": "made:up", "text": "a thing", "x-lines": 1, "_meta": OWN}
MESSAGE = {"role": "user", "content": {"type": "text", "text": "hello", "x-tone": "warm"}, "x-turn": 1}
RESULTS: dict[str, dict[str, Any]] = {
    "tools/list": {"_meta": OWN},
    "resources/list": {"resources": [THING], "_meta": OWN},
    "resources/templates/list": {"resourceTemplates": [TEMPLATE], "_meta": OWN},
    "prompts/list": {"prompts": [PROMPT], "_meta": OWN},
    "resources/read": {"contents": [CONTENT], "x-took": 3, "_meta": OWN},
    "prompts/get": {"messages": [MESSAGE], "x-took": 3, "_meta": OWN},
    "completion/complete": {"completion": {"values": ["a"]}, "x-took": 3, "_meta": OWN},
}
"""What is answered, as far as it does not depend on the request."""

OFFERS = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
TOOLS = ("quiet.note", "same", "update", "hang", "ask", "withdraw", "custom", "release")


class Server:
    """Its state: who listens, which call hangs, and which question is open."""

    def __init__(self, era: str, log: str) -> None:
        self.modern = era == "modern"
        self.log = Path(log) if log else None
        self.streams: dict[Any, dict[str, Any]] = {}
        self.held: list[Any] = []

    def send(self, **message: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def note(self, method: str, **params: Any) -> None:
        self.send(method=f"notifications/{method}", params=params)

    def told(self, kind: str, method: str, **params: Any) -> None:
        """Tell of a change: to each stream that wants it, or to the one client."""
        if not self.modern:
            return self.note(method, **params)
        for stream, wanted in self.streams.items():
            if wanted.get(kind) is True or params.get("uri") in wanted.get(kind, ()):
                self.note(method, **params, _meta={"io.modelcontextprotocol/subscriptionId": stream})

    def take(self, message: dict[str, Any]) -> None:
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(json.dumps(message) + "\n")
        method, number = message.get("method", ""), message.get("id")
        params = message.get("params") or {}
        if method == "notifications/cancelled":
            self.streams.pop(params["requestId"], None)
        if number is None or not method:
            return
        if method == "subscriptions/listen":
            wanted = params["notifications"]
            if "resourceSubscriptions" in wanted:
                # It takes its time: until the tool `release` is called.
                return self.held.append((number, wanted))
            return self.listen(number, wanted)
        if HANGING in str(params):
            return
        if params.get("uri") == "made:talk":
            for level in ("info", "error"):
                self.note("message", level=level, data=level)
            self.note("example/spoken", what="anything")
        answer = self.answer(method, params, number)
        if answer is not None:
            self.send(id=number, **answer)

    def result(self, **result: Any) -> dict[str, Any]:
        if self.modern:
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        return {"result": result}

    def listen(self, number: Any, wanted: dict[str, Any]) -> None:
        self.streams[number] = wanted
        meta = {"io.modelcontextprotocol/subscriptionId": number}
        self.note("subscriptions/acknowledged", notifications=wanted, _meta=meta)

    def answer(self, method: str, params: dict[str, Any], number: Any) -> dict[str, Any] | None:
        match method:
            case "server/discover" if self.modern:
                return self.result(supportedVersions=[MODERN], capabilities=OFFERS, serverInfo=INFO)
            case "initialize" if not self.modern:
                version = params["protocolVersion"]
                return self.result(protocolVersion=version, capabilities=OFFERS, serverInfo=INFO)
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
                return self.result(**RESULTS[method], tools=tools)
            case "resources/read" if params["uri"] == "made:missing":
                error = {"message": "no such thing", "data": {"uri": "made:missing", "x-near": ["made:up"]}}
                return {"error": {"code": -32602 if self.modern else -32002, **error}}
            case "resources/subscribe" | "resources/unsubscribe" | "ping" | "logging/setLevel":
                return self.result()
            case "tools/call":
                return self.called(params["name"], number)
            case _ if method in RESULTS:
                return self.result(**RESULTS[method])
            case _:
                return {"error": {"code": -32601, "message": f"no method {method}"}}

    def called(self, name: str, number: Any) -> dict[str, Any] | None:
        match name:
            case "same":
                for each in ("tools", "resources", "prompts"):
                    self.told(f"{each}ListChanged", f"{each}/list_changed")
            case "update":
                self.told("resourceSubscriptions", "resources/updated", uri="made:up")
            case "ask":
                self.send(id="question", method="elicitation/create", params=QUESTION)
                return None
            case "withdraw":
                self.note("cancelled", requestId="question", reason="somebody else has answered")
            case "hang":
                return None
            case "release":
                while self.held:
                    self.listen(*self.held.pop())
            case "custom":
                self.note("example/spoken", what="anything")
            case _:
                pass
        return self.result(content=[{"type": "text", "text": name}])


HANGING = "made:hanging"
"""What is read, or filled into a prompt, without an end."""

INFO = {"name": "details", "version": "1"}
QUESTION = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}


def main() -> None:
    """Answer until the input ends."""
    server = Server(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
    for line in sys.stdin:
        server.take(json.loads(line))


if __name__ == "__main__":
    main()
