"""A mounted server of revision 2025-11-25 in plain Python, which starts at once; it speaks in its calls.

`steps` reports progress and logs, `linger` waits to be cancelled.
"""

from __future__ import annotations

import json
import sys
from typing import Any

NAMES = ["steps", "linger"]
LINGERING: dict[Any, str] = {}
ANYTHING = {"type": "object"}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(line: str) -> None:
    with open(sys.argv[1], "a") as log:
        log.write(line + "\n")


def call(number: Any, params: dict[str, Any]) -> None:
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "linger":
        LINGERING[number] = arguments["mark"]
        return note(f"{arguments['mark']} begun")
    if name == "steps":
        for step in range(3):
            token = params["_meta"]["progressToken"]
            logged = {"level": "warning", "data": f"{arguments['tag']} {step}"}
            send({"method": "notifications/message", "params": logged})
            done = {"progressToken": token, "progress": step + 1, "total": 3, "message": arguments["tag"]}
            send({"method": "notifications/progress", "params": done})
    send({"id": number, "result": {"content": [{"type": "text", "text": name}]}})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        number, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                offers = {"tools": {}, "logging": {}}
                info = {"name": "upstream", "version": "1"}
                hello = {"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info}
                send({"id": number, "result": hello})
            case "tools/list":
                tools = [{"name": name, "inputSchema": ANYTHING} for name in NAMES]
                send({"id": number, "result": {"tools": tools}})
            case "tools/call":
                call(number, params)
            case "notifications/cancelled":
                if params["requestId"] in LINGERING:
                    note(f"{LINGERING.pop(params['requestId'])} cancelled")
            case "ping" | "logging/setLevel":
                send({"id": number, "result": {}})
            case _:
                if number is not None:
                    send({"id": number, "error": {"code": -32601, "message": "no such method"}})


if __name__ == "__main__":
    main()
