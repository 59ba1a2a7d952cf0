"""A server of 2026-07-28 on standard input and output whose lists change right after they are first told.

Plain Python, no SDK: `changing_stdio.py soon|late`. What changes is told on streams that are acknowledged by
then, and on no others; `late` acknowledges a stream only once all three have been listed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

PREFIX = "io.modelcontextprotocol"
KINDS = {"tools": "inputSchema", "resources": "uri", "prompts": "description"}


class Server:
    """Its state: which lists were told, and who listens."""

    def __init__(self, late: bool) -> None:
        self.late = late
        self.told: set[str] = set()
        self.listening: list[Any] = []
        self.held: list[Any] = []

    def send(self, **message: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def answer(self, number: Any, **result: Any) -> None:
        whole = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        self.send(id=number, result=whole)

    def note(self, method: str, stream: Any, **params: Any) -> None:
        meta = {f"{PREFIX}/subscriptionId": stream}
        self.send(method=f"notifications/{method}", params={**params, "_meta": meta})

    def acknowledge(self, number: Any) -> None:
        self.listening.append(number)
        self.note("subscriptions/acknowledged", number, notifications={})

    def take(self, method: str, number: Any) -> None:
        kind = method.partition("/")[0]
        if method == "server/discover":
            offered = {each: {"listChanged": True} for each in KINDS}
            info = {"name": "changing", "version": "1"}
            self.answer(number, supportedVersions=["2026-07-28"], capabilities=offered, serverInfo=info)
        elif method == "subscriptions/listen":
            if self.late and self.told != KINDS.keys():
                self.held.append(number)
            else:
                self.acknowledge(number)
        elif method.endswith("/list") and kind in KINDS:
            self.listed(kind, number)
        else:
            self.answer(number, resourceTemplates=[])

    def listed(self, kind: str, number: Any) -> None:
        first = kind not in self.told
        self.told.add(kind)
        name = "old" if first else "new"
        entry = {"name": name, KINDS[kind]: {"type": "object"} if kind == "tools" else f"made:{name}"}
        self.answer(number, **{kind: [entry]})
        if first:
            for stream in self.listening:
                self.note(f"{kind}/list_changed", stream)
        if self.told == KINDS.keys():
            while self.held:
                self.acknowledge(self.held.pop())


def main() -> None:
    """Answer until the input ends."""
    server = Server(sys.argv[1] == "late")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            server.take(message["method"], message["id"])


if __name__ == "__main__":
    main()
