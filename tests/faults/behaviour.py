"""What the hostile servers share: their tools and their ways to answer. Plain Python, no SDK."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

OBJECT: dict[str, Any] = {"type": "object"}
MODERN = "2026-07-28"


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Hostile tool {name}.", "inputSchema": OBJECT, **more}


TOOLS = [tool(name) for name in ("echo", "die", "hang", "fail", "refuse", "seen")]


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


class Behaviour:
    """One server's script: a JSON object given as its first argument.

    Keys: `tools` (wire entries), `tools_file` (read at each listing instead), `log` (a file that gets
    every message received), `page_file` (the result of each listing), `modern`, `silent` (methods that are
    never answered), `pages` (`endless` or `loop`), `output` (structured content of every call),
    `result` (the result of every call), `results` (those of the calls in turn), `listen` (announce changes,
    in the modern era), `say` (added to errors).
    """

    def __init__(self, script: dict[str, Any]) -> None:
        self.script = script
        self.pages = 0

    @classmethod
    def read(cls) -> Behaviour:
        return cls(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})

    def log(self, entry: Any) -> None:
        path = self.script.get("log")
        if path:
            with Path(path).open("a") as file:
                file.write(json.dumps(entry) + "\n")

    def tools(self) -> list[Any]:
        path = self.script.get("tools_file")
        return json.loads(Path(path).read_text()) if path else self.script.get("tools", TOOLS)

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The `result` or `error` member of the answer; `None` for no answer."""
        method, params = message["method"], message.get("params") or {}
        if method in self.script.get("silent", ()):
            return None
        match method:
            case "server/discover":
                return self._discover()
            case "initialize":
                return {"result": self._initialized(params)}
            case "tools/list":
                return {"result": self.stamped(self._page(params))}
            case "tools/call":
                return self._called(params)
            case "ping":
                return {"result": {}}
            case _:
                return {"error": {"code": -32601, "message": f"no method {method}"}}

    def _discover(self) -> dict[str, Any]:
        if not self.script.get("modern"):
            return {"error": {"code": -32601, "message": "no method server/discover"}}
        tools = {"listChanged": True} if self.script.get("listen") else {}
        found = {"supportedVersions": [MODERN], "capabilities": {"tools": tools}}
        return {"result": self.stamped({**found, "serverInfo": {"name": "hostile", "version": "1"}})}

    def _initialized(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "hostile", "version": "1"},
        }

    def stamped(self, result: dict[str, Any]) -> dict[str, Any]:
        if not self.script.get("modern"):
            return result
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}

    def _page(self, params: dict[str, Any]) -> dict[str, Any]:
        self.pages += 1
        if path := self.script.get("page_file"):
            return json.loads(Path(path).read_text())
        match self.script.get("pages"):
            case "endless":
                return {"tools": [tool(f"t{self.pages}")], "nextCursor": f"page {self.pages}"}
            case "loop":
                return {"tools": self.tools(), "nextCursor": "again"}
            case _:
                return {"tools": self.tools()}

    def _called(self, params: dict[str, Any]) -> dict[str, Any] | None:
        name, arguments = params["name"], params.get("arguments") or {}
        if "result" in self.script:
            return {"result": self.script["result"]}
        if "results" in self.script:
            return {"result": self.script["results"].pop(0)}
        if "output" in self.script:
            return {"result": self.stamped(text("out", structuredContent=self.script["output"]))}
        match name:
            case "die":
                os._exit(9)
            case "hang":
                return None
            case "fail":
                return {"result": self.stamped(text(self._confession(), isError=True))}
            case "refuse":
                error = {
                    "code": arguments.get("code", -31999),
                    "message": self._confession(),
                    "data": {"why": []},
                }
                return {"error": error}
            case _:
                return {"result": self.stamped(text(json.dumps(arguments)))}

    def _confession(self) -> str:
        """Everything this process was told, as a careless server writes it into its errors."""
        given = " ".join(sys.argv[2:])
        return f"cannot log in with {os.environ.get('API_TOKEN')} or {given}{self.script.get('say', '')}"
