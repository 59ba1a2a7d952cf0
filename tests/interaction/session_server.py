"""A server of revision 2025-11-25 that keeps all it has for each session: one process, so one session.

`lent` is listed only to clients that can be asked. `grow` adds a tool and a resource and says so;
`touch` says that a resource has changed, if the session has subscribed to it. With the argument `quiet`
it says nothing of lists that change; with `restless` it has `stir`, which says so and changes none.
Plain Python, no SDK.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

ANYTHING = {"type": "object"}
TOOLS = ["grow", "touch", "who", *(["stir"] if "restless" in sys.argv else [])]
RESOURCES = ["mem://first"]
WATCHED: set[str] = set()
QUIET = "quiet" in sys.argv
FEATURES: dict[str, Any] = {
    "tools": {"listChanged": not QUIET},
    "resources": {"listChanged": not QUIET, "subscribe": True},
}


def send(**members: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def call(name: str, uri: str) -> str:
    if name == "grow":
        TOOLS.append("grown")
        RESOURCES.append("mem://grown")
        if not QUIET:
            send(method="notifications/tools/list_changed")
            send(method="notifications/resources/list_changed")
    if name == "stir":
        for what in ("tools", "resources"):
            send(method=f"notifications/{what}/list_changed")
    if name == "touch" and uri in WATCHED:
        send(method="notifications/resources/updated", params={"uri": uri})
    return str(os.getpid()) if name == "who" else f"{name} ran"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            if "elicitation" in params["capabilities"]:
                TOOLS.append("lent")
            info = {"name": "sessions", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": FEATURES, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": ANYTHING} for name in TOOLS]}
        case "resources/list":
            return {"resources": [{"uri": uri, "name": uri} for uri in RESOURCES]}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "resources/read":
            found = params["uri"] in RESOURCES
            return {"contents": [{"uri": params["uri"], "text": "here"}]} if found else None
        case "resources/subscribe":
            WATCHED.add(params["uri"])
            return {}
        case "resources/unsubscribe":
            WATCHED.discard(params["uri"])
            return {}
        case "tools/call":
            said = call(params["name"], params.get("arguments", {}).get("uri", ""))
            return {"content": [{"type": "text", "text": said}]}
        case _:
            return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    if result is None:
        send(id=message["id"], error={"code": -32601, "message": f"no {message['method']}"})
    else:
        send(id=message["id"], result=result)
