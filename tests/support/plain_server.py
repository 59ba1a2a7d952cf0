"""A server of revision 2025-11-25 in plain Python, which starts at once: `plain_server.py '{…}'`.

Keys: `tools` (names), `label` (in every answer), `gate` (a FIFO that `held` waits for), `start` (a FIFO
that the handshake waits for), `uri` (a resource that can be watched; `touch` says that it has changed),
`prompt` (a prompt's name), `quiet` (announce no changes), `says` (its instructions), `info` (more of what
it says about itself), `wide` (every tool takes one more thing), `about` (the description of every tool),
`hints` (the annotations of every tool). The tool `ask` asks the client.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
NOTHING: dict[str, dict[str, Any]] = {
    "resources/templates/list": {"resourceTemplates": []},
    "prompts/get": {"messages": []},
}
WRITING = threading.Lock()
ASKED: dict[str, Any] = {}


def send(message: dict[str, Any]) -> None:
    with WRITING:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(name: str, more: str = "") -> dict[str, Any]:
    said = f"{name} of {OPTIONS.get('label', '1')} by {os.getpid()}{more}"
    return {"content": [{"type": "text", "text": said}]}


def held(request: dict[str, Any]) -> None:
    token = request["params"].get("_meta", {}).get("progressToken")
    if token is not None:
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
    with open(OPTIONS["gate"]):
        send({"id": request["id"], "result": text("held")})


def call(request: dict[str, Any]) -> None:
    name = request["params"]["name"]
    if name == "held":
        threading.Thread(target=held, args=(request,), daemon=True).start()
        return
    if name == "ask":
        ASKED[f"ask {request['id']}"] = request["id"]
        schema = {"type": "object", "properties": {"word": {"type": "string"}}}
        params = {"message": "Which word?", "requestedSchema": schema}
        send({"id": f"ask {request['id']}", "method": "elicitation/create", "params": params})
        return
    if name == "touch":
        send({"method": "notifications/resources/updated", "params": {"uri": OPTIONS["uri"]}})
    send({"id": request["id"], "result": text(name)})


def tool(name: str) -> dict[str, Any]:
    properties = {"more": {"type": "string"}} if OPTIONS.get("wide") else {}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    hints = {"annotations": OPTIONS["hints"]} if "hints" in OPTIONS else {}
    about = OPTIONS.get("about", f"The tool {name}.")
    return {"name": name, "description": about, "inputSchema": schema, **hints}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            if "start" in OPTIONS:
                with open(OPTIONS["start"]):
                    pass
            changes = {"listChanged": not OPTIONS.get("quiet")}
            offers: dict[str, Any] = {"tools": {}}
            if "uri" in OPTIONS:
                offers["resources"] = {"subscribe": True, **changes}
            if "prompt" in OPTIONS:
                offers["prompts"] = changes
            info = {"name": "plain", "version": "1", **OPTIONS.get("info", {})}
            said = {"instructions": OPTIONS["says"]} if "says" in OPTIONS else {}
            return {"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info, **said}
        case "tools/list":
            return {"tools": [tool(name) for name in OPTIONS.get("tools", ())]}
        case "resources/list":
            return {"resources": [{"uri": OPTIONS["uri"], "name": "watched"}]}
        case "resources/templates/list" | "prompts/get":
            return NOTHING[method]
        case "prompts/list":
            return {"prompts": [{"name": OPTIONS["prompt"]}]}
        case "resources/subscribe" | "resources/unsubscribe" | "ping" | "logging/setLevel":
            return {}
        case _:
            return None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            word = message.get("result", {}).get("content", {}).get("word")
            send({"id": ASKED.pop(message["id"]), "result": text("ask", f" heard {word}")})
        elif message["method"] == "tools/call":
            call(message)
        elif "id" in message:
            result = answer(message["method"], message.get("params") or {})
            unknown = {"error": {"code": -32601, "message": f"no method {message['method']}"}}
            send({"id": message["id"], **(unknown if result is None else {"result": result})})


if __name__ == "__main__":
    main()
