"""A server on standard input and output, of either era, that has an extension which the bridge does not know.

Plain Python, no SDK: `lamp_server.py legacy|modern NAME [IDENTIFIER …]`; it declares these extensions too.
Its own one has requests of both sides and notifications of both sides.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MODERN = "2026-07-28"
LAMPS = "com.example/lamps"
ROOM = "com.example/room"
ABLE = "io.modelcontextprotocol/clientCapabilities"


class Server:
    """Its state: what clients declared and said, and which requests wait for an answer of a client."""

    def __init__(self, era: str, name: str, *more: str) -> None:
        self.modern, self.name, self.more = era == "modern", name, more
        self.heard: list[str] = []
        self.told: list[str] = []
        self.declared: dict[str, Any] = {}
        self.waiting: dict[str, Any] = {}

    def send(self, **message: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def result(self, **result: Any) -> dict[str, Any]:
        if self.modern:
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        return {"result": result}

    def take(self, message: dict[str, Any]) -> None:
        method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
        self.heard.append(str(method))
        if method is None:
            waiting = self.waiting.pop(str(number))
            if "error" in message:
                return self.send(id=waiting, **self.result(refused=message["error"]["code"]))
            return self.send(id=waiting, **self.result(brightness=message["result"]["brightness"]))
        if self.modern:
            self.declared = params.get("_meta", {}).get(ABLE, self.declared)
        if number is None:
            if method.startswith("notifications/com.example/"):
                self.told.append(params["where"])
            return
        answer = self.answer(method, params, number)
        if answer is not None:
            self.send(id=number, **answer)

    def answer(self, method: str, params: dict[str, Any], number: Any) -> dict[str, Any] | None:
        info = {"name": self.name, "version": "1"}
        able = {
            "tools": {},
            "extensions": {LAMPS: {"of": self.name, "most": 9}, **{one: {} for one in self.more}},
            "experimental": {ROOM: {"big": True}},
        }
        match method:
            case "server/discover" if self.modern:
                return self.result(supportedVersions=[MODERN], capabilities=able, serverInfo=info)
            case "initialize" if not self.modern:
                self.declared = params["capabilities"]
                return self.result(
                    protocolVersion=params["protocolVersion"], capabilities=able, serverInfo=info
                )
            case "tools/list":
                return self.result(tools=[{"name": "glow", "inputSchema": {"type": "object"}}])
            case "tools/call" | "com.example/lamps/glow":
                self.send(method="notifications/com.example/lamps/glowing", params={"of": self.name})
                said = {
                    "content": [{"type": "text", "text": "ok"}],
                    "_meta": {"com.example/lamps": {"lit": 1}},
                }
                return self.result(**said)
            case "com.example/lamps/asks":
                self.waiting["ask-1"] = number
                return self.send(id="ask-1", method=params["by"], params={})
            case "com.example/lamps/told":
                return self.result(told=self.told, heard=self.heard, declared=self.declared, of=self.name)
            case "com.example/lamps/broken":
                return {"error": {"code": -31007, "message": "no bulb", "data": {"lamp": params["lamp"]}}}
            case "com.example/lamps/ask":
                return self.ask(params, number)
            case "ping":
                return self.result()
            case _:
                return {"error": {"code": -32601, "message": "Method not found", "data": method}}

    def ask(self, params: dict[str, Any], number: Any) -> dict[str, Any] | None:
        """Ask the client, in the way of the era."""
        if not self.modern:
            self.waiting["ask-1"] = number
            return self.send(id="ask-1", method="com.example/lamps/brightness", params={"lamp": 1})
        if (given := params.get("inputResponses")) is not None:
            return self.result(brightness=given["one"]["brightness"])
        asked = {"one": {"method": "com.example/lamps/brightness", "params": {"lamp": 1}}}
        return {"result": {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}}


def main() -> None:
    server = Server(*sys.argv[1:])
    for line in sys.stdin:
        server.take(json.loads(line))


if __name__ == "__main__":
    main()
