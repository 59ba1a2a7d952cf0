"""A hostile server on standard input and output that asks: of nobody, too late, too often, without end.

The argument is an era. Plain Python, no SDK.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from threading import Thread
from typing import Any

MODERN = "2026-07-28"
ERA = sys.argv[1]
TOOLS = (
    "echo",
    "ask",
    "stray",
    "after",
    "thousand",
    "endless",
    "odd",
    "undeclared",
    "refusals",
    "tell",
    "prod",
)
FORM = {"type": "object", "properties": {"word": {"type": "string"}}}
REFUSED: list[str] = []
ANSWERS: dict[str, Any] = {}
TOKENS: list[Any] = []


def send(**members: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def text(value: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": json.dumps(value)}], **ENVELOPE}


def question(message: str) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": FORM}}


ENVELOPE: dict[str, Any] = (
    {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if ERA == "modern" else {}
)


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return json.loads(line)


def answer_of(id: str) -> dict[str, Any]:
    """Read on until a question is answered; whatever else comes meanwhile is served."""
    while id not in ANSWERS:
        take(receive())
    return ANSWERS.pop(id)


def take(message: dict[str, Any]) -> None:
    if "method" in message:
        if "id" in message:
            serve(message["id"], message["method"], message.get("params") or {})
        return
    ANSWERS[message["id"]] = message
    if "error" in message:
        REFUSED.append(message["error"]["message"])


def serve(id: Any, method: str, params: dict[str, Any]) -> None:
    match method:
        case "server/discover" if ERA == "modern":
            info = {"name": "asking", "version": "1"}
            found = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "serverInfo": info}
            send(id=id, result={**found, **ENVELOPE})
        case "initialize" if ERA == "modern":
            send(id=id, error={"code": -32022, "message": "no", "data": {"supported": [MODERN]}})
        case "initialize":
            send(
                id=id,
                result={
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "asking", "version": "1"},
                },
            )
        case "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            send(id=id, result={"tools": tools, **ENVELOPE})
        case "tools/call":
            globals()[f"run_{params['name']}"](id, params)
        case _:
            send(id=id, error={"code": -32601, "message": f"no method {method}"})


def run_echo(id: Any, params: dict[str, Any]) -> None:
    send(id=id, result=text(params.get("arguments")))


def run_ask(id: Any, params: dict[str, Any]) -> None:
    send(id=f"ask-{id}", **question("A word?"))
    send(id=id, result=text(answer_of(f"ask-{id}").get("result")))


def progress(step: int) -> None:
    send(method="notifications/progress", params={"progressToken": TOKENS[0], "progress": step})


def run_tell(id: Any, params: dict[str, Any]) -> None:
    TOKENS.append(params["_meta"]["progressToken"])
    progress(1)
    send(id="q", **question("Go on?"))
    answer_of("q")
    progress(3)
    send(id=id, result=text("told"))


def run_prod(id: Any, params: dict[str, Any]) -> None:
    """Have `tell` say something while its question is open."""
    progress(2)
    send(id=id, result=text("prodded"))


def run_stray(id: Any, params: dict[str, Any]) -> None:
    """Answer; ask when the pipe named by `told` is opened; write what came back to the file `said`."""
    send(id=id, result=text("done"))

    def ask() -> None:
        Path(params["arguments"]["told"]).read_bytes()
        send(id=f"stray-{id}", **question("Too late?"))

    # Whatever else the bridge asks meanwhile, such as a list, is answered.
    Thread(target=ask, daemon=True).start()
    Path(params["arguments"]["said"]).write_text(json.dumps(answer_of(f"stray-{id}")) + "\n")


def run_after(id: Any, params: dict[str, Any]) -> None:
    """Ask, and answer the call without waiting."""
    send(id=f"after-{id}", **question("Never mind?"))
    send(id=id, result=text("done"))


def run_thousand(id: Any, params: dict[str, Any]) -> None:
    for number in range(1000):
        send(id=f"many-{number}", **question(f"Number {number}?"))
    accepted = sum("result" in answer_of(f"many-{number}") for number in range(1000))
    send(id=id, result=text(accepted))


def run_endless(id: Any, params: dict[str, Any]) -> None:
    if ERA == "modern":
        more = {
            "resultType": "input_required",
            "inputRequests": {"q": question("More?")},
            "requestState": "s",
        }
        return send(id=id, result=more)
    number = 0
    while "result" in _asked(f"more-{id}-{number}"):
        number += 1
    send(id=id, result=text(number))


def _asked(id: str) -> dict[str, Any]:
    send(id=id, **question("More?"))
    return answer_of(id)


def run_odd(id: Any, params: dict[str, Any]) -> None:
    """Ask for what is no request of the protocol, and malformed ones."""
    send(id=f"odd-{id}", method="files/steal", params={"path": "/"})
    send(id=f"bare-{id}", method="elicitation/create")
    said = [answer_of(f"odd-{id}"), answer_of(f"bare-{id}")]
    send(id=id, result=text([each.get("error", {}).get("code") for each in said]))


def run_undeclared(id: Any, params: dict[str, Any]) -> None:
    asked = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
    if ERA == "modern":
        return send(id=id, result={"resultType": "input_required", "inputRequests": {"q": asked}})
    send(id=f"undeclared-{id}", **asked)
    send(id=id, result=text(answer_of(f"undeclared-{id}").get("error")))


def run_refusals(id: Any, params: dict[str, Any]) -> None:
    send(id=id, result=text(REFUSED))


while True:
    take(receive())
