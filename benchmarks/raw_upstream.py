"""A server without any library, so that what is measured is the bridge: `raw_upstream.py [TOOLS]`."""

from __future__ import annotations

import json
import sys
from typing import Any

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 1
TEXT = {"type": "object", "properties": {"text": {"type": "string"}, "size": {"type": "integer"}}}
DESCRIPTION = "Return the text that was given, or as much text as was asked for, whichever there is. " * 3


def tool(number: int) -> dict[str, Any]:
    name = f"echo{number}" if number else "echo"
    return {"name": name, "description": DESCRIPTION, "inputSchema": TEXT}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "raw", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [tool(number) for number in range(COUNT)]}
    if method == "tools/call":
        given = params["arguments"]
        text = given.get("text") or "x" * given.get("size", 0)
        return {"content": [{"type": "text", "text": text}]}
    return None


for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" in message:
        found = result(message["method"], message.get("params", {}))
        refused = {"error": {"code": -32601, "message": "Method not found"}}
        answer = refused if found is None else {"result": found}
        line = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer})
        sys.stdout.buffer.write(line.encode() + b"\n")
        sys.stdout.buffer.flush()
