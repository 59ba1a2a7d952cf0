"""A server without any library, so that what is measured is the bridge: `raw_upstream.py [TOOLS [SECONDS]]`.

It takes that many seconds to start. A call with `{"edition": n}` gives all its tools other descriptions,
and says that they have changed; with `{"edition": n, "tools": m}`, its first m tools.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 1
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
TEXT = {"type": "object", "properties": {"text": {"type": "string"}, "size": {"type": "integer"}}}
DESCRIPTION = "Return the text that was given, or as much text as was asked for, whichever there is. " * 3
CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
editions = [0]
changing = [COUNT]


def tool(number: int) -> dict[str, Any]:
    name = f"echo{number}" if number else "echo"
    changed = editions[0] and number < changing[0]
    description = f"{DESCRIPTION}Edition {editions[0]}." if changed else DESCRIPTION
    return {"name": name, "description": description, "inputSchema": TEXT}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "raw", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [tool(number) for number in range(COUNT)]}
    if method == "tools/call":
        return called(params["arguments"])
    return None


def called(given: dict[str, Any]) -> dict[str, Any]:
    if given.get("edition"):
        editions[0], changing[0] = given["edition"], given.get("tools", COUNT)
        sys.stdout.buffer.write(CHANGED)
    text = given.get("text") or "x" * given.get("size", 0)
    return {"content": [{"type": "text", "text": text}]}


time.sleep(SECONDS)  # noqa: TID251
for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" in message:
        found = result(message["method"], message.get("params", {}))
        refused = {"error": {"code": -32601, "message": "Method not found"}}
        answer = refused if found is None else {"result": found}
        line = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer})
        sys.stdout.buffer.write(line.encode() + b"\n")
        sys.stdout.buffer.flush()
